"""How much of a program runs in delegates, and what stayed behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edgesdk.inspection.macs import macs_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class Coverage:
    """Shares of one program.

    Attributes:
        fraction: multiply-accumulates in delegates by all of them; operators when there are none.
        macs: all multiply-accumulates of one run.
        delegates: delegate calls by the delegate's name.
        leftovers: operators outside delegates, with their number.
    """

    fraction: float
    macs: int
    delegates: Mapping[str, int]
    leftovers: Mapping[str, int]


def cover(edge: ExportedProgram) -> Coverage:
    """Count over the edge program that ``to_edge_transform_and_lower`` gave."""
    inside, outside = Counter[str](), Counter[str]()
    delegates: Counter[str] = Counter()
    for module in _modules(edge.graph_module):
        for node in module.graph.nodes:
            lowered = _delegate(module, node)
            if lowered is None:
                _count(node, outside)
                continue
            delegates[lowered.backend_id] += 1
            for part in lowered.original_module.graph_module.graph.nodes:
                _count(part, inside)
    macs = inside.pop(_MACS, 0), outside.pop(_MACS, 0)
    operators = inside.total(), outside.total()
    done, total = (macs[0], sum(macs)) if sum(macs) else (operators[0], sum(operators))
    return Coverage(done / total if total else 0.0, sum(macs), dict(delegates), dict(sorted(outside.items())))


_MACS = ""
"""Key of the multiply-accumulates among the operators' names."""


def operators(edge: ExportedProgram) -> Iterator[Any]:
    """Nodes of the program that call an operator outside of delegates."""
    for module in _modules(edge.graph_module):
        yield from (node for node in module.graph.nodes if name_of(node))


def name_of(node: Any) -> str:
    """``aten::sort.stable`` for a call to an operator, the overload left out when it is the default; else empty."""
    schema = getattr(getattr(node.target, "_op", node.target), "_schema", None)
    if node.op != "call_function" or schema is None:
        return ""
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def _modules(module: Any) -> Iterator[Any]:
    """The graph and the branches of its control flow, not what lies inside delegates."""
    from executorch.exir.graph_module import get_control_flow_submodules

    yield module
    for _, inner, _ in get_control_flow_submodules(module):
        yield from _modules(inner)


def _delegate(module: Any, node: Any) -> Any | None:
    from executorch.exir.delegate import executorch_call_delegate

    if node.op != "call_function" or node.target is not executorch_call_delegate:
        return None
    return getattr(module, node.args[0].target)


def _count(node: Any, into: Counter[str]) -> None:
    name = name_of(node)
    if not name or name.startswith("aten::sym_"):
        return
    into[name] += 1
    # The counter of the inspection reads ATen names; an edge operator prints itself differently.
    twin = SimpleNamespace(
        op=node.op, target=f"{name.replace('::', '.')}", args=node.args, kwargs=node.kwargs, meta=node.meta
    )
    into[_MACS] += macs_of(twin)  # type: ignore[arg-type]
