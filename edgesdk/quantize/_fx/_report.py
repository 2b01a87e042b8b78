"""What became of each layer, collected while the graph is rewritten."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgesdk.artifacts import Layer
from edgesdk.quantize._fx._graph import Work, op_name
from edgesdk.quantize._fx._normal import NORMS, layer_name
from edgesdk.runtimes._ts_alias import is_state

if TYPE_CHECKING:
    from torch.fx import Node

KEPT = "kept in float for the accuracy of the model"


@dataclass
class Made:
    """Layers by name. The first word on a layer counts: a module that is called twice is one layer.

    Attributes:
        nodes: node that holds the quantized layer's value, by layer.
        tails: node of the float graph that it stands for.
    """

    layers: dict[str, Layer] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    tails: dict[str, str] = field(default_factory=dict)

    def int8(self, name: str, op: str, size: int, why: str | None = None, node: str = "", tail: str = "") -> None:
        self.layers.setdefault(name, Layer(name, op, "int8", size, why))
        if node:
            self.nodes.setdefault(name, node)
            self.tails.setdefault(name, tail)

    def float32(self, name: str, op: str, size: int, why: str) -> None:
        self.layers.setdefault(name, Layer(name, op, "float32", size, why))

    def kept(self, name: str, op: str, size: int) -> None:
        self.float32(name, op, size, KEPT)

    @property
    def quantized(self) -> bool:
        """Whether any weights are int8; those of norms alone are no gain."""
        return any(x.precision == "int8" and x.bytes and x.op not in NORMS for x in self.layers.values())


def fill(made: Made, float_graph: Work, scheme: str) -> tuple[Layer, ...]:
    """All layers in the order of the float graph, those with weights that nobody spoke of included."""
    changing = float_graph.changing()
    targets = {n: str(s.target) for n, s in float_graph.placeholders() if is_state(s) and n not in changing}
    ordered: dict[str, Layer] = {}
    for node in float_graph.graph.nodes:
        if node.op != "call_function":
            continue
        for name, size in _own(node, targets, float_graph):
            known = made.layers.get(name)
            op = op_name(node.target)
            if known is None and size:
                known = Layer(name, op, "float32", size, f"{scheme} has no kernel for {op} here")
            if known is not None:
                ordered.setdefault(name, known)
    for name, layer in made.layers.items():
        ordered.setdefault(name, layer)
    return tuple(ordered.values())


def _own(node: Node, targets: dict[Node, str], work: Work) -> list[tuple[str, int]]:
    """Names under which a node may be spoken of, with the bytes of its weights."""
    from edgesdk.quantize._fx._units import name_of

    if "layer" in node.meta:
        return [(name_of(node), node.meta.get("bytes", 0))]
    found = [(name_of(node), 0)]
    for source in node.all_input_nodes:
        tensor = work.tensor(targets[source]) if source in targets else None
        if tensor is not None and tensor.is_floating_point() and tensor.dim():
            found.append((layer_name(targets[source]), tensor.numel() * 4))
    return found
