"""A graph ready to be quantized: opset 13, batch norms and scalings folded into weights, every node named."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk._memory import park
from edgesdk.errors import EdgeError, UnsupportedError
from edgesdk.quantize._onnx import _edit, _names
from edgesdk.quantize._onnx._layers import attribute, is_weight
from edgesdk.runtimes import _onnx_quant, _onnx_source
from edgesdk.runtimes._onnx_write import graphs

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from torch.export import ExportedProgram

    Array = np.ndarray

_GROWTH = 1.02
_WORTH_SHARING = 1024
_SMALL_FILE = 4_000_000
_LONG = 40
"""Characters of a name inside the graph."""
PER_CHANNEL_OPSET = 13
"""First opset whose DequantizeLinear takes a scale for each channel."""


def prepare(graph: ir.Model, path: Path, program: ExportedProgram | None) -> ir.Model:
    """Bring the graph into the form that the schemes work on; the one given is used up.

    Raises:
        UnsupportedError: the graph can't be converted to opset 13, or ONNX Runtime doesn't take it.
    """
    from onnx_ir.passes.common import LiftConstantsToInitializersPass

    if graph.opset_imports.get("", PER_CHANNEL_OPSET) < PER_CHANNEL_OPSET:
        _raise_opset(graph, path)
    LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=0)(graph)  # a weight can be 1 × 1
    if program is not None:
        _names.restore(graph, program)
        park(program.state_dict.values())  # that was their last use
    made = _onnx_quant.optimise(graph)
    if made is not graph:
        _share_weights(made)
        if _all_bytes(made) > _GROWTH * _all_bytes(graph) + 2**16:  # constants that were computed can be large
            made = graph
        else:
            let_go(graph)
    _fold_scalings(made)
    _gather_hard_swish(made)
    _names.complete(made)
    _sort_initializers(made)
    return made


def let_go(model: ir.Model) -> None:
    """Free the weights of a graph whose successor has its own."""
    for graph in graphs(model):
        for value in graph.initializers.values():
            value.const_value = None


def _all_bytes(model: ir.Model) -> int:
    values = [v for graph in graphs(model) for v in graph.initializers.values()]
    return sum(v.const_value.nbytes for v in values if v.const_value is not None)


def _share_weights(model: ir.Model) -> None:
    """Weights inside branches move to the graph around them, equal ones once: constants computed there are copies."""
    known: dict[tuple[str, bytes], Any] = {}
    for graph in graphs(model):
        if graph is model.graph:
            continue
        for name, value in list(graph.initializers.items()):
            array = value.const_value.numpy()
            if array.nbytes < _WORTH_SHARING:
                continue
            key = f"{array.dtype}{array.shape}", hashlib.sha256(array.tobytes()).digest()
            if key not in known:
                known[key] = _edit.initializer(model.graph, name, array)
            value.replace_all_uses_with(known[key], replace_graph_outputs=True)
            graph.initializers.pop(name)


def tidy(model: ir.Model) -> None:
    """Drop what the edits left behind: constants without readers, and notes on inner shapes, which the runtime infers.

    TensorFlow's converter gives names of hundreds of characters, which take more room than int8 weights.
    """
    number = 0
    for graph in graphs(model):
        for name, value in list(graph.initializers.items()):
            if not list(value.uses()) and not value.is_graph_output() and not value.is_graph_input():
                graph.initializers.pop(name)
        for node in graph:
            if len(str(node.name)) > _LONG:
                node.name = f"{str(node.name)[:_LONG]}~{number}"
            number += 1
            for value in node.outputs:
                if not value.is_graph_output():
                    value.type = value.shape = None
                    if len(str(value.name)) > _LONG:
                        value.name = f"{str(value.name)[:_LONG]}~{number}"
                    number += 1


def _raise_opset(graph: ir.Model, path: Path) -> None:
    try:
        _onnx_source.convert(graph, PER_CHANNEL_OPSET, path)
    except EdgeError as exc:
        raise UnsupportedError(
            "opset_not_reached", f"{path.name} has opset {graph.opset_imports.get('')} and can't be converted to "
            f"{PER_CHANNEL_OPSET}, the first that has a scale for each channel.",
            why="One of its operators has no form in that version.",
            fix=f"Export it again with opset {PER_CHANNEL_OPSET} or above, or use --quantize fp16.",
        ) from exc  # fmt: skip


def file_bytes(model: ir.Model) -> int:
    """Size of the file that the graph would be; of its weights where nothing else matters."""
    import onnx_ir as ir

    weights = _all_bytes(model)
    return ir.to_proto(model).ByteSize() if weights < _SMALL_FILE else weights


def copy(model: ir.Model) -> ir.Model:
    """A graph that can be edited apart from the first; both hold the same large weights."""
    import onnx_ir as ir

    from edgesdk.runtimes._onnx_stream import split

    proto, large = split(model)
    made: ir.Model = ir.from_proto(proto)
    for name, tensor in large.items():
        made.graph.initializers[name].const_value = tensor
    return made


def _sort_initializers(model: ir.Model) -> None:
    """ONNX Runtime writes them in the order of a hash table."""
    for graph in graphs(model):
        ordered = sorted(graph.initializers.items())
        graph.initializers.clear()
        for _, value in ordered:
            graph.initializers.add(value)


def _gather_hard_swish(model: ir.Model) -> None:
    """``x * clip(x + 3, 0, 6) / 6`` in one operator less for each of two: ``x * HardSigmoid(x)``.

    Paddle and old exporters spell it out; the middle of it would be converted back and forth.
    """
    for node in list(model.graph):
        if node.op_type == "Clip" and not node.domain:
            _gather_one(model.graph, node)


def _gather_one(graph: ir.Graph, clip: ir.Node) -> None:
    add = clip.inputs[0].producer() if clip.inputs[0] is not None else None
    times, divide = _only_reader(clip), None
    divide = _only_reader(times) if times is not None else None
    if (
        add is None
        or times is None
        or divide is None
        or [n.op_type for n in (add, times, divide)] != ["Add", "Mul", "Div"]
    ):
        return
    x = next((v for v in add.inputs if v is not None and _scalar(v) is None), None)
    numbers = [_scalar(v) for v in (*add.inputs, *clip.inputs[1:], divide.inputs[1]) if v is not x]
    if (
        x is None
        or numbers != [3.0, 0.0, 6.0, 6.0]
        or x not in times.inputs
        or divide.inputs[0] is not times.outputs[0]
    ):
        return
    gate = _edit.insert(
        graph, clip, "HardSigmoid", [x], attributes={"alpha": 1 / 6, "beta": 0.5}, name=f"{clip.name}/gate"
    )
    gate.outputs[0].name = f"{gate.name}"
    times.replace_input_with(next(i for i, v in enumerate(times.inputs) if v is clip.outputs[0]), gate.outputs[0])
    _take_over(graph, divide.outputs[0], times.outputs[0])
    graph.remove(divide, safe=True)
    if not list(clip.outputs[0].uses()):
        graph.remove(clip, safe=True)
        if not list(add.outputs[0].uses()) and not add.outputs[0].is_graph_output():
            graph.remove(add, safe=True)


def _only_reader(node: ir.Node) -> ir.Node | None:
    out = node.outputs[0]
    users = list(out.uses())
    return users[0][0] if len(users) == 1 and not out.is_graph_output() else None


def _scalar(value: Any) -> float | None:
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return float(value.const_value.numpy().reshape(())) if value.const_value.size == 1 else None


def _fold_scalings(model: ir.Model) -> None:
    """Convolution, then times or plus a constant: Paddle writes batch norms and biases so. Each would be an island."""
    for node in list(model.graph):
        if node.op_type in ("Conv", "ConvTranspose") and not node.domain and is_weight(node.inputs[1]):
            while _fold_next(model.graph, node):
                pass


def _fold_next(graph: ir.Graph, conv: ir.Node) -> bool:
    out = conv.outputs[0]
    users = list(out.uses())
    if len(users) != 1 or out.is_graph_output():
        return False
    user, place = users[0]
    if user.domain or user.op_type not in ("Mul", "Add", "Div", "Sub") or user.graph is not graph:
        return False
    if user.op_type in ("Div", "Sub") and place != 0:
        return False
    constant = _channels(conv, user.inputs[1 - place])
    if constant is None or not _is_fixed(conv.inputs[2] if len(conv.inputs) > 2 else None):
        return False
    if user.op_type in ("Mul", "Div"):
        _scale(graph, conv, constant if user.op_type == "Mul" else 1 / constant)
    else:
        _shift(graph, conv, constant if user.op_type == "Add" else -constant)
    result = user.outputs[0]
    _take_over(graph, result, out)
    graph.remove(user, safe=True)
    return True


def _take_over(graph: ir.Graph, old: Any, new: Any) -> None:
    """Everything that read ``old`` reads ``new``, also when it is an output of the graph, whose name stays."""
    name = old.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = f"{name}/before"
    new.name = name


def _channels(conv: ir.Node, value: Any) -> Array | None:
    """The constant as one number for each output channel; None when it isn't that."""
    import numpy as np

    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    array = value.const_value.numpy()
    if array.dtype != np.float32:
        return None
    weight = conv.inputs[1].const_value.numpy()  # type: ignore[union-attr]
    count = _outputs(conv, weight)
    if array.size == 1 and array.ndim <= weight.ndim:
        return np.full(count, array.reshape(()), np.float32)
    wanted = (count, *(1,) * (weight.ndim - 2))
    return array.reshape(count) if array.shape in (wanted, (1, *wanted)) else None


def _outputs(conv: ir.Node, weight: Array) -> int:
    groups = attribute(conv, "group", 1)
    return int(weight.shape[0] if conv.op_type == "Conv" else weight.shape[1] * groups)


def _scale(graph: ir.Graph, conv: ir.Node, factor: Array) -> None:
    value = conv.inputs[1]
    weight = value.const_value.numpy()  # type: ignore[union-attr]
    rest = (1,) * (weight.ndim - 2)
    if conv.op_type == "Conv":
        scaled = weight * factor.reshape(-1, 1, *rest)
    else:  # [inputs, outputs of a group, …]; the inputs of a group are neighbours
        groups = attribute(conv, "group", 1)
        split = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        scaled = (split * factor.reshape(groups, 1, -1, *rest)).reshape(weight.shape)
    _set(graph, conv, 1, scaled, str(value.name))  # type: ignore[union-attr]
    if len(conv.inputs) > 2 and conv.inputs[2] is not None:
        bias = conv.inputs[2]
        _set(graph, conv, 2, _known(bias) * factor, str(bias.name))


def _shift(graph: ir.Graph, conv: ir.Node, term: Array) -> None:
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    if bias is None:
        _set(graph, conv, 2, term, f"{conv.name}.bias")
    else:
        _set(graph, conv, 2, _known(bias) + term, str(bias.name))


def _is_fixed(bias: Any) -> bool:
    """Whether a bias is a constant, or missing; it can also be computed."""
    return bias is None or (bias.const_value is not None and bias.is_initializer() and not bias.is_graph_input())


def _known(value: Any) -> Array:
    array: Array = value.const_value.numpy()
    return array


def _set(graph: ir.Graph, node: ir.Node, place: int, array: Array, name: str) -> None:
    """Give the node an initializer of its own; one that others share stays for them."""
    import onnx_ir as ir

    old = node.inputs[place] if place < len(node.inputs) else None
    alone = old is not None and len(list(old.uses())) == 1
    if not alone and name in graph.initializers:
        name = f"{name}@{node.name}"
    made = ir.Value(name=name, const_value=ir.tensor(array.astype("float32"), name=name))
    made.shape, made.dtype = ir.Shape(array.shape), ir.DataType.FLOAT
    if place >= len(node.inputs):
        node.resize_inputs(place + 1)
    node.replace_input_with(place, made)
    if alone and old is not None:
        graph.initializers.pop(str(old.name))
    graph.initializers.add(made)
