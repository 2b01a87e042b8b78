"""TorchScript's operators on Python values: what ``torch.ops`` doesn't offer, or offers for numbers only.

Sizes may be symbolic, so Python's own operators are used wherever no tensor is involved.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgesdk.importing._script_numbers import wrapped


def resolve(kind: str, schema: str) -> Callable[..., Any] | None:
    """The Python function for one operator of a graph, or None when there is none.

    Args:
        kind: ``aten::add``.
        schema: ``aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor``.
    """
    if kind in PRIM:
        return PRIM[kind]
    space, _, name = kind.partition("::")
    if "Tensor" not in schema.split(" -> ")[0] and "Tensor" not in schema.split(" -> ")[-1]:
        return PLAIN.get(name) or ON_TENSORS.get(kind)
    return ON_TENSORS.get(kind) or _operator(space, name, schema)


def _operator(space: str, name: str, schema: str) -> Callable[..., Any] | None:
    head = schema.split("(")[0].split("::")[-1]
    overload = head.partition(".")[2] or "default"
    packet = getattr(getattr(_ops().ops, space), name, None)
    operation = getattr(packet, overload, None)
    if operation is None or "(no schema)" in schema:
        return None
    arguments = operation._schema.arguments

    def call(*values: Any) -> Any:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument, value in zip(arguments, values, strict=False):
            value = _typed(argument.name, value)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return operation(*args, **kwargs)

    return call


def _typed(name: str, value: Any) -> Any:
    """TorchScript's numbers for dtypes, layouts and memory formats as torch's objects; every device is the CPU."""
    torch = _ops()
    if name == "dtype" and isinstance(value, int):
        return DTYPES[value]
    if name == "memory_format" and isinstance(value, int):
        return (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)[value]
    if name == "layout" and isinstance(value, int):
        return torch.strided
    if name == "device" and value is not None:
        return torch.device("cpu")
    return value


class _Dtypes:
    """c10::ScalarType's numbers."""

    names = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"]  # fmt: skip

    def __getitem__(self, number: int) -> Any:
        return getattr(_ops(), self.names[number])

    def number(self, dtype: Any) -> int:
        return self.names.index(str(dtype).removeprefix("torch."))


DTYPES = _Dtypes()


def _slice(items: Sequence[Any], start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return items[slice(start, end, step)]


def _set_item(items: Any, key: Any, value: Any) -> Any:
    items[key] = value
    return items


def _append(items: list[Any], value: Any) -> list[Any]:
    items.append(value)
    return items


def _extend(items: list[Any], more: Sequence[Any]) -> None:
    items.extend(more)


def _join(items: list[Any], more: Sequence[Any]) -> list[Any]:
    items.extend(more)
    return items


def _delete(items: Any, key: Any) -> None:
    del items[key]


def _raise(message: str = "", kind: str = "") -> None:
    raise ValueError(f"{kind.rsplit('.', 1)[-1]}: {message}" if kind else message)


def _derive_index(index: int, start: int, step: int) -> int:
    return start + index * step


def _range_length(low: int, high: int, step: int) -> int:
    return len(range(low, high, step))


def _true_divide(one: Any, other: Any) -> Any:
    return one / other


PLAIN: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "add_": operator.iadd, "sub": operator.sub, "mul": operator.mul, "div": _true_divide,
    "floordiv": operator.floordiv, "remainder": operator.mod, "mod": operator.mod, "pow": operator.pow,
    "neg": operator.neg, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "__not__": operator.not_, "__and__": operator.and_,
    "__or__": operator.or_, "__xor__": operator.xor, "__is__": operator.is_, "__isnot__": operator.is_not,
    "__contains__": operator.contains, "__getitem__": operator.getitem, "_set_item": _set_item, "len": len,
    "append": _append, "extend": _extend, "insert": list.insert, "pop": lambda items, *at: items.pop(*at),
    "slice": _slice, "Delete": _delete, "copy": lambda value: value.copy(), "list": list, "dict": lambda *a: dict(*a),
    "keys": lambda d: list(d.keys()), "values": lambda d: list(d.values()), "items": lambda d: list(d.items()),
    "get": lambda d, *key: d.get(*key), "reverse": lambda items: items.reverse(), "clear": lambda items: items.clear(),
    "format": lambda text, *values: text.format(*values), "str": str, "Int": lambda v: _int(v), "Float": lambda v: _float(v), "Bool": bool,
    "IntImplicit": lambda v: _int(v), "FloatImplicit": lambda v: _float(v), "ScalarImplicit": lambda v: v, "ceil": math.ceil,
    "floor": math.floor, "round": round, "sqrt": math.sqrt, "log": math.log, "exp": math.exp, "abs": abs,
    "max": builtins.max, "min": builtins.min, "join": lambda sep, items: sep.join(items), "percentFormat": lambda text, *v: text % v,
    "__range_length": _range_length, "__derive_index": _derive_index, "ord": ord, "lower": str.lower,
    "startswith": lambda text, *a: text.startswith(*a), "sum": builtins.sum, "sorted": sorted, "warn": lambda *_: None,
    "as_tensor": lambda *a: _ops().as_tensor(*a), "__round_to_zero_floordiv": lambda a, b: int(a / b),
}  # fmt: skip


def _int(value: Any) -> Any:
    """Python's ``int`` would decide a symbolic size."""
    torch = _ops()
    return value if isinstance(value, torch.SymInt) else torch.sym_int(value) if _symbolic(value) else int(value)


def _float(value: Any) -> Any:
    return _ops().sym_float(value) if _symbolic(value) else float(value)


def _symbolic(value: Any) -> bool:
    torch = _ops()
    return isinstance(value, (torch.SymInt, torch.SymFloat))


def _ops() -> Any:
    import torch

    return torch


def _size(x: Any, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.shape[dim]


def _convolution(x: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    """``_convolution`` of traced graphs, as the operator that a module would call: back ends know that one."""
    import torch

    stride, padding, dilation, transposed, output_padding, groups = rest[:6]
    rank = len(stride)
    if transposed:
        call = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[rank - 1]
        return call(x, weight, bias, stride, padding, output_padding, groups, dilation)
    plain = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    return plain(x, weight, bias, stride, padding, dilation, groups)


def _nearest(x: Any, size: Any, *scales: Any) -> Any:
    return _ops().ops.aten.upsample_nearest2d.vec(x, *_size_or_factors(size, scales))


def _bilinear(x: Any, size: Any, corners: bool, *scales: Any) -> Any:
    size, factors = _size_or_factors(size, scales)
    return _ops().ops.aten.upsample_bilinear2d.vec(x, size, corners, factors)


def _size_or_factors(size: Any, scales: Sequence[Any]) -> tuple[Any, Any]:
    """A trace calls the operator with sizes and one factor for each direction; back ends know the one that modules
    call, with either."""
    if len(scales) < 2:
        return size, scales[0] if scales else None
    return (size, None) if None in scales else (None, list(scales))


ON_TENSORS: Mapping[str, Callable[..., Any]] = {
    "aten::size": _size, "aten::_convolution": _convolution, "aten::dim": lambda x: x.dim(),
    "aten::numel": lambda x: x.numel(), "aten::len": len, "aten::item": lambda x: x.item(),
    "aten::Int": _int, "aten::Float": _float, "aten::Bool": bool, "aten::IntImplicit": _int,
    "aten::FloatImplicit": _float, "aten::ScalarImplicit": lambda x: x.item(),
    "aten::upsample_nearest2d": _nearest, "aten::upsample_bilinear2d": _bilinear,
    "aten::is_floating_point": lambda x: x.is_floating_point(), "aten::is_complex": lambda x: x.is_complex(),
    "aten::__is__": operator.is_, "aten::__isnot__": operator.is_not, "aten::stride": lambda x: list(x.stride()),
    "aten::append": _append, "aten::extend": _extend, "aten::__getitem__": operator.getitem, "aten::insert": list.insert,
    "aten::_set_item": _set_item, "aten::list": list, "aten::pop": lambda items, *at: items.pop(*at),
    "aten::add_": lambda a, b, *s: _join(a, b) if isinstance(a, list) else a.add_(b, alpha=s[0] if s else 1),
    "aten::is_contiguous": lambda x: x.is_contiguous(), "aten::keys": lambda d: list(d.keys()),
    "aten::values": lambda d: list(d.values()), "aten::items": lambda d: list(d.items()),
    "aten::__contains__": operator.contains, "aten::get": lambda d, *key: d.get(*key), "aten::dict": lambda *a: dict(*a),
    "aten::warn": lambda *_: None, "aten::cuda": lambda x, *_: x, "aten::cpu": lambda x: x,
}  # fmt: skip


def _cast_to(x: Any) -> Any:
    return x


def _dtype(x: Any) -> Any:
    return DTYPES.number(x.dtype)


PRIM: Mapping[str, Callable[..., Any]] = {
    "prim::ListConstruct": lambda *a: list(a), "prim::TupleConstruct": lambda *a: tuple(a),
    "prim::DictConstruct": lambda *a: dict(zip(a[::2], a[1::2], strict=True)), "prim::ListUnpack": tuple,
    "prim::TupleUnpack": tuple, "prim::TupleIndex": operator.getitem, "prim::RaiseException": _raise,
    "prim::Uninitialized": lambda: None, "prim::unchecked_cast": _cast_to, "prim::data": lambda x: x.detach(),
    "prim::NumToTensor": wrapped, "prim::ImplicitTensorToNum": lambda x: x.item(), "prim::dtype": _dtype,
    "prim::device": lambda x: x.device, "prim::layout": lambda x: x.layout, "prim::is_cuda": lambda x: False,
    "prim::requires_grad": lambda x: False, "prim::min": lambda *a: builtins.min(*a), "prim::max": lambda *a: builtins.max(*a),
    "prim::abs": abs, "prim::shape": lambda x: list(x.shape), "prim::unchecked_unwrap_optional": _cast_to,
    "aten::_unwrap_optional": _cast_to, "prim::Print": lambda *_: None, "prim::Enter": lambda *_: None,
    "prim::Exit": lambda *_: None, "prim::is_quantized": lambda x: False, "prim::is_sparse": lambda x: False,
    "prim::type": lambda x: x.type, "prim::grad": lambda x: None, "prim::TupleSlice": _slice, "prim::rangelist": lambda n: list(range(n)),
    "prim::is_nested": lambda x: False, "prim::is_mkldnn": lambda x: False, "prim::is_meta": lambda x: False,
    "prim::annotate": _cast_to, "prim::index": lambda d: d.index, "aten::device": lambda *_: _ops().device("cpu"),
}  # fmt: skip
