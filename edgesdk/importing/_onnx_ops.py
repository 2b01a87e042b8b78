"""ONNX operators as torch calls.

A value is a tensor, a constant of the file (:class:`Const`), or a small array of sizes computed on the way (``numpy``,
of Python objects where a size is symbolic). Arithmetic on sizes stays in Python, so that reshapes which the exporter
computed from ``Shape`` become sizes and not data (I-13).

Sources: the operator specifications of ONNX, opset 7 to 21.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Value = Any
Operator = Callable[["Node", list[Value]], Any]
OPERATORS: dict[str, Operator] = {}


@dataclass
class Const:
    """A constant of the file.

    Attributes:
        array: its value.
        key: name of the module's parameter or buffer, once it has one; sizes and single numbers have none.
        module: where to look the key up; None outside a call.
    """

    array: np.ndarray[Any, Any]
    key: str | None = None
    module: Any = None

    def fetch(self) -> Any:
        import torch

        if self.key is not None and self.module is not None:
            return getattr(self.module, self.key)
        return torch.from_numpy(np.array(self.array))


@dataclass(frozen=True)
class Node:
    """An operator of the graph."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)


class OnnxOperatorError(Exception):
    """An operator, or a form of it, that has no torch counterpart here; the text says which."""


def operator(*names: str) -> Callable[[Operator], Operator]:
    def register(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


def tensor(value: Value) -> Any:
    """The value as a tensor."""
    import torch

    if isinstance(value, Const):
        return value.fetch()
    if isinstance(value, np.ndarray):
        if value.dtype != object:
            return torch.from_numpy(np.array(value))
        flat = [torch.scalar_tensor(v, dtype=torch.int64) for v in value.reshape(-1)]
        return torch.stack(flat).reshape(value.shape) if flat else torch.zeros(value.shape, dtype=torch.int64)
    return value


def host(value: Value) -> np.ndarray[Any, Any] | None:
    """The value as an array known now, or None for a tensor."""
    if isinstance(value, Const):
        return value.array
    return value if isinstance(value, np.ndarray) else None


def known(value: Value, what: str) -> np.ndarray[Any, Any]:
    """The value as an array.

    Raises:
        OnnxOperatorError: it depends on what is fed in.
    """
    found = host(value)
    if found is None:
        raise OnnxOperatorError(f"{what} depends on the values that are fed in")
    return found


def ints(value: Value, what: str = "a size") -> list[Any]:
    return [v if not isinstance(v, np.generic) else int(v) for v in known(value, what).reshape(-1).tolist()]


def pick(values: Sequence[Value], index: int) -> Value | None:
    return values[index] if index < len(values) else None


def axes_of(node: Node, values: Sequence[Value], index: int) -> list[int] | None:
    """``axes``: an attribute in old opsets, an input in new ones."""
    if node.get("axes") is not None:
        return list(node.attrs["axes"])
    given = pick(values, index)
    return None if given is None else ints(given, "axes")


def light(*values: Value) -> bool:
    """Whether all of them are known now and small: sizes, indices, scalars."""
    return all(v is None or ((h := host(v)) is not None and h.size <= 256) for v in values)


# --- element by element -------------------------------------------------------------------------------------------------

_UNARY = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Neg": "neg",
    "Abs": "abs", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sin": "sin", "Cos": "cos", "Tan": "tan",
    "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Erf": "erf", "Sign": "sign",
    "Reciprocal": "reciprocal", "Not": "logical_not", "IsNaN": "isnan", "Asinh": "asinh",
    "Acosh": "acosh", "Atanh": "atanh", "Det": "det",
}  # fmt: skip
_HOST_UNARY: Mapping[str, Any] = {"Neg": np.negative, "Abs": np.abs, "Floor": np.floor, "Ceil": np.ceil, "Sqrt": np.sqrt, "Not": np.logical_not}  # fmt: skip


@operator(*_UNARY)
def _unary(node: Node, values: list[Value]) -> Any:
    import torch

    array = host(values[0])
    if array is not None and node.op in _HOST_UNARY and light(*values) and array.dtype != object:
        return _HOST_UNARY[node.op](array)
    return getattr(torch, _UNARY[node.op])(tensor(values[0]))


@operator("IsInf")
def _isinf(node: Node, values: list[Value]) -> Any:
    import torch

    x = tensor(values[0])
    kept = [
        x == sign * math.inf for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if node.get(name, 1)
    ]
    return torch.isinf(x) if len(kept) == 2 else kept[0] if kept else torch.zeros_like(x, dtype=torch.bool)


@operator("Softplus", "Softsign", "Mish", "Selu", "HardSwish")
def _functional(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    names = {"HardSwish": "hardswish"}
    return getattr(functional, names.get(node.op, node.op.lower()))(tensor(values[0]))


@operator("Gelu")
def _gelu(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    return functional.gelu(tensor(values[0]), approximate=node.get("approximate", "none"))


@operator("LeakyRelu", "Elu", "Celu", "ThresholdedRelu")
def _sloped(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    alpha = float(node.get("alpha", 0.01 if node.op == "LeakyRelu" else 1.0))
    x = tensor(values[0])
    if node.op == "ThresholdedRelu":
        return functional.threshold(x, alpha, 0.0)
    calls = {"LeakyRelu": functional.leaky_relu, "Elu": functional.elu, "Celu": functional.celu}
    return calls[node.op](x, alpha)


@operator("PRelu")
def _prelu(node: Node, values: list[Value]) -> Any:
    import torch

    x, slope = tensor(values[0]), tensor(values[1])
    return torch.where(x > 0, x, slope * x)


@operator("HardSigmoid")
def _hard_sigmoid(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    alpha, beta = float(node.get("alpha", 0.2)), float(node.get("beta", 0.5))
    x = tensor(values[0])
    if math.isclose(alpha, 1 / 6, rel_tol=1e-5) and beta == 0.5:
        return functional.hardsigmoid(x)
    return (x * alpha + beta).clamp(0.0, 1.0)


_BINARY: Mapping[str, tuple[str, Any]] = {
    "Add": ("add", np.add), "Sub": ("sub", np.subtract), "Mul": ("mul", np.multiply), "Pow": ("pow", np.power),
    "And": ("logical_and", np.logical_and), "Or": ("logical_or", np.logical_or), "Xor": ("logical_xor", np.logical_xor),
    "Equal": ("eq", np.equal), "Greater": ("gt", np.greater), "Less": ("lt", np.less),
    "GreaterOrEqual": ("ge", np.greater_equal), "LessOrEqual": ("le", np.less_equal),
}  # fmt: skip


@operator(*_BINARY)
def _binary(node: Node, values: list[Value]) -> Any:
    import torch

    name, on_arrays = _BINARY[node.op]
    if light(*values):
        return np.asarray(on_arrays(known(values[0], ""), known(values[1], "")))
    one, other = tensor(values[0]), tensor(values[1])
    if node.op == "Pow":
        return _power(one, values[1]).to(one.dtype)
    return getattr(torch, name)(one, other)


def _power(base: Any, exponent: Value) -> Any:
    import torch

    array = host(exponent)
    if array is not None and array.size == 1:
        return torch.pow(base, float(array.reshape(-1)[0]) if base.is_floating_point() else int(array.reshape(-1)[0]))
    return torch.pow(base, tensor(exponent))


@operator("Div")
def _div(node: Node, values: list[Value]) -> Any:
    import torch

    if light(*values):
        one, other = known(values[0], ""), known(values[1], "")
        whole = all(a.dtype == object or np.issubdtype(a.dtype, np.integer) for a in (one, other))
        return np.asarray(one // other if whole else one / other)
    one, other = tensor(values[0]), tensor(values[1])
    return torch.div(one, other, rounding_mode=None if one.is_floating_point() else "trunc")


@operator("Mod")
def _mod(node: Node, values: list[Value]) -> Any:
    import torch

    if light(*values):
        return np.asarray(known(values[0], "") % known(values[1], ""))
    return (torch.fmod if node.get("fmod", 0) else torch.remainder)(tensor(values[0]), tensor(values[1]))


@operator("Max", "Min", "Sum", "Mean")
def _variadic(node: Node, values: list[Value]) -> Any:
    import functools

    import torch

    if light(*values) and node.op in ("Max", "Min"):
        join = np.maximum if node.op == "Max" else np.minimum
        return np.asarray(functools.reduce(join, [known(v, "") for v in values]))
    pair = {"Max": torch.maximum, "Min": torch.minimum}.get(node.op, torch.add)
    total = functools.reduce(pair, [tensor(v) for v in values])
    return total / len(values) if node.op == "Mean" else total


@operator("Clip")
def _clip(node: Node, values: list[Value]) -> Any:
    low, high = node.get("min"), node.get("max")
    low = _scalar(pick(values, 1)) if pick(values, 1) is not None else low
    high = _scalar(pick(values, 2)) if pick(values, 2) is not None else high
    x = tensor(values[0])
    return x if low is None and high is None else x.clamp(low, high)


def _scalar(value: Value) -> Any:
    array = host(value)
    return tensor(value) if array is None else array.reshape(-1)[0].item()


@operator("Where")
def _where(node: Node, values: list[Value]) -> Any:
    import torch

    if light(*values):
        return np.where(known(values[0], "").astype(bool), known(values[1], ""), known(values[2], ""))
    return torch.where(tensor(values[0]), tensor(values[1]), tensor(values[2]))


@operator("Identity", "Dropout", "StringNormalizer")
def _identity(node: Node, values: list[Value]) -> Any:
    return values[0]


@operator("Cast", "CastLike")
def _cast(node: Node, values: list[Value]) -> Any:
    import torch

    kind = np.dtype(node.get("to", "float32")) if node.op == "Cast" else None
    if kind is not None and light(values[0]):
        array = known(values[0], "")
        return array if array.dtype == object and np.issubdtype(kind, np.integer) else array.astype(kind)
    target = getattr(torch, kind.name) if kind is not None else tensor(values[1]).dtype
    return tensor(values[0]).to(target)


# --- reductions ---------------------------------------------------------------------------------------------------------

_REDUCE: Mapping[str, Callable[[Any, list[int], bool], Any]] = {
    "ReduceMean": lambda x, d, k: x.mean(d, k), "ReduceSum": lambda x, d, k: x.sum(d, k),
    "ReduceMax": lambda x, d, k: x.amax(d, k), "ReduceMin": lambda x, d, k: x.amin(d, k),
    "ReduceL1": lambda x, d, k: x.abs().sum(d, k), "ReduceL2": lambda x, d, k: x.square().sum(d, k).sqrt(),
    "ReduceSumSquare": lambda x, d, k: x.square().sum(d, k), "ReduceLogSum": lambda x, d, k: x.sum(d, k).log(),
    "ReduceLogSumExp": lambda x, d, k: x.logsumexp(d, k),
}  # fmt: skip


@operator(*_REDUCE, "ReduceProd")
def _reduce(node: Node, values: list[Value]) -> Any:
    axes = axes_of(node, values, 1)
    keep = bool(node.get("keepdims", 1))
    if node.op == "ReduceProd" and light(values[0]):
        return np.prod(known(values[0], ""), axis=tuple(axes) if axes else None, keepdims=keep)
    x = tensor(values[0])
    if not axes:
        if node.get("noop_with_empty_axes", 0):
            return x
        axes = list(range(x.dim()))
    if node.op == "ReduceProd":
        for axis in sorted((a % x.dim() for a in axes), reverse=True):
            x = x.prod(axis, keepdim=keep)
        return x
    return _REDUCE[node.op](x, axes, keep)


@operator("ArgMax", "ArgMin")
def _arg(node: Node, values: list[Value]) -> Any:
    x = tensor(values[0])
    axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    last = bool(node.get("select_last_index", 0))  # of equal values; torch takes the first
    x = x.flip(axis) if last else x
    found = (x.argmax if node.op == "ArgMax" else x.argmin)(axis, keep)
    return x.shape[axis] - 1 - found if last else found


@operator("TopK")
def _topk(node: Node, values: list[Value]) -> Any:
    import torch

    count = int(node.attrs["k"]) if "k" in node.attrs else ints(values[1], "k")[0]
    found = torch.topk(tensor(values[0]), count, node.get("axis", -1), bool(node.get("largest", 1)), bool(node.get("sorted", 1)))  # fmt: skip
    return tuple(found)


@operator("CumSum")
def _cumsum(node: Node, values: list[Value]) -> Any:
    if node.get("exclusive", 0) or node.get("reverse", 0):
        raise OnnxOperatorError("CumSum with exclusive or reverse has no torch counterpart")
    return tensor(values[0]).cumsum(ints(values[1], "axis")[0])


@operator("Softmax", "LogSoftmax")
def _softmax(node: Node, values: list[Value]) -> Any:
    import torch

    call = torch.softmax if node.op == "Softmax" else torch.log_softmax
    x = tensor(values[0])
    axis = node.get("axis", -1 if node.opset >= 13 else 1)
    if node.opset >= 13 or axis % x.dim() == x.dim() - 1:
        return call(x, axis)
    shape = x.shape  # before opset 13 all dimensions from axis on were one
    return call(x.flatten(axis % x.dim()), -1).reshape(shape)


@operator("OneHot")
def _one_hot(node: Node, values: list[Value]) -> Any:
    import torch

    depth = int(ints(values[1], "depth")[0])
    off, on = known(values[2], "values").reshape(-1).tolist()
    at = tensor(values[0]).long().unsqueeze(-1)
    places = torch.arange(depth)
    hot = (at == places) | (at == places - depth)  # a number outside [-depth, depth) is no place: all off
    kind = tensor(values[2]).dtype
    made = hot.to(kind) * (on - off) + off
    axis = node.get("axis", -1)
    return made if axis == -1 else made.movedim(-1, axis)


@operator("Einsum")
def _einsum(node: Node, values: list[Value]) -> Any:
    import torch

    return torch.einsum(node.attrs["equation"], *[tensor(v) for v in values])


@operator("MatMul")
def _matmul(node: Node, values: list[Value]) -> Any:
    import torch

    return torch.matmul(tensor(values[0]), tensor(values[1]))


@operator("Gemm")
def _gemm(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    a, b = tensor(values[0]), tensor(values[1])
    c = None if pick(values, 2) is None else tensor(values[2])
    a = a.t() if node.get("transA", 0) else a
    alpha, beta = float(node.get("alpha", 1.0)), float(node.get("beta", 1.0))
    if alpha == beta == 1.0 and node.get("transB", 0) and (c is None or c.dim() == 1):
        return functional.linear(a, b, c)
    product = a @ (b.t() if node.get("transB", 0) else b) * (alpha if alpha != 1.0 else 1)
    return product if c is None else product + (c * beta if beta != 1.0 else c)
