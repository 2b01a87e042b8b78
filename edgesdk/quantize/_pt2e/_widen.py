"""One-dimensional convolutions as two-dimensional ones.

ExecuTorch's own pass does that too late: it takes a float convolution behind a quantized layer for a quantized one and then
gives up on every convolution of the model (executorch 1.5.1, ``conv1d_unsqueeze_pass.py``), and it leaves transposed ones out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._pt2e._graph import attribute
from edgesdk.quantize._pt2e._sites import short

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_TWINS = {
    "conv1d.default": ("conv2d", "default"),
    "conv1d.padding": ("conv2d", "padding"),
    "conv_transpose1d.default": ("conv_transpose2d", "input"),
}
_NUMBERS = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1}


def widen(module: GraphModule, keep: Collection[str]) -> None:
    """Rewrite transposed convolutions and those of ``keep`` in place; ExecuTorch's pass is right about all others.

    Weights keep their names and get a last axis of size one.
    """
    wide: set[str] = set()
    nodes = module.graph.nodes
    # All are chosen before the first is rewritten: a layer that is called twice would be half of each kind.
    for node in [n for n in nodes if short(n) in _TWINS and _replaceable(module, n) and _wanted(n, keep)]:
        _replace(module, node, wide)
    module.graph.eliminate_dead_code()
    module.recompile()


def _wanted(node: Node, keep: Collection[str]) -> bool:
    weight: Any = node.args[1]
    return short(node) == "conv_transpose1d.default" or str(weight.target).removesuffix(".weight") in keep


def _replaceable(module: GraphModule, node: Node) -> bool:
    """The weight is a plain one and only convolutions of one dimension read it."""
    weight: Any = node.args[1]
    if weight.op != "get_attr":
        return False
    twins = [n for n in module.graph.nodes if n.op == "get_attr" and n.target == weight.target]
    return all(short(user) in _TWINS and user.args[1] is twin for twin in twins for user in twin.users)


def _replace(module: GraphModule, node: Node, wide: set[str]) -> None:
    import torch

    aten = torch.ops.aten
    weight: Any = node.args[1]
    if weight.target not in wide:
        _reshape(module, str(weight.target))
        wide.add(str(weight.target))
    name, overload = _TWINS[short(node)]
    names = [a.name for a in node.target._schema.arguments]  # type: ignore[union-attr]
    args = tuple(_two(names[i], value) for i, value in enumerate(node.args))
    kwargs = {key: _two(key, value) for key, value in node.kwargs.items()}
    with module.graph.inserting_before(node):
        before = module.graph.call_function(aten.unsqueeze.default, (node.args[0], -1))
        wider = module.graph.call_function(getattr(getattr(aten, name), overload), (before, *args[1:]), kwargs)
        shape = list(node.meta["val"].shape)
        fixed = all(type(size) is int for size in shape)  # the delegate takes a reshape, not a squeeze
        after = (
            module.graph.call_function(aten.view.default, (wider, shape))
            if fixed
            else module.graph.call_function(aten.squeeze.dim, (wider, -1))
        )
    for new in (before, wider, after):
        new.meta = {k: node.meta[k] for k in ("stack_trace", "nn_module_stack") if k in node.meta}
    source: Any = node.args[0]
    before.meta["val"] = source.meta["val"].unsqueeze(-1)
    wider.meta["val"], after.meta["val"] = node.meta["val"].unsqueeze(-1), node.meta["val"]
    node.replace_all_uses_with(after)
    module.graph.erase_node(node)


def _two(name: str, value: Any) -> Any:
    """``[3]`` as ``[3, 1]``; what is written once for all axes is written out."""
    if name not in _NUMBERS or isinstance(value, str):
        return value
    return [*(value if isinstance(value, list | tuple) else [value])][:1] + [_NUMBERS[name]]


def _reshape(module: GraphModule, target: str) -> None:
    import torch

    value = attribute(module, target)
    owner, _, leaf = target.rpartition(".")
    held = value.detach().unsqueeze(-1)
    setattr(module.get_submodule(owner), leaf, torch.nn.Parameter(held) if _is_parameter(value) else held)
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target == target and "val" in node.meta:
            node.meta["val"] = node.meta["val"].unsqueeze(-1)


def _is_parameter(value: Any) -> bool:
    import torch

    return isinstance(value, torch.nn.Parameter)
