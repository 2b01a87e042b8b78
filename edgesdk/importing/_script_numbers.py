"""Sizes that a trace keeps in tensors, computed as numbers.

``torch.jit.trace`` wraps every size in a tensor, reckons with it (``batch * heads``) and unwraps it before a view. As
tensors they would be values that only a run knows, and the dynamic size would be lost; as numbers they stay symbols.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_UNWRAP = frozenset((
    "aten::Int", "aten::IntImplicit", "aten::ScalarImplicit", "prim::ImplicitTensorToNum", "aten::item",
))  # fmt: skip
_SAME = frozenset(("aten::detach", "aten::clone", "aten::contiguous", "aten::cpu", "aten::alias"))


@dataclass(frozen=True)
class Number:
    """A whole number, maybe symbolic, that the script holds as a tensor without dimensions."""

    value: Any

    def __bool__(self) -> bool:
        return bool(self.value)

    def tensor(self) -> Any:
        import torch

        return torch.scalar_tensor(self.value, dtype=torch.int64)


def wrapped(number: Any, *_: Any) -> Any:
    """``prim::NumToTensor``."""
    import torch

    if isinstance(number, (int, torch.SymInt)) and not isinstance(number, bool):
        return Number(number)
    return torch.scalar_tensor(number)


def called(kind: str, call: Callable[..., Any], values: Sequence[Any]) -> Any:
    """One operator: on numbers where that gives a number, on tensors otherwise."""
    if not any(
        isinstance(v, Number) or (isinstance(v, list) and any(isinstance(w, Number) for w in v)) for v in values
    ):
        return call(*values)
    if kind.startswith("prim::") and kind.endswith(("Construct", "Unpack")):
        return call(*values)
    if kind in _UNWRAP:
        return values[0].value
    if kind in _SAME:
        return values[0]
    found = _reckoned(kind, values)
    return call(*map(as_tensors, values)) if found is None else found


def as_tensors(value: Any) -> Any:
    """What the script's caller, or an operator on tensors, is given."""
    if isinstance(value, Number):
        return value.tensor()
    if type(value) in (list, tuple):
        return type(value)(map(as_tensors, value))
    return {k: as_tensors(v) for k, v in value.items()} if type(value) is dict else value


def _scaled(one: Any, other: Any, alpha: Any = 1) -> Any:
    return one + other * alpha


def _reduced(one: Any, other: Any, alpha: Any = 1) -> Any:
    return one - other * alpha


def _reduced_from(one: Any, other: Any, alpha: Any = 1) -> Any:
    return other - one * alpha


def _divided(one: Any, other: Any, rounding: Any = None) -> Any:
    """Sizes aren't negative, so that both roundings are the floor."""
    return one // other if rounding in ("floor", "trunc") else None


_RECKON: Mapping[str, Callable[..., Any]] = {
    "aten::add": _scaled, "aten::sub": _reduced, "aten::mul": operator.mul, "aten::floor_divide": operator.floordiv,
    "aten::rsub": _reduced_from, "aten::remainder": operator.mod, "aten::neg": operator.neg, "aten::div": _divided,
}  # fmt: skip


def _reckoned(kind: str, values: Sequence[Any]) -> Number | None:
    import torch

    plain = [v.value if isinstance(v, Number) else v for v in values]
    whole = all(isinstance(v, (int, str, torch.SymInt, type(None))) and not isinstance(v, bool) for v in plain)
    if kind not in _RECKON or not whole:
        return None
    found = _RECKON[kind](*plain)
    return None if found is None else Number(found)
