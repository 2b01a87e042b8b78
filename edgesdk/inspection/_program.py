"""Programs: whatever ``edgesdk.importing`` can turn into a graph, and ``.pt2`` files that it refuses."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.importing._zips import MAX_JSON, damaged, open_members
from edgesdk.inspection import macs

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_OLD_GRAPH = "serialized_exported_program.json"  # torch ≤ 2.7


@dataclass(frozen=True)
class ProgramFacts:
    """What a graph consists of.

    Attributes:
        operators: ``{"aten.conv2d": 2}``, overloads together.
        targets: ``aten::conv2d.padding`` as the schema calls them, with the number of arguments given.
        macs: by operator.
        dtypes: of all tensors in the graph.
    """

    parameters: int
    operators: Mapping[str, int]
    targets: Mapping[str, int]
    macs: Mapping[str, int]
    dtypes: frozenset[str]
    dynamic: bool


def read_program(program: ExportedProgram) -> ProgramFacts:
    """Count over the graph and the branches of its control flow."""
    operators, work = Counter[str](), Counter[str]()
    targets: dict[str, int] = {}
    dtypes: set[str] = set()
    for node in _nodes(program):
        dtypes |= {str(v.dtype).removeprefix("torch.") for v in _values(node) if hasattr(v, "dtype")}
        name = _name(node)
        if node.op != "call_function" or not name:
            continue
        operators[name] += 1
        work[name] += macs.macs_of(node)
        schema = getattr(node.target, "_schema", None)
        if schema is not None:
            full = f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)
            targets[full] = max(targets.get(full, 0), len(node.args))
    return ProgramFacts(
        parameters=sum(p.numel() for p in program.parameters()),
        operators=operators,
        targets=targets,
        macs={name: n for name, n in work.items() if n},
        dtypes=frozenset(dtypes),
        dynamic=bool(program.range_constraints),
    )


def _nodes(program: ExportedProgram) -> Iterator[Any]:
    from torch.fx import GraphModule

    for part in program.graph_module.modules():
        if isinstance(part, GraphModule):
            yield from part.graph.nodes


def _values(node: Any) -> list[Any]:
    value = node.meta.get("val")
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _name(node: Any) -> str:
    """``aten.conv2d``; ``cond`` for control flow; empty for Python's own helpers (``getitem``, sizes)."""
    words = str(node.target).split(".")
    if getattr(node.target, "_schema", None) is not None and len(words) >= 2:
        return f"{words[0]}.{words[1]}"
    return node.target.name() if type(node.target).__module__.startswith("torch._higher_order_ops") else ""


def read_graph_file(path: Path) -> tuple[int, dict[str, int]]:
    """Parameters and operators of a ``.pt2`` that can't be rebuilt (custom operators), from its JSON alone.

    Raises:
        InputError: it is damaged.
    """
    members = open_members(path)
    name = next((n for n in sorted(members.names) if n.startswith("models/") and n.endswith(".json")), _OLD_GRAPH)
    try:
        graph = json.loads(members.read(name, MAX_JSON))["graph_module"]
        operators = Counter(".".join(node["target"].split(".")[2:4]) for node in graph["graph"]["nodes"])
        values = graph["graph"]["tensor_values"]
        specs = [spec["parameter"]["arg"]["name"] for spec in graph["signature"]["input_specs"] if "parameter" in spec]
        sizes = [[size["as_int"] for size in values[name]["sizes"]] for name in specs]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise damaged(path, f"its graph can't be read ({type(exc).__name__}: {exc})") from exc
    return sum(map(math.prod, sizes)), dict(operators)
