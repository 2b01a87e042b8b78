"""The name of a quantized layer, kept at its node through export, decomposition and delegation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._pt2e._sites import Site

if TYPE_CHECKING:
    from torch.fx import GraphModule

_FIELD = "edgesdk.layer"
"""In ``meta["custom"]``, the one place that every step of torch.export and ExecuTorch hands on."""


def mark(module: GraphModule, sites: Iterable[Site]) -> None:
    """Mark the layers' nodes, which keep their names through torchao's conversion."""
    names = {site.node.name: site.name for site in sites}
    for node in module.graph.nodes:
        if node.op == "call_function" and node.name in names:
            node.meta["custom"] = {_FIELD: names[node.name]}


def layer_of(node: Any) -> str | None:
    """The layer that a node, maybe of a later form of the graph, computes."""
    custom = node.meta.get("custom")
    found = custom.get(_FIELD) if isinstance(custom, dict) else None
    return None if found is None else str(found)
