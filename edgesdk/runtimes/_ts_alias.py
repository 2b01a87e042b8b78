"""Which inputs a value of an FX graph may share memory with, from the operators' schemas."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

# These return their input as it is in eval mode, which their schemas don't say.
_PASSES_THROUGH = frozenset({
    "aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout", "aten::type_as",
})  # fmt: skip


def is_state(spec: Any) -> bool:
    """Whether an input of the graph is a parameter, buffer or constant of the model."""
    return spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")


def aliases(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The placeholders and attributes that ``node``'s value may share memory with."""
    found: set[torch.fx.Node] = set()
    seen: set[torch.fx.Node] = set()
    todo = [node]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.op in ("placeholder", "get_attr"):
            found.add(current)
        else:
            todo += _sources(current)
    return found


def mutated(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The placeholders and attributes that in-place operators write to."""
    return {source for node in graph.nodes for value in written(node) for source in aliases(value)}


def written(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The arguments that an operator writes to."""
    places = [(a, value) for a, value in _arguments(node) if a.alias_info is not None and a.alias_info.is_write]
    return [found for _, value in places for found in _nodes(value)]


def reads_between_writes(graph: torch.fx.Graph) -> bool:
    """Whether something that a call writes to is also read through a view, or by its first name after a write.

    Such a reader sees what the memory holds at that moment: a conversion put in right behind the value would see something
    older.
    """
    changing = mutated(graph)
    begun: set[torch.fx.Node] = set()
    for node in graph.nodes:
        wrote = written(node)
        if node.op == "call_function" and not wrote and aliases(node) & changing:
            return True
        if begun.intersection(n for n in node.all_input_nodes if node.op == "call_function"):
            return True
        begun |= {source for value in wrote for source in aliases(value)}
    return False


def _sources(node: torch.fx.Node) -> list[torch.fx.Node]:
    schema = getattr(node.target, "_schema", None)
    if schema is None:  # getitem, control flow: anything that goes in may come out
        return list(node.all_input_nodes) if node.target is operator.getitem or _higher_order(node) else []
    if schema.name in _PASSES_THROUGH:
        return list(node.all_input_nodes)
    if all(r.alias_info is None for r in schema.returns):
        return []
    return [n for a, value in _arguments(node) if a.alias_info is not None for n in _nodes(value)]


def _higher_order(node: torch.fx.Node) -> bool:
    import torch

    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _arguments(node: torch.fx.Node) -> list[tuple[Any, Any]]:
    schema = getattr(node.target, "_schema", None)
    if schema is None or node.op != "call_function":
        return []
    pairs = list(zip(schema.arguments, node.args, strict=False))
    return pairs + [(a, node.kwargs[a.name]) for a in schema.arguments if a.name in node.kwargs]


def _nodes(value: Any) -> list[torch.fx.Node]:
    import torch

    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if isinstance(item, torch.fx.Node)]


def keeps_state(program: ExportedProgram) -> bool:
    """Whether a call of the program changes a buffer that the next call reads."""
    if program.graph_signature.buffers_to_mutate:
        return True
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    stored = {n for n, spec in zip(nodes, program.graph_signature.input_specs, strict=True) if is_state(spec)}
    return bool(stored & mutated(program.graph))
