"""The layers of a graph: nodes that hold weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Layer
from edgesdk.quantize._onnx._names import weight_name
from edgesdk.runtimes._onnx_write import graphs

if TYPE_CHECKING:
    import onnx_ir as ir

# Inputs that can be weights, by operator.
_SLOTS = {
    "Conv": (1,), "ConvTranspose": (1,), "Gemm": (1, 0), "MatMul": (1, 0), "Gather": (0,), "LSTM": (1, 2), "GRU": (1, 2),
    "RNN": (1, 2),
}  # fmt: skip
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_WORDS = {"Gemm": "linear", "Gather": "embedding", "ConvTranspose": "conv_transpose", "GlobalAveragePool": "mean"}


_ARITHMETIC = frozenset(_SLOTS) | {"BatchNormalization", "InstanceNormalization", "LayerNormalization"}
_LARGE = 2**14
"""Bytes of a constant that is worth a line."""


@dataclass(frozen=True)
class Weighted:
    """A node with weights.

    Attributes:
        slots: inputs that are weights.
        name: of the layer, unique in the graph.
        bytes: of the weights in float32.
    """

    node: ir.Node
    slots: tuple[int, ...]
    name: str
    op: str
    bytes: int

    def weight(self, number: int = 0) -> Any:
        """The value (an initializer) in the given slot."""
        return self.node.inputs[self.slots[number]]

    def array(self, number: int = 0) -> Any:
        return self.weight(number).const_value.numpy()

    def unfit(self) -> str | None:
        """Why int8 can't hold the weights: rounding would turn NaN into an ordinary number. None when it can."""
        if all(finite(self.weight(number)) for number in range(len(self.slots))):
            return None
        return "some of its weights are infinite or not a number"

    def unfit_bias(self) -> str | None:
        """Why int32 can't hold the bias; None when it can."""
        if self.node.op_type in RECURRENT or all(map(finite, self.node.inputs[2:3])):
            return None
        return "some of its bias is infinite or not a number"


def weighted(model: ir.Model, *, inner: bool = False) -> list[Weighted]:
    """Every node that holds float32 weights, in the order of the graph; with ``inner`` those inside branches too."""
    found: list[Weighted] = []
    taken: set[str] = set()
    for graph in graphs(model) if inner else (model.graph,):
        for node in graph:
            slots = _weight_slots(node)
            if not slots:
                continue
            first: Any = node.inputs[slots[0]]
            name = weight_name(str(first.name), str(node.name))
            if name in taken:
                name = f"{name}@{node.name}"
            taken.add(name)
            values: list[Any] = [node.inputs[slot] for slot in slots]
            size = sum(value.const_value.nbytes for value in values)
            found.append(Weighted(node, slots, name, word(node), size))
    return found


def finite(value: Any) -> bool:
    """Whether a constant holds numbers only; True for what is computed."""
    import onnx_ir as ir

    tensor = value.const_value if value is not None else None
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or not tensor.size:
        return True
    array = tensor.numpy()
    return math.isfinite(array.min()) and math.isfinite(array.max())


def behind_broken(model: ir.Model) -> frozenset[int]:
    """Ids of the nodes that NaN can reach from a layer whose weights, biases or statistics aren't all numbers.

    Ranges that are found while the model runs would turn it into ordinary numbers.
    """
    reached: set[int] = set()
    for graph in graphs(model):  # a branch comes after the graph around it
        for node in graph:
            makers = [v.producer() for v in node.inputs if v is not None]
            if any(id(m) in reached for m in makers if m is not None) or _is_broken(node):
                reached.add(id(node))
    return frozenset(reached)


def _is_broken(node: ir.Node) -> bool:
    return node.op_type in _ARITHMETIC and not node.domain and not all(map(finite, node.inputs))


def others(model: ir.Model) -> Iterator[Layer]:
    """Large float32 constants that belong to no layer, after the layers were quantized: tables of positions, windows."""
    import onnx_ir as ir

    mine = {id(layer.weight(number)) for layer in weighted(model, inner=True) for number in range(len(layer.slots))}
    for graph in graphs(model):
        for name, value in graph.initializers.items():
            tensor, users = value.const_value, list(value.uses())
            if tensor is None or tensor.dtype != ir.DataType.FLOAT or tensor.nbytes < _LARGE or not users:
                continue
            if id(value) not in mine and not name.endswith(("/s", "/scale")):
                user = users[0][0]
                yield Layer(
                    weight_name(name, name), word(user), "float32", tensor.nbytes, f"a constant of {user.op_type}"
                )


def _weight_slots(node: ir.Node) -> tuple[int, ...]:
    if node.domain:
        return ()
    slots: tuple[int, ...] = tuple(
        s for s in _SLOTS.get(node.op_type, ()) if s < len(node.inputs) and is_weight(node.inputs[s])
    )
    if node.op_type in RECURRENT:
        return slots if len(slots) == 2 else ()
    return slots[:1]


def is_weight(value: Any) -> bool:
    """Whether a value is a float32 matrix (or more) that is known beforehand."""
    import onnx_ir as ir

    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return False
    return value.const_value.dtype == ir.DataType.FLOAT and len(value.const_value.shape) >= 2


def word(node: ir.Node) -> str:
    """What people call an operator: ``conv2d``, ``linear``, ``leaky_relu``."""
    if node.op_type in ("Conv", "ConvTranspose"):
        weight = node.inputs[1]
        rank = len(weight.shape or ()) - 2 if weight is not None and weight.shape is not None else 0
        return _WORDS.get(node.op_type, "conv") + (f"{rank}d" if rank > 0 else "")
    if node.op_type == "MatMul":
        return "linear" if any(is_weight(v) for v in node.inputs) else "matmul"
    if node.op_type in _WORDS:
        return _WORDS[node.op_type]
    if node.op_type.isupper():
        return node.op_type.lower()
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in node.op_type).lstrip("_")


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    found = node.attributes.get(name)
    return default if found is None else found.value


def uses(value: Any) -> Iterator[tuple[Any, int]]:
    """(node, input number) for every use."""
    yield from list(value.uses())
