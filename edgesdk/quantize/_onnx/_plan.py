"""Which nodes compute in int8, and which tensors between them are int8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._onnx._layers import Weighted, attribute, is_weight, uses, weighted
from edgesdk.quantize._onnx._result import KEPT

if TYPE_CHECKING:
    import onnx_ir as ir

INTEGER = frozenset({"Conv", "Gemm", "MatMul"})
"""Operators with weights for which ONNX Runtime's CPU has int8 kernels."""
# Without weights: those with a kernel of their own (docs/OperatorKernels.md, com.microsoft.QLinear*) …
_ARITHMETIC = frozenset({"Add", "Mul", "MatMul", "Concat", "Sigmoid", "LeakyRelu", "AveragePool", "GlobalAveragePool"})
# … and those that only move or choose numbers, for which scale and zero point stay.
MOVING = frozenset(
    {"MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Identity", "Resize"}
)
ABSORBED = frozenset({"Relu", "Clip"})
"""Done by the saturation of int8, when the range of the tensor ends where they cut."""
_SIZES = frozenset({"Shape", "Size", "Constant", "ConstantOfShape"})


@dataclass
class Plan:
    """What to do with a graph.

    Attributes:
        computing: nodes that compute in int8, with their layer where they have weights.
        stored: layers whose weights only are kept in int8, with the reason.
        left: layers that stay float, with the reason.
        tensors: values that become int8, in the order of the graph.
        islands: float nodes between int8 ones.
    """

    computing: dict[ir.Node, Weighted | None] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    layers: list[Weighted] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    islands: list[ir.Node] = field(default_factory=list)


def plan(model: ir.Model, keep: frozenset[str]) -> Plan:
    """Decide from the graph alone; the same graph and names give the same plan."""
    made = Plan(layers=weighted(model, inner=True))
    varied = _varied(model)
    for layer in made.layers:
        if layer.name in keep:
            made.left[layer.name] = KEPT
        elif reason := layer.unfit() or layer.unfit_bias():
            made.left[layer.name] = reason
        elif (why := _why_float(model, layer, varied)) is None:
            made.computing[layer.node] = layer
        else:
            made.stored[layer.name] = why
    _add_arithmetic(model, made, keep)
    _choose_tensors(model, made)
    _find_islands(model, made)
    return made


def _varied(model: ir.Model) -> set[int]:
    """Ids of the values of the outer graph that depend on the numbers that come in, not on their count alone."""
    found = {id(value) for value in model.graph.inputs}
    for node in model.graph:
        inner = bool(node.attributes) and any(a.type.name in ("GRAPH", "GRAPHS") for a in node.attributes.values())
        if inner or (node.op_type not in _SIZES and any(id(v) in found for v in node.inputs)):
            found |= {id(value) for value in node.outputs}
    return found


def _why_float(model: ir.Model, layer: Weighted, varied: set[int]) -> str | None:
    """Why a layer can't compute in int8; None when it can."""
    node = layer.node
    if node.graph is not model.graph:
        return "inside a branch, where no ranges can be measured; int8 weights, float arithmetic"
    if node.op_type not in INTEGER:
        return f"ONNX Runtime has no int8 kernel for {node.op_type}; int8 weights, float arithmetic"
    if layer.slots[0] != 1 or is_weight(node.inputs[0]):
        return "its weights are the first factor; int8 weights, float arithmetic"
    if id(node.inputs[0]) not in varied:
        return "its input is the same for all data; int8 weights, float arithmetic"
    if node.op_type == "MatMul" and len(layer.array().shape) != 2:
        return "a batch of matrices; int8 weights, float arithmetic"
    if node.op_type == "Gemm" and not plain_gemm(node):
        return "its factors alpha and beta aren't 1, or its input is transposed; int8 weights, float arithmetic"
    if len(node.inputs) > 2 and node.inputs[2] is not None and not _bias_of(layer):
        return "its bias is computed; int8 weights, float arithmetic"
    return None


def plain_gemm(node: ir.Node) -> bool:
    """Whether a Gemm is ``x·W + b`` or ``x·Wᵀ + b``."""
    factors = attribute(node, "alpha", 1.0), attribute(node, "beta", 1.0)
    return factors == (1.0, 1.0) and not attribute(node, "transA", 0)


def _bias_of(layer: Weighted) -> bool:
    bias: Any = layer.node.inputs[2]
    if bias.const_value is None or not bias.is_initializer() or bias.is_graph_input():
        return False
    count = layer.array().shape[weight_axis(layer)]
    return tuple(bias.const_value.shape) in ((count,), (1, count))  # a Gemm may also add one number for each row


def weight_axis(layer: Weighted) -> int:
    """The axis of a weight that counts the layer's outputs."""
    node = layer.node
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return len(layer.array().shape) - 1


# -- operators without weights ----------------------------------------------------------------------------------------


def _add_arithmetic(model: ir.Model, made: Plan, keep: frozenset[str]) -> None:
    """Those that lie between int8 nodes: all their inputs come from such, and one of their readers is such."""
    for node in model.graph:
        if node in made.computing or node.domain or node.name in keep:
            continue
        if node.op_type in _ARITHMETIC | MOVING and _fed_by(made, node) and not _interpolates(node):
            made.computing[node] = None
    for node in reversed(list(model.graph)):
        if made.computing.get(node, node) is None and not _read(made, outlet(made, node)):
            del made.computing[node]


def _interpolates(node: ir.Node) -> bool:
    return node.op_type == "Resize" and attribute(node, "mode", "nearest") != "nearest"


def _fed_by(made: Plan, node: ir.Node) -> bool:
    data = list(activations(node))
    return bool(data) and all(_carries(made, value) for value in data)


def activations(node: ir.Node) -> Iterator[Any]:
    """Inputs that are numbers to compute with, not sizes or weights."""
    if node.op_type in MOVING or node.op_type in ("Conv", "Gemm"):
        yield node.inputs[0]
    elif node.op_type == "MatMul":
        yield from (v for v in node.inputs if not is_weight(v))
    else:
        yield from (v for v in node.inputs if v is not None)


def _carries(made: Plan, value: Any) -> bool:
    """Whether a tensor comes out of an int8 node, maybe through an activation that will be absorbed."""
    maker = value.producer()
    if maker is None:
        return False
    if maker.op_type in ABSORBED and maker not in made.computing:
        before = maker.inputs[0]
        maker = before.producer()
        if maker is None or len(list(before.uses())) != 1 or before.is_graph_output():
            return False
    return maker in made.computing


def _read(made: Plan, value: Any) -> bool:
    return any(user in made.computing for user, _ in uses(value))


def outlet(made: Plan, node: ir.Node) -> Any:
    """The tensor in which a node's result is stored: its own, or that of the activation behind it."""
    out = node.outputs[0]
    readers = list(out.uses())
    if node.op_type in MOVING or len(readers) != 1 or out.is_graph_output():
        return out
    user = readers[0][0]
    if user.op_type in ABSORBED and not user.domain and user.graph is node.graph and _is_const(user):
        return user.outputs[0]
    return out


def _is_const(node: ir.Node) -> bool:
    return all(v is None or v.const_value is not None for v in node.inputs[1:])


def _choose_tensors(model: ir.Model, made: Plan) -> None:
    """Inputs of int8 nodes; outputs too, except of products that only float nodes read (their sums stay float)."""
    chosen: dict[int, Any] = {}
    for node in model.graph:
        if node not in made.computing:
            continue
        for value in activations(node):
            chosen.setdefault(id(value), value)
        result = outlet(made, node)
        if node.op_type not in ("Gemm", "MatMul") or _read(made, result):
            chosen.setdefault(id(result), result)
    made.tensors = list(chosen.values())


def _find_islands(model: ir.Model, made: Plan) -> None:
    """Float nodes on a way from one int8 node to another."""
    after: set[int] = set()
    for node in model.graph:
        if node in made.computing or node.op_type in _SIZES:
            continue
        makers = [v.producer() for v in node.inputs if v is not None]
        if any(m is not None and (m in made.computing or id(m) in after) for m in makers):
            after.add(id(node))
    before: set[int] = set()
    for node in reversed(list(model.graph)):
        if id(node) not in after:
            continue
        users = [user for out in node.outputs for user, _ in uses(out)]
        if any(user in made.computing or id(user) in before for user in users):
            before.add(id(node))
    absorbed = {outlet(made, node).producer() for node in made.computing}
    made.islands = [n for n in model.graph if id(n) in before and n not in made.computing and n not in absorbed]
