"""Modules that take flat tensors by position and return a flat tuple of tensors, in the order of the signature."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from edgesdk.importing._inputs import Call
from edgesdk.importing._names import name_outputs

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram


def tensors(value: Any) -> tuple[Any, ...]:
    """The tensors of a nested value, in its own order."""
    import torch

    return tuple(leaf for _, leaf in name_outputs(value) if isinstance(leaf, torch.Tensor))


def flat_module(module: nn.Module, call: Call) -> nn.Module:
    """``module`` behind a flat face."""
    flat: nn.Module = _classes()[0](module, call).eval()
    return flat


def flat_program(program: ExportedProgram) -> nn.Module:
    """A program's own graph behind a flat face. Weights and buffers are shared with the program."""
    flat: nn.Module = _classes()[1](program)
    flat.training = False
    return flat


def only_tensors(module: nn.Module) -> nn.Module:
    """``module`` with its tensors as outputs, and nothing else: no numbers, None or objects of the user's classes."""
    chosen: nn.Module = _classes()[2](module).eval()
    return chosen


@functools.cache
def _classes() -> tuple[Any, Any, Any]:
    import torch
    from torch.utils import _pytree as pytree

    class FlatModule(torch.nn.Module):
        def __init__(self, module: nn.Module, call: Call) -> None:
            super().__init__()
            self.model = module
            self.call = call

        def forward(self, *flat: Any) -> Any:
            args, kwargs = self.call.bind(flat)
            return tensors(self.model(*args, **kwargs))

    class FlatProgram(torch.nn.Module):
        def __init__(self, program: ExportedProgram) -> None:
            super().__init__()
            self.model = program.module(check_guards=False)
            self.spec = program.call_spec.in_spec

        def forward(self, *flat: Any) -> Any:
            args, kwargs = pytree.tree_unflatten(list(flat), self.spec)
            return tensors(self.model(*args, **kwargs))

    class OnlyTensors(torch.nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.model = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return tensors(self.model(*args, **kwargs))

    return FlatModule, FlatProgram, OnlyTensors
