"""Operators and multiply-accumulates inside an XNNPACK delegate of a ``.pte``.

Field numbers are those of ``backends/xnnpack/serialization/schema.fbs`` (ExecuTorch 1.5); the header before the graph
is ``XNNHeader`` of ``xnnpack_graph_serialize.py``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from edgesdk.inspection._flatbuffer import Table, root

Shapes = Mapping[int, tuple[int, ...]]

# XNodeUnion, from member 1 on.
_NODES: Final = (
    "Add", "FullyConnected", "Softmax", "Sigmoid", "StaticTranspose", "Clamp", "Conv2d", "Div",
    "StaticResizeBilinear2D", "StaticConstantPad", "AvgPooling2d", "Minimum", "DepthwiseConv2d",
    "MaxPooling2d", "Multiply", "Subtract", "Floor", "Convert", "GlobalAvgPooling2d", "StaticReshape",
    "ArgMaxPooling2d", "SquareRoot", "Ceiling", "Hardswish", "LeakyReLU", "Maximum", "Negate", "Square",
    "ELU", "Abs", "PReLU", "Concatenate2", "Concatenate3", "Concatenate4", "StaticSlice",
    "ScaledDotProductAttention", "BatchMatrixMultiply", "Concatenate5", "ConvTranspose2d",
    "ReciprocalSquareRoot", "Log", "Gelu", "Tanh", "Exp", "Sin", "Copy", "Cos",
)  # fmt: skip
_QUANTIZED = 2  # member of XValueUnion


def nodes(payload: memoryview) -> Iterator[tuple[str, int]]:
    """``("Conv2d", 18432)`` for each node: what it does and its multiply-accumulates at the sizes it was made for.

    Nothing when the payload is of another version.

    Raises:
        Damaged: an offset leads out of it.
    """
    if bytes(payload[4:8]) != b"XH00":
        return
    offset, size = struct.unpack_from("<II", payload, 10)
    graph = root(payload[offset : offset + size])
    shapes = dict(map(_value, graph.tables(2)))
    for node in graph.tables(1):
        kind, content = node.number(0, "B"), node.table(1)
        name = _NODES[kind - 1] if 0 < kind <= len(_NODES) else str(kind)
        rule = _RULES.get(name)
        yield name, rule(content, shapes) if rule and content else 0


def _value(value: Table) -> tuple[int, tuple[int, ...]]:
    tensor = value.table(1)
    if value.number(0, "B") == _QUANTIZED and tensor is not None:
        tensor = tensor.table(0)
    return (tensor.number(6, "I"), tensor.numbers(2, "I")) if tensor else (-1, ())


def _convolution(node: Table, shapes: Shapes) -> int:
    kernel = node.number(4, "I") * node.number(5, "I")
    return math.prod(shapes.get(node.number(18, "I"), (0,))) * kernel * node.number(10, "I")


def _transposed(node: Table, shapes: Shapes) -> int:
    kernel = node.number(4, "I") * node.number(5, "I")
    return math.prod(shapes.get(node.number(15, "I"), (0,))) * kernel * node.number(11, "I")


def _fully_connected(node: Table, shapes: Shapes) -> int:
    weights, out = shapes.get(node.number(1, "I"), (0,)), shapes.get(node.number(3, "I"), ())
    return math.prod(out[:-1]) * math.prod(weights)


def _matrices(node: Table, shapes: Shapes) -> int:
    return math.prod(shapes.get(node.number(2, "I"), (0,))) * (shapes.get(node.number(0, "I")) or (0,))[-1]


_RULES: Final[Mapping[str, Callable[[Table, Shapes], int]]] = {
    "Conv2d": _convolution,
    "DepthwiseConv2d": _convolution,
    "ConvTranspose2d": _transposed,
    "FullyConnected": _fully_connected,
    "BatchMatrixMultiply": _matrices,
}
