"""Which whole numbers an ONNX graph's inputs take: numbers it compares them with, and rows of tables it looks up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from edgesdk.artifacts import TensorSpec

Range = tuple[int, int]
_SAME = frozenset(
    ["Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Transpose", "Flatten", "Expand", "Slice", "Concat", "Tile"]
)


def graph_ranges(proto: Any, specs: Sequence[TensorSpec]) -> dict[str, Range]:
    """Half-open ranges of safe values for the integer inputs, by name."""
    from onnx import numpy_helper

    arrays = {t.name: t for t in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant":
            arrays.update((node.output[0], a.t) for a in node.attribute if a.name == "value")

    def constant(name: str) -> np.ndarray[Any, Any] | None:
        return numpy_helper.to_array(arrays[name]) if name in arrays else None

    found: dict[str, Range] = {}
    for spec in specs:
        if not spec.dtype.startswith(("int", "uint")):
            continue
        bounds = list(_bounds(proto.graph, spec.name, constant, set()))
        low, high = max((b[0] for b in bounds), default=0), min((b[1] for b in bounds), default=0)
        found[spec.name] = (low, high) if low < high else _usual(spec)
    return found


def _usual(spec: TensorSpec) -> Range:
    if spec.dtype == "uint8":
        return (0, 256)
    return (-128, 128) if spec.dtype == "int8" else (0, 2)


def _bounds(graph: Any, name: str, constant: Any, seen: set[str]) -> Iterator[Range]:
    if name in seen:
        return
    seen.add(name)
    for node in graph.node:
        if name not in node.input:
            continue
        if node.op_type in _SAME and node.input[0] == name or node.op_type == "Concat":
            yield from _bounds(graph, node.output[0], constant, seen)
        elif node.op_type == "Equal":
            other = constant(node.input[1] if node.input[0] == name else node.input[0])
            if other is not None and other.size:  # one number, or all numbers of a one-hot code
                yield (int(other.min()), int(other.max()) + 1)
        elif node.op_type == "Gather" and node.input[1] == name:
            table = constant(node.input[0])
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            if table is not None:
                yield (0, int(table.shape[axis]))
        elif node.op_type == "OneHot" and node.input[0] == name:
            depth = constant(node.input[1])
            if depth is not None:
                yield (0, int(depth.reshape(-1)[0]))
