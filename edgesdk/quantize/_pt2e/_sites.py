"""The places of a graph that can be quantized, named as users know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._pt2e._graph import attribute, written_buffers

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

CONVS = frozenset({
    "conv1d.default", "conv1d.padding", "conv2d.default", "conv2d.padding", "conv3d.default", "conv3d.padding",
    "convolution.default",
})  # fmt: skip
TRANSPOSED = frozenset({"conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input"})
LINEAR = frozenset({"linear.default"})
CELLS = frozenset({"lstm_cell.default", "gru_cell.default", "rnn_tanh_cell.default", "rnn_relu_cell.default"})
RECURRENT = frozenset({"lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"}) | CELLS
EMBEDDING = frozenset({"embedding.default", "embedding_bag.padding_idx"})
ELEMENTWISE = frozenset({"add.Tensor", "mul.Tensor", "cat.default"})
ACTIVATIONS = frozenset({"relu.default", "hardtanh.default"})

MASK = 1e4
"""Constants beyond it are masks (-1e4, -1e9), not activations: 255 steps over such a range leave nothing of the rest."""


@dataclass(frozen=True)
class Site:
    """One layer in the graph.

    Attributes:
        node: the operator.
        last: the activation that is fused into it, else the operator: its result is what gets quantized.
        name: path of the weight without ``.weight``; without weights the module's path and the node's name.
        weight: the node that gives the weight; None for operators without one.
        bytes: of the weights that the layer reads.
    """

    node: Node
    last: Node
    name: str
    op: str
    weight: Node | None
    bytes: int

    @property
    def kind(self) -> str:
        return short(self.node)

    @property
    def recurrent(self) -> bool:
        return self.kind in RECURRENT


def short(node: Node) -> str:
    """``conv2d.default`` for a call to an ATen operator; empty for anything else."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.name.startswith("aten::"):
        return ""
    return str(getattr(node.target, "__name__", ""))


def find_sites(module: GraphModule) -> list[Site]:
    """Every layer with weights of rank two and more, and the operators without weights that have int8 kernels."""
    fixed, state = constants(module), frozenset(written_buffers(module))
    return [site for node in module.graph.nodes if node not in fixed and (site := _site(module, node, fixed, state))]


def constants(module: GraphModule) -> set[Node]:
    """Nodes whose values follow from weights alone; what a call writes to is none."""
    found: set[Node] = set()
    state = frozenset(written_buffers(module))
    for node in module.graph.nodes:
        sources = node.all_input_nodes
        if (node.op == "get_attr" and node.target not in state) or (
            node.op == "call_function" and sources and found.issuperset(sources)
        ):
            found.add(node)
    return found


def _site(module: GraphModule, node: Node, fixed: set[Node], state: frozenset[str]) -> Site | None:
    kind = short(node)
    if not kind:
        return None
    weights = [w for w in _roots(node, fixed) if w.target not in state and _matters(module, w)]
    size = sum(_bytes(module, w) for w in weights)
    if kind in ELEMENTWISE:
        return Site(node, _fused(node), path_of(node), _word(kind), None, size) if _is_float(node) else None
    if not weights:
        return None
    names = [str(w.target) for w in weights]
    name = _common(names) if kind in RECURRENT else names[0].removesuffix(".weight")
    return Site(node, _fused(node), name, _word(kind), _weight_of(node, fixed), size)


def _word(kind: str) -> str:
    return kind.partition(".")[0]


def _roots(node: Node, fixed: set[Node]) -> list[Node]:
    """``get_attr`` nodes behind the operator's constant arguments."""
    found: dict[Node, None] = {}
    waiting = [source for source in reversed(node.all_input_nodes) if source in fixed]
    while waiting:
        source = waiting.pop()
        if source.op == "get_attr":
            found[source] = None
        waiting.extend(reversed(source.all_input_nodes))
    return list(found)


def _matters(module: GraphModule, node: Node) -> bool:
    import torch

    value = attribute(module, str(node.target))
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 1


def _bytes(module: GraphModule, node: Node) -> int:
    return int(attribute(module, str(node.target)).numel()) * 4


def _weight_of(node: Node, fixed: set[Node]) -> Node | None:
    """The argument that is the weight: the second of convolutions and linear layers, the first of embeddings."""
    index = 0 if short(node) in EMBEDDING else 1
    value: Any = node.args[index] if len(node.args) > index else None
    return value if value in fixed else None


def _common(names: list[str]) -> str:
    """``encoder.lstm`` of ``encoder.lstm.weight_ih_l0, encoder.lstm.weight_hh_l0…``"""
    return names[0].rpartition(".")[0] or names[0]


def path_of(node: Node) -> str:
    """The module's path and the node's name: ``layers.0.add_3``."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    for prefix in ("L['self'].", "L['self']", "self."):
        path = path.removeprefix(prefix)
    return f"{path}.{node.name}" if path else str(node.name)


def _fused(node: Node) -> Node:
    """The activation that XNNPACK computes within the operator before it."""
    users = list(node.users)
    if len(users) == 1 and short(users[0]) in ACTIVATIONS and short(node) != "cat.default":
        return users[0]
    return node


def _is_float(node: Node) -> bool:
    import torch

    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    return all(isinstance(v, torch.Tensor) and v.dtype == torch.float32 for v in values)
