"""Batch norms go into the weights of the convolution or linear layer before them, where that computes the same.

torchao folds every one that stands behind such a layer (0.18, ``pt2e/utils.py``): also where somebody else reads the layer's
result or its weights, where a layer without bias is called twice, behind another batch norm, and it fails on weights that are
computed. Whatever is left here stands behind a copy, where torchao doesn't look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._pt2e._graph import attribute, written_buffers
from edgesdk.quantize._pt2e._sites import CONVS, LINEAR, TRANSPOSED, short

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

_EPS = {"batch_norm.default": 7, "_native_batch_norm_legit_no_training.default": 6}
"""Batch norms in evaluation, with the place of the number that is added to the variance."""
_LAYERS = (CONVS | TRANSPOSED | LINEAR) - {"convolution.default"}


@dataclass(frozen=True)
class _Norm:
    """What a batch norm computes: names of its tensors, and the number."""

    tensors: tuple[str | None, ...]
    eps: float


@dataclass(frozen=True)
class _Pair:
    """A layer and the batch norm behind it."""

    layer: Node
    node: Node
    norm: _Norm
    bias: str | None


def fold_norms(module: GraphModule) -> None:
    """Rewrite in place; layers keep the names of their weights."""
    while groups := list(_groups(module)):  # a norm behind a norm comes next
        for weight, pairs in groups:
            _fold(module, weight, pairs)
        module.graph.eliminate_dead_code()
    for node in list(module.graph.nodes):
        if short(node) in _EPS and short(_given(node)) in _LAYERS | {"convolution.default"}:
            _set_apart(module, node)
    module.recompile()


def _given(norm: Node) -> Any:
    return norm.args[0]


def _groups(module: GraphModule) -> Iterator[tuple[str, list[_Pair]]]:
    """Weights that nothing but layers with the same batch norm reads, with those layers."""
    state = frozenset(written_buffers(module))
    found: dict[str, list[_Pair]] = {}
    for node in module.graph.nodes:
        pair = _pair(node, state) if short(node) in _EPS else None
        if pair is not None:
            weight: Any = pair.layer.args[1]
            found.setdefault(str(weight.target), []).append(pair)
    for weight, pairs in found.items():
        layers = {pair.layer for pair in pairs}
        ours = _readers(module, weight) <= layers and len({(pair.norm, pair.bias) for pair in pairs}) == 1
        bias = pairs[0].bias
        if ours and weight not in state and bias not in state and (bias is None or _readers(module, bias) <= layers):
            yield weight, pairs


def _pair(node: Node, state: frozenset[str]) -> _Pair | None:
    """The batch norm with the layer before it; None when they can't be one layer."""
    layer = _given(node)
    if short(layer) not in _LAYERS or layer.kwargs or node.kwargs or len(layer.users) != 1:
        return None
    bias = layer.args[2] if len(layer.args) > 2 else None
    tensors: Any = node.args[1:5]
    constant = all(t is None or (t.op == "get_attr" and t.target not in state) for t in (*tensors, bias))
    if not constant or layer.args[1].op != "get_attr" or layer.args[0] is layer.args[1] or None in tensors[2:]:
        return None
    if short(node) == "batch_norm.default" and node.args[5]:  # in training it takes the batch's own statistics
        return None
    rank = len(layer.args[1].meta["val"].shape)
    if layer.meta["val"].dim() != rank:  # without a batch, or a linear layer on sequences: channels lie elsewhere
        return None
    names = tuple(None if t is None else str(t.target) for t in tensors)
    eps: Any = node.args[_EPS[short(node)]]
    return _Pair(layer, node, _Norm(names, eps), None if bias is None else str(bias.target))


def _readers(module: GraphModule, target: str) -> set[Node]:
    nodes = module.graph.find_nodes(op="get_attr")
    return {user for node in nodes if node.target == target for user in node.users}


def _fold(module: GraphModule, weight: str, pairs: list[_Pair]) -> None:
    import torch

    first = pairs[0]
    gamma, beta, mean, var = (_double(module, name) for name in first.norm.tensors)
    with torch.no_grad():
        factor = (var + first.norm.eps).rsqrt() * (1.0 if gamma is None else gamma)
        old = _double(module, first.bias)
        shift = ((0.0 if old is None else old) - mean) * factor + (0.0 if beta is None else beta)
        scaled = _scaled(first.layer, _double(module, weight), factor)
    dtype = attribute(module, weight).dtype
    _set(module, weight, scaled.to(dtype))
    bias = first.bias or _free(module, f"{weight}_bias")
    _set(module, bias, shift.to(dtype))
    for pair in pairs:
        _rewrite(module, pair, bias)


def _rewrite(module: GraphModule, pair: _Pair, bias: str) -> None:
    layer, graph = pair.layer, module.graph
    if pair.bias is None:
        with graph.inserting_before(layer):
            read = graph.get_attr(bias)
        read.meta["val"] = layer.meta["val"].fake_mode.from_tensor(attribute(module, bias), static_shapes=True)
        layer.args = (*layer.args[:2], read, *layer.args[3:])
    if short(pair.node) == "batch_norm.default":
        pair.node.replace_all_uses_with(layer)
        return
    for item in list(pair.node.users):
        if item.args[1] == 0:  # the others are statistics that nobody reads in evaluation
            item.replace_all_uses_with(layer)
            graph.erase_node(item)


def _scaled(layer: Node, weight: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Each output channel times its factor; transposed convolutions have them in dimension 1, by groups."""
    rest = [1] * (weight.dim() - 2)
    if short(layer) not in TRANSPOSED:
        return weight * factor.reshape(-1, 1, *rest)
    groups: Any = layer.args[6] if len(layer.args) > 6 else 1
    split = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    return (split * factor.reshape(groups, 1, -1, *rest)).reshape(weight.shape)


def _double(module: GraphModule, name: str | None) -> Any:
    return None if name is None else attribute(module, name).detach().double()


def _set(module: GraphModule, name: str, value: torch.Tensor) -> None:
    import torch

    owner, _, leaf = name.rpartition(".")
    place = module.get_submodule(owner)
    if hasattr(place, leaf):
        delattr(place, leaf)  # a constant may be a buffer or a plain attribute
    place.register_parameter(leaf, torch.nn.Parameter(value.contiguous(), requires_grad=False))


def _free(module: GraphModule, name: str) -> str:
    owner, _, leaf = name.rpartition(".")
    while hasattr(module.get_submodule(owner), leaf):
        leaf += "_"
    return f"{owner}.{leaf}" if owner else leaf


def _set_apart(module: GraphModule, norm: Node) -> None:
    import torch

    layer = _given(norm)
    with module.graph.inserting_before(norm):
        between = module.graph.call_function(torch.ops.aten.clone.default, (layer,))
    between.meta = dict(layer.meta)
    norm.update_arg(0, between)
