"""What became of each layer, and what the user should know about the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Layer, Warn
from edgesdk.errors import UnsupportedError
from edgesdk.quantize._pt2e._sites import Site, short

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_LARGE = 0.1
"""Share of the original's bytes above which float weights that remain are told."""


def layers_of(
    sites: Iterable[Site], quantized: Iterable[Site], why: Mapping[str, str], precisions: Mapping[str, str]
) -> tuple[Layer, ...]:
    """One entry for each name, in the order of the graph; a weight that several operators read is listed once.

    It is listed as quantized when any of them is: a tied table of words is restored through its linear layer.
    """
    done = {site.node for site in quantized}
    found: dict[str, Layer] = {}
    for site in sites:
        if site.node in done:
            layer = Layer(site.name, site.op, precisions.get(site.name, "int8"), site.bytes, why.get(site.name))
        elif site.name in why:
            layer = Layer(site.name, site.op, "float32", site.bytes, why[site.name])
        else:
            continue
        listed = found.setdefault(site.name, layer)
        if listed.precision == "float32":
            found[site.name] = layer
    return tuple(found.values())


def large_float_weights(layers: Iterable[Layer], total: int) -> list[Warn]:
    """Pitfall Q-16: an int8 file that is hardly smaller, since most of the weights stayed as they were."""
    large = [layer for layer in layers if layer.precision == "float32" and total and layer.bytes > _LARGE * total]
    if not large:
        return []
    large.sort(key=lambda layer: (-layer.bytes, layer.name))
    listed = ", ".join(f"{layer.name} ({layer.op}, {layer.bytes / total:.0%})" for layer in large[:5])
    return [Warn("large_float_weights", f"Large weights stay float32 and keep the file large: {listed}.")]


def float_islands(converted: GraphModule) -> list[Warn]:
    """Operators in float between quantized ones: each costs a conversion in and one out."""
    after = _reached(converted.graph.nodes, _is_dequantize, lambda node: node.all_input_nodes)
    before = _reached(reversed(converted.graph.nodes), _is_quantize, lambda node: list(node.users))
    islands = Counter(
        short(node).partition(".")[0]
        for node in converted.graph.nodes
        if node in after and node in before and _computes(node) and not _sandwiched(node)
    )
    if not islands:
        return []
    listed = ", ".join(f"{name} ×{n}" for name, n in sorted(islands.items(), key=lambda item: (-item[1], item[0])))
    return [
        Warn("float_islands", f"These have no int8 kernel and compute in float between quantized layers: {listed}.")
    ]


def _reached(nodes: Iterable[Node], starts: Any, neighbours: Any) -> set[Node]:
    """Float operators that a start leads to without passing another start."""
    found: set[Node] = set()
    for node in nodes:
        if node.op != "call_function" or _is_dequantize(node) or _is_quantize(node):
            continue
        if any(starts(other) or other in found for other in neighbours(node)):
            found.add(node)
    return found


def _is_dequantize(node: Node) -> bool:
    name = str(node.target)
    return node.op == "call_function" and ".dequantize_per_tensor" in name


def _is_quantize(node: Node) -> bool:
    name = str(node.target)
    return node.op == "call_function" and ".quantize_per_tensor" in name


def _sandwiched(node: Node) -> bool:
    """Dequantized in, quantized out, the weights too: the delegate computes it in int8."""
    sources = [n for n in node.all_input_nodes if n.op != "get_attr"]
    users = [u for n in node.users for u in ([n] if not _fuses(n) else n.users)]
    inside = all("dequantize_" in str(n.target) or _is_int8(n) for n in sources)
    return inside and all(_is_quantize(u) for u in users)


def _is_int8(node: Node) -> bool:
    return any("dequantize_" in str(n.target) for n in node.all_input_nodes) and _fuses(node)


def _fuses(node: Node) -> bool:
    return short(node) in ("relu.default", "hardtanh.default")


_MOVES = frozenset({
    "view", "reshape", "permute", "transpose", "flatten", "squeeze", "unsqueeze", "slice", "select", "expand", "t",
    "contiguous", "clone", "split", "chunk", "unflatten", "dropout", "detach", "alias", "to", "lift_fresh_copy", "movedim",
    "split_with_sizes", "unbind", "relu", "hardtanh",
})  # fmt: skip


def _computes(node: Node) -> bool:
    name = short(node).partition(".")[0]
    return bool(name) and name not in _MOVES and not name.startswith(("sym_", "_assert"))


def nothing_quantized(scheme: str, sites: Iterable[Site], why: Mapping[str, str], better: str) -> UnsupportedError:
    """The error for a model of which nothing could be quantized; an int8 name on a float file would be a lie."""
    kinds = Counter(site.op for site in sites if site.bytes)
    parts = ", ".join(f"{name} ×{n}" for name, n in sorted(kinds.items(), key=lambda item: (-item[1], item[0])))
    reasons = list(dict.fromkeys(why.values()))
    return UnsupportedError(
        "nothing_quantized", f"{scheme} finds nothing in this model that it could quantize.",
        why=f"The layers with weights are: {parts or 'none'}." + (f" {reasons[0][0].upper()}{reasons[0][1:]}." if reasons else ""),
        fix=f"Choose {better}, or --quantize none.",
    )  # fmt: skip
