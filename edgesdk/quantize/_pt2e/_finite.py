"""Numbers that int8 can't hold: NaN and infinities would come out as ordinary numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._pt2e._graph import attribute
from edgesdk.quantize._pt2e._sites import CONVS, EMBEDDING, LINEAR, RECURRENT, TRANSPOSED, Site, short

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

LARGEST = 2.0**60
"""Numbers beyond it overflow float32 when observers square them, and XNNPACK refuses the scales that they ask for."""

INFINITE = "some of its values are infinite or not a number"
BEHIND = "a layer before it has weights that aren't numbers; ranges found on the fly would hide what comes of them"
_WEIGHTED = CONVS | TRANSPOSED | LINEAR | RECURRENT | EMBEDDING
_NORMS = ("batch_norm", "_native_batch_norm", "layer_norm", "group_norm", "instance_norm")


def unfit(module: GraphModule, site: Site, fixed: set[Node], *, bias: bool = True) -> str | None:
    """Why int8 can't hold a layer's weights, or its bias; None when it can."""
    if site.weight is None:
        return None
    reach = max((_reach(module, root) for root in _roots(site.node, fixed, bias=bias)), default=0.0)
    if not math.isfinite(reach):
        return "some of its weights or biases are infinite or not a number"
    return f"its weights or biases reach {reach:.0e}" if reach > LARGEST else None


def behind_broken(module: GraphModule, fixed: set[Node]) -> set[Node]:
    """Nodes that NaN can reach from a layer whose weights, biases or statistics aren't all numbers."""
    reached: set[Node] = set()
    for node in module.graph.nodes:
        name = short(node)
        if node in fixed or not name:
            if not reached.isdisjoint(node.all_input_nodes):
                reached.add(node)
            continue
        holds = name in _WEIGHTED or name.partition(".")[0] in _NORMS
        broken = holds and any(not math.isfinite(_reach(module, r)) for r in _roots(node, fixed))
        if broken or not reached.isdisjoint(node.all_input_nodes):
            reached.add(node)
    return reached


def _roots(node: Node, fixed: set[Node], *, bias: bool = True) -> list[Node]:
    found: list[Node] = []
    arguments = node.args if bias else node.args[:2]
    waiting = [a for a in _flat(arguments) if a in fixed]
    while waiting:
        source = waiting.pop()
        if source.op == "get_attr":
            found.append(source)
        waiting.extend(source.all_input_nodes)
    return found


def _flat(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.fx.Node):
        return [value]
    return [n for v in value for n in _flat(v)] if isinstance(value, list | tuple) else []


def _reach(module: GraphModule, node: Node) -> float:
    """Largest size of a constant's numbers; infinite when one isn't finite."""
    import torch

    value = attribute(module, str(node.target))
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return 0.0
    low, high = (float(v) for v in value.detach().aminmax())
    reach = max(-low, high)
    return reach if math.isfinite(low) and math.isfinite(high) else math.inf


def watching(observer: Any) -> Any:
    """The observer's class, with an eye on numbers that it would choke on; those tensors it doesn't see."""
    import torch

    base: Any = observer

    class Watching(base):  # type: ignore[misc]
        unsound = ""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.numel():
                low, high = (float(v) for v in x.detach().aminmax())
                if not (math.isfinite(low) and math.isfinite(high)):
                    self.unsound = INFINITE
                    return x
                if max(-low, high) > LARGEST:
                    self.unsound = self.unsound or f"its values reach {max(-low, high):.0e}"
                    return x
            seen: torch.Tensor = super().forward(x)
            return seen

    Watching.__name__ = base.__name__
    return Watching
