"""Weights that are int8 in the file and float in the arithmetic."""

from __future__ import annotations

from typing import Any

from edgesdk.artifacts import Layer
from edgesdk.quantize._onnx import _edit
from edgesdk.quantize._onnx._arithmetic import symmetric
from edgesdk.quantize._onnx._layers import RECURRENT, Weighted, attribute
from edgesdk.quantize._onnx._result import SMALL


def stored(layer: Weighted, why: str | None, *, folded: bool) -> Layer:
    """Store a layer's weights as int8 if that pays, and say what was done."""
    if reason := layer.unfit():
        return Layer(layer.name, layer.op, "float32", layer.bytes, reason)
    if store_layer(layer, folded=folded):
        return Layer(layer.name, layer.op, "int8", layer.bytes, why)
    few = f"has only {layer.bytes // 4} weights, which int8 wouldn't make smaller"
    return Layer(layer.name, layer.op, "float32", layer.bytes, few)


def store_layer(layer: Weighted, *, folded: bool) -> bool:
    """Store the weights of one layer as int8; False when they are too small for it to pay."""
    if layer.bytes < 4 * SMALL:
        return False
    for number, slot in enumerate(layer.slots):
        if layer.node.op_type == "Gather" and _rows(layer):
            _store_table(layer.node)
        elif _still_float(layer.node.inputs[slot]):
            _edit.store_int8(layer.node, slot, _axes(layer, number), folded=folded)
    return True


def _still_float(value: Any) -> bool:
    return value is not None and value.const_value is not None and value.is_initializer()


def _axes(layer: Weighted, number: int) -> tuple[int, ...]:
    """Axes of a weight along which every index has a scale: the outputs'."""
    node, rank = layer.node, len(layer.array(number).shape)
    if node.op_type in RECURRENT:
        return (0, 1)  # direction, row of a gate
    if node.op_type == "ConvTranspose":  # with groups the same output index occurs in each; inputs tell them apart
        return (1,) if attribute(node, "group", 1) == 1 else (0,)
    if node.op_type in ("Conv", "Gather"):
        return (0,)
    if node.op_type == "Gemm":
        flipped = attribute(node, "transB", 0) if layer.slots[0] == 1 else attribute(node, "transA", 0)
        return ((0,) if flipped else (1,)) if layer.slots[0] == 1 else ((1,) if flipped else (0,))
    return tuple(range(rank - 2)) + ((rank - 1,) if layer.slots[0] == 1 else (rank - 2,))


def _rows(layer: Weighted) -> bool:
    """A table of rows, of which a few are read: it stays int8 in memory too."""
    return bool(len(layer.array().shape) == 2 and attribute(layer.node, "axis", 0) == 0)


def _store_table(node: Any) -> None:
    """Fetch the rows and their scales, then multiply: nothing to compute at load, nothing to hold in float."""
    import onnx_ir as ir

    graph, table, places = node.graph, node.inputs[0], node.inputs[1]
    home = table.graph
    name = str(table.name)
    whole, scale = symmetric(table.const_value.numpy(), (0,))
    if len(list(table.uses())) == 1:
        home.initializers.pop(name)
    q, s = _edit.initializer(home, name, whole), _edit.initializer(home, f"{name}/scale", scale)
    name = str(q.name)
    rows = _edit.insert(graph, node, "Gather", [q, places], name=f"{name}/rows")
    cast = _edit.insert(
        graph, node, "Cast", [rows.outputs[0]], attributes={"to": ir.DataType.FLOAT.value}, name=f"{name}/cast"
    )
    scales = _edit.insert(graph, node, "Gather", [s, places], name=f"{name}/scales")
    product = _edit.insert(graph, node, "Mul", [cast.outputs[0], scales.outputs[0]], name=f"{name}/times")
    _edit.take_place(graph, node, product)
