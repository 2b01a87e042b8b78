from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model
from edgesdk.runtimes._base import LowerConfig


def graph_of(model: Model, config: LowerConfig) -> Any:
    import onnx
    import torch

    if model.program is None:
        return onnx.load(model.onnx)
    program = torch.onnx.export(
        model.program, (), dynamo=True, opset_version=config.opset or 18, verbose=False, external_data=False,
        input_names=[s.name for s in model.signature.inputs], output_names=[s.name for s in model.signature.outputs],
    )  # fmt: skip
    return program.model_proto
