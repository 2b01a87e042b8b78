"""Lower an exported program to a ``.pte``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgesdk.artifacts import Lowered, Model
from edgesdk.errors import UnsupportedError
from edgesdk.runtimes import _et_native as native
from edgesdk.runtimes._base import LowerConfig


def lower(model: Model, config: LowerConfig, out: Path) -> Lowered:
    """Write ``out``; see ``EdgeRuntime.lower``."""
    if model.program is None:
        if isinstance(model.no_program, Exception):
            raise model.no_program
        raise UnsupportedError(
            "no_program", f"{model.source.name} has no exported program.", why="ExecuTorch lowers exported programs only.",
            fix="Export the model with torch.export, or choose --runtime onnx or torchscript.",
        )  # fmt: skip
    from executorch.exir import to_edge_transform_and_lower

    backend = config.backend or "xnnpack"
    manager = to_edge_transform_and_lower(model.program, partitioner=partitioners(backend))
    program = manager.to_executorch()
    temporary = out.with_name(out.name + ".part")
    with temporary.open("wb") as stream:
        program.write_to_file(stream)
    temporary.replace(out)
    return Lowered(
        "executorch", backend, config.quantization, out, "full", min_runtime=native.version_of("executorch") or ""
    )


def partitioners(backend: str) -> list[Any]:
    """The upstream partitioner of a back end."""
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        return [XnnpackPartitioner()]
    return []
