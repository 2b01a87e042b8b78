"""int8 in place of float weights, one tensor after the other.

torchao's ``convert_pt2e(fold_quantize=True)`` keeps the values of all constant nodes until the last one is computed, the
weights dequantized again among them: twice the model in memory for a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgesdk._memory import give_back
from edgesdk.quantize._pt2e._graph import attribute
from edgesdk.quantize._pt2e._sites import constants

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def is_quantize(node: Any) -> bool:
    """Whether the node turns float values into integers."""
    name = str(node.target) if node.op == "call_function" else ""
    return name.startswith(("quantized_decomposed.quantize_per_", "torchao.quantize_affine"))


def fold_weights(module: GraphModule) -> bool:
    """Replace each quantization of a constant by its result, and drop the float values at once.

    Returns:
        whether there was any.
    """
    import torch
    from torchao.quantization.pt2e.constant_fold import replace_node_with_constant

    fixed = constants(module)
    found = [node for node in module.graph.nodes if is_quantize(node) and node in fixed]
    with torch.no_grad():
        for node in found:
            sources = list(node.all_input_nodes)
            replace_node_with_constant(module, node, _value(module, node))
            for source in sources:
                _drop_unread(module, source)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return bool(found)


def _value(module: GraphModule, node: Node) -> Any:
    import torch

    if node.op == "get_attr":
        return attribute(module, str(node.target))
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda source: _value(module, source))
    target: Any = node.target
    return target(*args, **kwargs)


def _drop_unread(module: GraphModule, node: Node) -> None:
    """Erase a constant that nobody reads any more, its tensor too, and what only it read."""
    if node.users:
        return
    sources = list(node.all_input_nodes)
    name = str(node.target)
    module.graph.erase_node(node)
    if node.op == "get_attr" and not any(other.target == name for other in module.graph.find_nodes(op="get_attr")):
        owner, _, leaf = name.rpartition(".")
        delattr(module.get_submodule(owner), leaf)
    for source in sources:
        _drop_unread(module, source)


def strip(prepared: GraphModule) -> None:
    """Let go of the tensors of a graph that was converted: its nodes are still asked for names, its weights are not."""
    for owner in prepared.modules():
        for name in list(owner._parameters):
            owner._parameters[name] = None
        for name in list(owner._buffers):
            owner._buffers[name] = None
    release()


def release() -> None:
    """Give memory of graphs that are done back to the system.

    Both libraries cache a function by its argument, which is the whole graph; and graphs are cycles, so only a collection
    frees their weights.
    """
    import torchao.utils
    from torch.ao.quantization.fx import utils

    found: list[Any] = [
        getattr(utils, "assert_and_get_unique_device", None),
        getattr(torchao.utils, "_assert_and_get_unique_device", None),
    ]
    for cached in found:
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()
    give_back()
