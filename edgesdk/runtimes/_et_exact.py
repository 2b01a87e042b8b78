"""Operators that ExecuTorch's kernels compute otherwise than PyTorch, or lack, rewritten to some that agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def exact(program: ExportedProgram) -> ExportedProgram:
    """The same program with ``remainder`` of whole numbers as ``a - b * floor(a / b)``, and RReLU as the LeakyReLU it is.

    ExecuTorch 1.5's portable kernel gives a whole remainder the sign of the dividend, as C's ``%`` does: -9 % 5 is -4
    instead of 1. Its floor division of whole numbers, and its remainder of floats, agree with PyTorch.
    """
    import torch

    aten = torch.ops.aten
    remainders = (aten.remainder.Scalar, aten.remainder.Tensor, aten.remainder.Scalar_Tensor)
    nodes = [n for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes]
    table: dict[Any, Any] = {}
    if any(node.target in remainders and _is_whole(node.meta.get("val")) for node in nodes):
        table |= dict.fromkeys(remainders, _floored)
    if any(node.target == aten.rrelu.default for node in nodes):
        table[aten.rrelu.default] = _leaky
    if not table:
        return program
    rewritten: ExportedProgram = program.run_decompositions(table)
    return rewritten


def _is_whole(value: Any) -> bool:
    return hasattr(value, "dtype") and not value.dtype.is_floating_point


def _floored(a: Any, b: Any) -> Any:
    import torch

    if torch.result_type(a, b).is_floating_point:
        return NotImplemented
    left = a if isinstance(a, torch.Tensor) else torch.full_like(b, a)
    return left - torch.div(left, b, rounding_mode="floor") * b


def _leaky(x: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Any:
    """Outside training RReLU's slope is the middle of its range (torch.nn.RReLU)."""
    import torch

    return NotImplemented if training else torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
