"""Weight-only schemes: int8 for everything that has weights, int4 in groups for linear layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Layer
from edgesdk.quantize._onnx import _edit
from edgesdk.quantize._onnx._layers import Weighted, attribute, is_weight, others, weighted
from edgesdk.quantize._onnx._plan import plain_gemm
from edgesdk.quantize._onnx._result import KEPT, SMALL, Quantized, float_weights
from edgesdk.quantize._onnx._stored import stored

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    Array = np.ndarray

INT4_RUNTIME = "1.17"
"""First ONNX Runtime whose CPU has MatMulNBits. The alternative, DequantizeLinear in blocks (opset 21), needs 1.18, an opset
that many graphs can't be converted to, and is only fused into MatMulNBits from 1.20 on."""
_ZERO = 8
_ONLY_LINEAR = "int4 is for linear layers; --quantize weight-int8 takes this one too"


def int8(model: ir.Model, keep: frozenset[str], *, folded: bool) -> Quantized:
    """Store every weight as int8. Edits the graph in place."""
    found = weighted(model, inner=True)
    places = {layer.name: (str(layer.node.outputs[0].name),) * 2 for layer in found}
    layers = [
        Layer(x.name, x.op, "float32", x.bytes, KEPT) if x.name in keep else stored(x, None, folded=folded)
        for x in found
    ]
    table = (*layers, *others(model))
    done = {x.name for x in layers if x.precision == "int8"}
    return Quantized(model, table, float_weights(table), {k: v for k, v in places.items() if k in done})


def int4(model: ir.Model, keep: frozenset[str], group: int) -> Quantized:
    """Linear layers as MatMulNBits with symmetric groups of ``group`` weights along the input. Edits in place."""
    layers = []
    places: dict[str, tuple[str, str]] = {}
    for x in weighted(model, inner=True):
        name = str(x.node.outputs[0].name)
        why = KEPT if x.name in keep else _why_not(x)
        if why is None:
            _blocks(model, x, group)
            places[x.name] = (name, name)
        layers.append(Layer(x.name, x.op, "int4" if why is None else "float32", x.bytes, why))
    table = (*layers, *others(model))
    return Quantized(model, table, float_weights(table), places, INT4_RUNTIME)


def _why_not(layer: Weighted) -> str | None:
    node = layer.node
    if node.op_type not in ("MatMul", "Gemm"):
        return _ONLY_LINEAR
    if layer.slots[0] != 1 or not is_weight(node.inputs[1]) or len(layer.array().shape) != 2:
        return "its weights aren't one matrix on the right"
    if node.op_type == "Gemm" and not plain_gemm(node):
        return "its factors alpha and beta aren't 1, or its input is transposed"
    if reason := layer.unfit():
        return reason
    if layer.bytes < 4 * SMALL:
        return f"has only {layer.bytes // 4} weights, which int4 wouldn't make smaller"
    return None


def _blocks(model: ir.Model, layer: Weighted, group: int) -> None:
    node: Any = layer.node
    graph, value, x = node.graph, node.inputs[1], node.inputs[0]
    home = value.graph
    weight = layer.array()
    rows = weight if node.op_type == "Gemm" and attribute(node, "transB", 0) else weight.T
    packed, scales = pack(rows, group)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    name = str(value.name)
    for place in range(len(node.inputs)):
        node.replace_input_with(place, None)
    _edit.drop_unused(home, value)
    q = _edit.initializer(home, name, packed)
    s = _edit.initializer(home, f"{name}/s", scales)
    sizes = {"K": rows.shape[1], "N": rows.shape[0], "bits": 4, "block_size": group}
    made = _edit.insert(
        graph, node, "MatMulNBits", [x, q, s], f"{node.name}/int4", domain="com.microsoft", attributes=sizes
    )
    if bias is not None:
        made = _edit.insert(graph, node, "Add", [made.outputs[0], bias], name=f"{node.name}/plus")
    _edit.take_place(graph, node, made)
    model.opset_imports["com.microsoft"] = 1


def pack(rows: Array, group: int) -> tuple[Array, Array]:
    """[outputs, inputs] → MatMulNBits' ([outputs, groups, group / 2] uint8, [outputs × groups] float32).

    ``real = scale * (nibble - 8)``; the value of largest size becomes nibble 0, so that all 16 are used. The lower half of
    a byte comes first (docs/ContribOperators.md).
    """
    import numpy as np

    outputs, inputs = rows.shape
    padded = np.pad(rows.astype(np.float32), ((0, 0), (0, -inputs % group))).reshape(outputs, -1, group)
    place = np.abs(padded).argmax(axis=2, keepdims=True)
    scale = (np.take_along_axis(padded, place, 2) / -_ZERO).astype(np.float32)
    scale[scale == 0] = 1
    nibbles = np.clip(np.round(padded / scale) + _ZERO, 0, 15).astype(np.uint8)
    return nibbles[..., ::2] | nibbles[..., 1::2] << 4, scale.reshape(-1)
