"""What the graph writer needs to know: names of operators, constants and types, and where a node came from."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# c10/core/MemoryFormat.h; torch.memory_format has no integer form in Python.
MEMORY_FORMATS = {"contiguous_format": 0, "preserve_format": 1, "channels_last": 2, "channels_last_3d": 3}

# Python's functions on symbolic sizes, and the TorchScript operator that does the same with plain numbers.
NUMBERS: Mapping[Any, str] = {
    operator.add: "aten::add", operator.sub: "aten::sub", operator.mul: "aten::mul", operator.neg: "aten::neg",
    operator.floordiv: "aten::floordiv", operator.mod: "aten::remainder", operator.truediv: "aten::div",
    operator.pow: "aten::pow", operator.eq: "aten::eq", operator.ne: "aten::ne", operator.lt: "aten::lt",
    operator.le: "aten::le", operator.gt: "aten::gt", operator.ge: "aten::ge", operator.and_: "aten::__and__",
    operator.or_: "aten::__or__", operator.not_: "aten::__not__", math.ceil: "aten::ceil", math.floor: "aten::floor",
    math.sqrt: "aten::sqrt", abs: "prim::abs", round: "aten::round", min: "prim::min", max: "prim::max",
}  # fmt: skip
TORCH_NUMBERS: Mapping[str, str] = {
    "sym_max": "prim::max", "sym_min": "prim::min", "sym_float": "aten::Float", "sym_int": "aten::Int",
    "sym_not": "aten::__not__", "_sym_sqrt": "aten::sqrt",
}  # fmt: skip
# Checks that torch.export leaves in the graph. The caller checks shapes against the signature instead.
CHECKS = frozenset({
    "aten::_assert_async", "aten::_assert_scalar", "aten::_assert_tensor_metadata", "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size", "aten::_print",
})  # fmt: skip
SIZES = {
    "aten::sym_size": "aten::size", "aten::sym_numel": "aten::numel", "aten::sym_stride": "aten::stride",
    "aten::sym_storage_offset": "aten::storage_offset",
}  # fmt: skip


def spread(value: Any, argument: Any) -> Any:
    """``int[2]`` given as one number, as schemas allow: the number twice."""
    return [value] * argument.N if argument.N and isinstance(value, (int, float)) else value


def plain_list(items: Sequence[Any], kind: str) -> list[Any]:
    """The list itself when it holds nothing but numbers of the type that the schema names; else an empty one."""
    make = {"IntType": int, "SymIntType": int, "FloatType": float, "BoolType": bool}.get(kind)
    allowed = {int: (int,), float: (int, float), bool: (bool,)}.get(make or str, ())
    fits = all(isinstance(item, allowed) and (kind == "BoolType" or not isinstance(item, bool)) for item in items)
    return [make(item) for item in items] if make and fits else []


def torch_types(torch: Any) -> dict[str, Any]:
    """Element types of lists, by the kind that a schema names."""
    integer = torch._C.IntType.get()
    return {
        "IntType": integer, "SymIntType": integer, "FloatType": torch._C.FloatType.get(),
        "BoolType": torch._C.BoolType.get(), "TensorType": torch._C.TensorType.get(),
        "NumberType": torch._C.NumberType.get(), "StringType": torch._C.StringType.get(),
        "ScalarTypeType": integer,
    }  # fmt: skip


def source_line(node: torch.fx.Node | None) -> str:
    """``" at net.py:12"``: the user's line that a node came from, or nothing.

    Libraries' own frames are passed over, and only the file's name is given: messages go into reports, which must not
    depend on the folder.
    """
    trace = node.meta.get("stack_trace") if node is not None else None
    frames = [line.strip() for line in (trace or "").splitlines() if line.strip().startswith("File ")]
    own = [frame for frame in frames if "site-packages" not in frame] or frames
    if not own:
        return ""
    name = PurePath(own[-1].split('"')[1]).name if '"' in own[-1] else "?"
    return f" at {name}:{own[-1].partition('line ')[2].partition(',')[0]}"
