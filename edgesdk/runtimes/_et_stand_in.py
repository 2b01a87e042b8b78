"""Quantized files that no engine here runs (Core ML's) are judged by the quantized program, run by PyTorch.

The program lies beside the file in the build's own folder and is never shipped. It rounds weights and activations as the file
does; what it doesn't show is Core ML's float16 in between, and the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk._disk import writing
from edgesdk.runtimes._base import Runner

if TYPE_CHECKING:
    import numpy as np
    from torch.export import ExportedProgram

    Array = np.ndarray


def place_of(file: Path) -> Path:
    """Where the stand-in of a file lies."""
    return file.with_name(file.name + ".stand-in.pt2")


def write(program: ExportedProgram, file: Path) -> None:
    import torch

    from edgesdk.quantize._pt2e._graph import quiet

    place = place_of(file)
    temporary = place.with_name(f"part-{place.name}")
    with quiet(), writing(temporary) as file:
        torch.export.save(program, file)
    temporary.replace(place)


class StandIn(Runner):
    """The quantized program in PyTorch; flat tensors in the order of the signature."""

    def __init__(self, place: Path) -> None:
        import torch

        from edgesdk.quantize._pt2e._graph import operators, quiet

        operators()
        with quiet():
            program: Any = torch.export.load(place)
        self._torch, self._module = torch, program.module(check_guards=False)
        self._state = {name: value.clone() for name, value in self._module.named_buffers()}

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        with self._torch.no_grad():
            outputs = self._module(*(self._torch.from_numpy(array.copy()) for array in inputs))
        leaves = self._torch.utils._pytree.tree_leaves(outputs)
        return [leaf.contiguous().numpy() for leaf in leaves if isinstance(leaf, self._torch.Tensor)]

    def reset(self) -> None:
        for name, value in self._module.named_buffers():
            value.copy_(self._state[name])
