"""Dynamic int8: products of matrices and LSTMs with int8 weights, whose other factor is quantized as it comes.

Products are written in standard operators (opset 11), which ONNX Runtime fuses into one kernel; LSTMs in the operator of
ONNX Runtime's own that every full build has. Convolutions stay float: several versions lack ConvInteger's kernel for
signed weights (pitfall Q-18).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Layer
from edgesdk.quantize._onnx import _edit
from edgesdk.quantize._onnx._arithmetic import symmetric
from edgesdk.quantize._onnx._layers import RECURRENT, Weighted, attribute, behind_broken, is_weight, others, weighted
from edgesdk.quantize._onnx._plan import plain_gemm
from edgesdk.quantize._onnx._result import KEPT, SMALL, Quantized, float_weights, saturation
from edgesdk.quantize._onnx._stored import stored

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    Array = np.ndarray

MICROSOFT = "com.microsoft"
_BEHIND = "a layer before it has weights that aren't numbers; ranges found on the fly would hide what comes of them"
_CONVOLUTION = "a convolution; ONNX Runtime multiplies them in int8 only with fixed ranges (static-int8)"


def quantize(model: ir.Model, keep: frozenset[str], *, per_channel: bool, folded: bool) -> Quantized:
    """Edit the graph in place."""
    inputs: dict[tuple[int, Any], list[Any]] = {}
    places: dict[str, tuple[str, str]] = {}
    found = weighted(model, inner=True)
    broken = behind_broken(model)
    layers = []
    for layer in found:
        if id(layer.node) in broken and layer.name not in keep and not layer.node.op_type.startswith("Conv"):
            why = layer.unfit() or layer.unfit_bias() or _BEHIND
            layers.append(Layer(layer.name, layer.op, "float32", layer.bytes, why))
            continue
        name = str(layer.node.outputs[0].name)
        layers.append(_one(model, layer, keep, inputs, per_channel=per_channel, folded=folded))
        if layers[-1].precision == "int8":
            places[layer.name] = (name, name)
    table = (*layers, *others(model))
    return Quantized(model, table, (*float_weights(table), *saturation(dynamic=True)), places)


def _one(
    model: ir.Model,
    layer: Weighted,
    keep: frozenset[str],
    inputs: dict[tuple[int, Any], list[Any]],
    *,
    per_channel: bool,
    folded: bool,
) -> Layer:
    node = layer.node
    if layer.name in keep:
        return Layer(layer.name, layer.op, "float32", layer.bytes, KEPT)
    if node.op_type.startswith("Conv"):
        return Layer(layer.name, layer.op, "float32", layer.bytes, _CONVOLUTION)
    if reason := layer.unfit():
        return Layer(layer.name, layer.op, "float32", layer.bytes, reason)
    if layer.bytes >= 4 * SMALL and _is_product(layer):
        _product(layer, inputs, per_channel=per_channel)
        return Layer(layer.name, layer.op, "int8", layer.bytes)
    if layer.bytes >= 4 * SMALL and node.op_type == "LSTM" and not attribute(node, "layout", 0):
        _lstm(model, layer)
        return Layer(layer.name, layer.op, "int8", layer.bytes)
    why = f"ONNX Runtime has no dynamic int8 kernel for {node.op_type}; int8 weights, float arithmetic"
    if node.op_type not in (*RECURRENT, "Gather"):
        why = "its weights aren't one matrix on the right; int8 weights, float arithmetic"
    return stored(layer, why, folded=folded)


def _is_product(layer: Weighted) -> bool:
    node = layer.node
    if node.op_type not in ("MatMul", "Gemm") or layer.slots[0] != 1 or not is_weight(node.inputs[1]):
        return False
    return len(layer.array().shape) == 2 and (node.op_type == "MatMul" or plain_gemm(node))


def _product(layer: Weighted, inputs: dict[tuple[int, Any], list[Any]], *, per_channel: bool) -> None:
    """x·W (+ b) → DynamicQuantizeLinear, MatMulInteger, Cast, Mul (, Add): the order that ONNX Runtime's fusion knows."""
    import onnx_ir as ir

    node: Any = layer.node
    graph, value, x = node.graph, node.inputs[1], node.inputs[0]
    home = value.graph
    weight = layer.array()
    weight = weight.T if node.op_type == "Gemm" and attribute(node, "transB", 0) else weight
    whole, scale = symmetric(weight, (1,) if per_channel else ())
    scale = scale.reshape(-1) if per_channel else scale.reshape(())
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    name = str(value.name)
    for place in range(len(node.inputs)):
        node.replace_input_with(place, None)
    _edit.drop_unused(home, value)
    q = _edit.initializer(home, name, whole)
    s = _edit.initializer(home, f"{name}/s", scale)
    a, a_scale, a_zero = _quantized(graph, node, x, inputs)
    total = _edit.insert(graph, node, "MatMulInteger", [a, q, a_zero], name=f"{node.name}/int")
    wide = _edit.insert(
        graph, node, "Cast", [total.outputs[0]], attributes={"to": ir.DataType.FLOAT.value}, name=f"{node.name}/cast"
    )
    unit = _edit.insert(graph, node, "Mul", [a_scale, s], name=f"{node.name}/unit")
    result = _edit.insert(graph, node, "Mul", [wide.outputs[0], unit.outputs[0]], name=f"{node.name}/times")
    if bias is not None:
        result = _edit.insert(graph, node, "Add", [result.outputs[0], bias], name=f"{node.name}/plus")
    _edit.take_place(graph, node, result)


def _quantized(graph: Any, node: Any, x: Any, inputs: dict[tuple[int, Any], list[Any]]) -> list[Any]:
    """The tensor as uint8 with its scale and zero point; once for all that read it."""
    key = (id(graph), x)
    if key not in inputs:
        made = _edit.insert(graph, node, "DynamicQuantizeLinear", [x], num_outputs=3, name=f"{node.name}/dynamic")
        inputs[key] = list(made.outputs)
    return inputs[key]


def _lstm(model: ir.Model, layer: Weighted) -> None:
    """LSTM → com.microsoft.DynamicQuantizeLSTM, whose weights are transposed: [directions, inputs, 4 × hidden]."""
    import numpy as np

    node: Any = layer.node
    tail: list[Any] = []
    given = list(node.inputs) + [None] * (8 - len(node.inputs))
    for number, slot in enumerate(layer.slots):
        value = given[slot]
        home = value.graph
        whole, scale = symmetric(layer.array(number), (0, 1))
        node.replace_input_with(slot, None)
        _edit.drop_unused(home, value)
        name = str(value.name)
        given[slot] = _edit.initializer(home, name, np.ascontiguousarray(whole.transpose(0, 2, 1)))
        scale = scale.reshape(scale.shape[:2])
        tail += [
            _edit.initializer(home, f"{name}/s", scale),
            _edit.initializer(home, f"{name}/z", np.zeros(scale.shape, np.int8)),
        ]
    made = _edit.insert(
        node.graph, node, "DynamicQuantizeLSTM", [*given, *tail], f"{node.name}/int8", domain=MICROSOFT,
        num_outputs=len(node.outputs), attributes={k: v for k, v in node.attributes.items() if k != "layout"},
    )  # fmt: skip
    _edit.take_place(node.graph, node, made)
    model.opset_imports[MICROSOFT] = 1
