"""Static int8 in the form that every runtime of ONNX understands: QuantizeLinear and DequantizeLinear around float nodes.

Activations are unsigned and weights signed: arm64 has kernels for that (core/mlas/lib: qgemm_kernel_udot, convsym), NNAPI
takes nothing else, and so does x86; signed activations ONNX Runtime turns into unsigned ones at load on x86, but not where
a tensor has two readers, and those convolutions then compute in float. Weights use all of ±127: the reduced range that
old x86 CPUs would want costs a bit that phones don't need to give (pitfall Q-22).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Layer, Warn
from edgesdk.quantize._onnx import _edit
from edgesdk.quantize._onnx._arithmetic import Params, bias_integers, least_for_bias, symmetric
from edgesdk.quantize._onnx._layers import Weighted, others, uses, word
from edgesdk.quantize._onnx._observe import Observer, observe
from edgesdk.quantize._onnx._plan import ABSORBED, MOVING, Plan, activations, outlet, plan, weight_axis
from edgesdk.quantize._onnx._result import Quantized, float_weights, saturation, untouched
from edgesdk.quantize._onnx._stored import stored

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from edgesdk.data._store import Sample

    Array = np.ndarray

_INFINITE = "some of its values are infinite or not a number"


def calibrate(model: ir.Model, keep: frozenset[str], samples: Iterable[Sample]) -> Mapping[str, Observer]:
    """Watch every tensor that would become int8.

    Raises:
        InputError: a layer with weights saw nothing, or always the same number (pitfall Q-09).
    """
    made = plan(model, keep)
    seen = observe(model, [str(v.name) for v in made.tensors], samples)
    for node, layer in made.computing.items():
        if layer is None:
            continue
        for value in activations(node):
            watched = seen.get(str(_origin(made, value).name))
            if watched is None or (not watched.seen and watched.finite):
                raise untouched(layer.name, "no numbers reached it")
            if watched.constant:
                raise untouched(layer.name, f"its input was {watched.low:g} everywhere")
    return seen


def quantize(
    model: ir.Model,
    keep: frozenset[str],
    seen: Mapping[str, Observer],
    *,
    observer: str,
    per_channel: bool,
    folded: bool,
) -> Quantized:
    """Edit the graph in place.

    Args:
        seen: what :func:`calibrate` returned for a plan with the same or fewer layers in float.
    """
    infinite = {name for name, o in seen.items() if not o.finite}
    asked = keep
    made, keep = _without_infinite(model, keep, infinite)
    made.left.update({name: _INFINITE for name in made.left if name in keep - asked})
    ranges = {name: o.params(observer) for name, o in seen.items() if o.seen}
    editor = _Editor(model, made, ranges, per_channel)
    editor.work()
    layers = (*_layers(made, editor, folded=folded), *others(model))
    return Quantized(
        model, layers, (*_islands(made), *float_weights(layers), *saturation()),
        editor.places,
    )  # fmt: skip


def _origin(made: Plan, value: Any) -> Any:
    """The tensor whose scale and zero point a moved one shares."""
    maker = value.producer()
    while maker is not None and maker in made.computing and maker.op_type in MOVING:
        value = maker.inputs[0]
        maker = value.producer()
    return value


def _without_infinite(model: ir.Model, keep: frozenset[str], infinite: set[str]) -> tuple[Plan, frozenset[str]]:
    """Nodes that touch tensors with infinities (attention masks) stay float."""
    made = plan(model, keep)
    while True:
        hurt = {
            layer.name if layer else str(node.name)
            for node, layer in made.computing.items()
            if any(str(_origin(made, v).name) in infinite for v in (*activations(node), outlet(made, node)))
        }
        if not hurt:
            return made, keep
        keep = keep | hurt
        made = plan(model, keep)


class _Editor:
    def __init__(self, model: ir.Model, made: Plan, ranges: Mapping[str, Params], per_channel: bool) -> None:
        self.graph = model.graph
        self.made = made
        self.ranges = ranges
        self.per_channel = per_channel
        self.places: dict[str, tuple[str, str]] = {}
        self._number = 0
        self._shared: dict[tuple[str, int, bytes], Any] = {}

    def params(self, value: Any) -> Params:
        return self.ranges[str(_origin(self.made, value).name)]

    def work(self) -> None:
        params = [(value, self.params(value)) for value in self.made.tensors]
        biases = {node: self.params(next(activations(node))) for node, layer in self.made.computing.items() if layer}
        outlets = {node: outlet(self.made, node) for node in self.made.computing}
        names = {node: str(value.name) for node, value in outlets.items()}
        for node, layer in self.made.computing.items():
            if layer is not None:
                self._weights(node, layer, biases[node])
        stored = {id(value): self._tensor(value, p) for value, p in params}
        for node, layer in self.made.computing.items():
            now = stored.get(id(outlets[node]), names[node])
            self.places[layer.name if layer else str(node.name)] = (names[node], now)
        for other in self.made.layers:
            if other.name in self.made.stored:
                name = str(other.node.outputs[0].name)
                self.places[other.name] = (name, name)

    # -- weights ------------------------------------------------------------------------------------------------------

    def _weights(self, node: ir.Node, layer: Weighted, given: Params) -> None:
        axis = weight_axis(layer)
        weight = layer.array()
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        axes = (axis,) if self.per_channel else ()
        floor = None
        if bias is not None:
            floor = least_for_bias(bias.const_value.numpy().reshape(-1), given.scale)  # type: ignore[union-attr]
            floor = floor if self.per_channel else floor.max()
        whole, scale = symmetric(weight, axes, floor)
        scale = scale.reshape(-1) if self.per_channel else scale.reshape(())
        self._constant(node, 1, whole, scale, axis)
        if bias is not None:
            numbers = bias.const_value.numpy().reshape(-1)  # type: ignore[union-attr]
            unit = (scale * given.scale).astype("float32")
            self._constant(node, 2, bias_integers(numbers, unit), unit, 0)

    def _constant(self, node: ir.Node, place: int, whole: Array, scale: Array, axis: int) -> None:
        import numpy as np

        old: Any = node.inputs[place]
        name = str(old.name)
        node.replace_input_with(place, None)
        _edit.drop_unused(self.graph, old)
        key = (name, axis, scale.tobytes())
        if key in self._shared:  # several nodes with one weight
            node.replace_input_with(place, self._shared[key])
            return
        inputs = [_edit.initializer(self.graph, name, whole), _edit.initializer(self.graph, f"{name}/s", scale)]
        if place == 1:  # fusions look for a zero point, except at a bias
            inputs.append(_edit.initializer(self.graph, f"{name}/z", np.zeros(scale.shape, np.int8)))
        attributes = {"axis": axis} if scale.ndim else {}
        made = _edit.insert(
            self.graph, node, "DequantizeLinear", inputs, attributes=attributes, name=f"{inputs[0].name}/dq"
        )
        made.outputs[0].name = f"{inputs[0].name}/f"
        node.replace_input_with(place, made.outputs[0])
        self._shared[key] = made.outputs[0]

    # -- activations --------------------------------------------------------------------------------------------------

    def _tensor(self, value: Any, params: Params) -> str:
        """Put a pair around a tensor; returns the name of its int8-rounded form."""
        import numpy as np

        maker = value.producer()
        hard = maker is not None and (maker in self.made.computing or self._is_activation(maker))
        readers = [u for u in uses(value) if hard or u[0] in self.made.computing]
        out = hard and value.is_graph_output()
        source, following = value, self._next(value)
        if hard and maker not in self.made.computing and _cuts_nothing(maker, params):
            source = maker.inputs[0]
        self._number += 1
        before = self._behind_float(source, following) if not hard and _is_layer(maker) else source
        scale = _edit.initializer(self.graph, f"q{self._number}/s", np.asarray(params.scale, np.float32))
        zero = _edit.initializer(self.graph, f"q{self._number}/z", np.asarray(params.zero, np.uint8))
        name = str(value.name)
        q = _edit.insert(self.graph, following, "QuantizeLinear", [before, scale, zero], name=f"q{self._number}")
        dq = _edit.insert(
            self.graph, following, "DequantizeLinear", [q.outputs[0], scale, zero], name=f"q{self._number}/dq"
        )
        q.outputs[0].name, dq.outputs[0].name = f"{name}/q", f"{name}/dq"
        for user, index in readers:
            if user is not q:
                user.replace_input_with(index, dq.outputs[0])
        if out:
            places = [i for i, v in enumerate(self.graph.outputs) if v is value]
            value.name, dq.outputs[0].name = f"{name}/f", name
            dq.outputs[0].type, dq.outputs[0].shape = value.type, value.shape
            for place in places:
                self.graph.outputs[place] = dq.outputs[0]
        if source is not value:
            self.graph.remove(maker, safe=True)
        return str(dq.outputs[0].name)

    def _behind_float(self, value: Any, following: Any) -> Any:
        """The same numbers, behind a node that keeps ONNX Runtime from computing the layer before it in int8 after all.

        Its WeightBiasQuantization (1.32) rounds the float weight of a Conv, ConvTranspose or Gemm between integers, with one
        scale for all channels. A sum of one term stands in its way, and costs a copy.
        """
        made = _edit.insert(self.graph, following, "Sum", [value], name=f"q{self._number}/float")
        made.outputs[0].type, made.outputs[0].shape = value.type, value.shape
        return made.outputs[0]

    def _is_activation(self, node: ir.Node) -> bool:
        before = node.inputs[0] if node.op_type in ABSORBED else None
        maker = before.producer() if before is not None else None
        return maker is not None and maker in self.made.computing and outlet(self.made, maker) is node.outputs[0]

    def _next(self, value: Any) -> Any:
        """The node behind the one that makes the value; of an input, the first of the graph."""
        maker = value.producer()
        nodes = iter(self.graph)
        if maker is not None:
            next(node for node in nodes if node is maker)
        return next(nodes, None)


_MATRICES = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_FOLLOWERS = frozenset({"Relu", "Clip", "Add", "Sub", "Mul", "Div", "BatchNormalization"})
"""What ONNX Runtime fuses into the layer before it."""


def _is_layer(node: Any) -> bool:
    """Whether a float node is a layer's last: a matrix product, or what may be fused into one."""
    waiting, seen = [node], {None}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op_type in _MATRICES:
            return True
        if node.op_type in _FOLLOWERS:
            waiting += [value.producer() for value in node.inputs if value is not None]
    return False


def _cuts_nothing(node: ir.Node, params: Params) -> bool:
    """Whether int8's own saturation does what the activation does."""
    if node.op_type == "Relu":
        return params.low >= 0
    low, high = (_number(node.inputs[i]) if i < len(node.inputs) else None for i in (1, 2))
    slack = params.scale / 2
    return (low is None or params.low >= low - slack) and (high is None or params.high <= high + slack)


def _number(value: Any) -> float | None:
    return None if value is None else float(value.const_value.numpy().reshape(()))


# -- the table --------------------------------------------------------------------------------------------------------


def _layers(made: Plan, editor: _Editor, *, folded: bool) -> Iterable[Layer]:
    for layer in made.layers:
        if layer.node in made.computing:
            yield Layer(layer.name, layer.op, "int8", layer.bytes, None)
        elif layer.name in made.stored:
            yield stored(layer, made.stored[layer.name], folded=folded)
        else:
            yield Layer(layer.name, layer.op, "float32", layer.bytes, made.left[layer.name])
    for node, found in made.computing.items():
        if found is None:
            yield Layer(str(node.name), word(node), "int8")


def _islands(made: Plan) -> tuple[Warn, ...]:
    if not made.islands:
        return ()
    counts: dict[str, int] = {}
    for node in made.islands:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    listed = ", ".join(f"{n} {op}" for op, n in sorted(counts.items(), key=lambda x: (-x[1], x[0])))
    return (
        Warn(
            "float_islands",
            f"Between int8 layers these compute in float, with a conversion before and after: {listed}.",
        ),
    )
