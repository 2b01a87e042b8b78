"""Names in ONNX graphs: an output may have the name of an input, as a state that is handed on has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.artifacts import Source, parse_input
from edgesdk.importing import ImportOptions, Located
from edgesdk.importing._export import export_module
from edgesdk.runtimes import LowerConfig, find


class Cell(nn.Module):
    """One step of a recurrent net: ``hidden`` in, ``hidden`` out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x: Any, hidden: Any) -> Any:
        hidden = self.cell(x, hidden)
        return {"scores": hidden.softmax(-1), "hidden": hidden}


@pytest.mark.parametrize("quantization", ["none", "fp16"])
def test_an_output_may_be_named_like_an_input(quantization: str, tmp_path: Path) -> None:
    asked = ImportOptions(inputs=(parse_input("x=float32[1..4,3]"), parse_input("hidden=float32[1..4,4]")))
    model = export_module(Cell().eval(), Located("module", "net", Source("net", "module")), asked)
    assert [spec.name for spec in model.signature.outputs] == ["scores", "hidden"]
    lowered = find("onnx").lower(model, LowerConfig(quantization=quantization), tmp_path / "m.onnx")
    runner = find("onnx").load(lowered.path, model.signature)
    x, hidden = np.ones((2, 3), "float32"), np.full((2, 4), 0.25, "float32")
    scores, after = runner.run([x, hidden])
    with torch.no_grad():
        wanted = Cell()(torch.from_numpy(x), torch.from_numpy(hidden))
    tolerance = 1e-6 if quantization == "none" else 2e-3
    assert np.abs(after - wanted["hidden"].numpy()).max() < tolerance
    assert np.abs(scores - wanted["scores"].numpy()).max() < tolerance
