"""Multiply-accumulates of an exported program: convolutions, linear layers and matrix products, biases not counted.

The counts follow from the shapes that ``torch.export`` recorded; a dynamic size counts with its example value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

Shape = tuple[int, ...]


def count(program: ExportedProgram) -> int:
    """All multiply-accumulates of one run; all branches of control flow count."""
    return sum(macs_by_node(program).values())


def macs_by_node(program: ExportedProgram) -> dict[str, int]:
    """Multiply-accumulates by node name; nodes without any are left out.

    Nodes inside branches and loop bodies are called ``true_graph_0.linear``.
    """
    return {name: found for name, node in _nodes(program.graph_module) if (found := macs_of(node))}


def _nodes(module: GraphModule) -> Iterator[tuple[str, Node]]:
    from torch.fx import GraphModule

    for path, part in module.named_modules():
        if isinstance(part, GraphModule):
            yield from ((f"{path}.{node.name}" if path else node.name, node) for node in part.graph.nodes)


def macs_of(node: Node) -> int:
    """Multiply-accumulates of one call to an ATen operator; 0 for all others."""
    if node.op != "call_function":
        return 0
    rule = _RULES.get(str(node.target).split(".")[1] if str(node.target).startswith("aten.") else "")
    return rule(node) if rule else 0


def _shape(value: Any) -> Shape:
    """Shape of a node's (first) result with example sizes."""
    meta = getattr(value, "meta", {}).get("val")
    if isinstance(meta, (list, tuple)):
        meta = meta[0] if meta else None
    return tuple(int(_hint(size)) for size in getattr(meta, "shape", ()))


def _hint(size: Any) -> int:
    """The example value behind a symbolic size; the size itself when it is plain."""
    node = getattr(size, "node", None)
    hint = getattr(node, "hint", None)
    return int(size) if node is None else int(hint) if hint is not None else 1


def _convolution(node: Node) -> int:
    weight, out = _shape(node.args[1]), _shape(node)
    transposed = "transpose" in str(node.target) or (len(node.args) > 6 and node.args[6] is True)
    if transposed:  # every input value meets the whole kernel of one output group
        return math.prod(_shape(node.args[0])) * math.prod(weight[1:])
    return math.prod(out) * math.prod(weight[1:])


def _linear(node: Node) -> int:
    return math.prod(_shape(node)) * _shape(node.args[1])[-1]


def _product(first: int) -> Callable[[Node], int]:
    return lambda node: math.prod(_shape(node)) * (_shape(node.args[first]) or (0,))[-1]


def _einsum(node: Node) -> int:
    """Every value of the result sums over all indices that it doesn't have itself."""
    equation, operands = str(node.args[0]).replace(" ", ""), node.args[1]
    if not isinstance(operands, (list, tuple)) or len(operands) < 2:
        return 0
    given, arrow, made = equation.partition("->")
    words = given.split(",")
    if not arrow:  # implicit: indices that occur once
        made = "".join(c for c in given if given.count(c) == 1 and c.isalpha())
    sizes: dict[str, int] = {}
    for word, operand in zip(words, operands, strict=True):
        head, _, tail = word.partition("...")
        shape = _shape(operand)
        sizes |= dict(zip(head, shape, strict=False))
        sizes |= dict(zip(reversed(tail), reversed(shape), strict=False))
    return math.prod(_shape(node)) * math.prod(n for label, n in sizes.items() if label not in made)


def _vector(node: Node) -> int:
    return math.prod(_shape(node.args[0]))


def _attention(node: Node) -> int:
    query, key, value = (_shape(node.args[i]) for i in range(3))
    scores = math.prod(query[:-1]) * key[-2]
    return scores * (query[-1] + value[-1])


def _recurrent(node: Node) -> int:
    """LSTM, GRU and plain RNN kept whole: every weight matrix meets every time step of every sample."""
    data, weights = node.args[0], node.args[2]
    if not isinstance(weights, (list, tuple)):
        return 0
    steps = math.prod(_shape(data)[:-1])
    return steps * sum(math.prod(_shape(w)) for w in weights if len(_shape(w)) == 2)


_RULES: dict[str, Callable[[Node], int]] = {
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "conv_transpose1d", "conv_transpose2d",
         "conv_transpose3d"),
        _convolution,
    ),
    "linear": _linear,
    "mm": _product(0), "bmm": _product(0), "matmul": _product(0), "addmm": _product(1), "baddbmm": _product(1),
    "einsum": _einsum, "mv": _vector, "dot": _vector,
    "scaled_dot_product_attention": _attention,
    "lstm": _recurrent, "gru": _recurrent, "rnn_tanh": _recurrent, "rnn_relu": _recurrent,
}  # fmt: skip
