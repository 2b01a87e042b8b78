"""int8 for Core ML: which tensors its own quantizer chooses, under our names, with our observers.

``CoreMLQuantizer`` (executorch 1.5.1, after coremltools' ``LinearQuantizer``) knows what Core ML computes in int8: convolutions,
linear layers, additions, products and pooling. Its observers are for training: moving averages behind fake quantization.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._pt2e._annotate import ACTIVATION_EPS, KEPT, WEIGHT_EPS, Annotated, Wishes, leave
from edgesdk.quantize._pt2e._finite import unfit, watching
from edgesdk.quantize._pt2e._graph import attribute
from edgesdk.quantize._pt2e._sites import CONVS, ELEMENTWISE, LINEAR, Site, constants, find_sites, short
from edgesdk.runtimes._et_patch import Swap, swapped

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

SCHEMES = ("static-int8", "weight-int8")
"""What Core ML takes; int8 weights and activations together need iOS 17."""


def quantizer(wishes: Wishes, *, weights_only: bool) -> tuple[Any, Annotated]:
    """A torchao ``Quantizer`` for Core ML, and what it will have done once ``prepare`` has called it."""
    import torch
    from coremltools.optimize.torch import quantization as tools
    from executorch.backends.apple.coreml.quantizer import CoreMLQuantizer

    settings = {
        "quantization_scheme": tools.QuantizationScheme.symmetric,
        "weight_dtype": torch.qint8,
        "weight_per_channel": wishes.per_channel,
        "activation_dtype": torch.float32 if weights_only else torch.quint8,
    }
    chooser = CoreMLQuantizer(tools.LinearQuantizerConfig.from_dict({"global_config": settings}))
    record = Annotated()
    base: Any = CoreMLQuantizer.__mro__[1]

    class CoreMLLayers(base):  # type: ignore[misc]
        def transform_for_annotation(self, model: GraphModule) -> GraphModule:
            _with_biases(model)
            return model

        def annotate(self, model: GraphModule) -> GraphModule:
            with swapped(_shortcuts(model)):
                chooser.annotate(model)
            _settle(model, wishes, record, _Specs(wishes))
            return model

        def validate(self, model: GraphModule) -> None:
            chooser.validate(model)

    return CoreMLLayers(), record


def _settle(module: GraphModule, wishes: Wishes, record: Annotated, specs: _Specs) -> None:
    """Take back what must stay float, and give the rest our observers."""
    fixed = constants(module)
    record.sites = find_sites(module)
    for site in record.sites:
        reason = _reason(module, site, wishes, fixed)
        if reason is None:
            record.quantized.append(site)
            continue
        if site.bytes or site.kind in ELEMENTWISE and site.name in wishes.keep:
            record.why.setdefault(site.name, reason)
        for node in {site.node, site.last}:
            leave(node)
    for node in module.graph.nodes:
        specs.renew(node)


def _reason(module: GraphModule, site: Site, wishes: Wishes, fixed: set[Node]) -> str | None:
    """Why the layer stays float; None when it is quantized."""
    if site.name in wishes.keep:
        return KEPT
    if site.name in wishes.reasons:
        return wishes.reasons[site.name]
    if reason := unfit(module, site, fixed):
        return reason
    found = _annotation(site.node)
    if found is None or not found.input_qspec_map:
        return f"Core ML's quantizer doesn't take this {site.op}"
    return None


def _annotation(node: Node) -> Any:
    return node.meta.get("quantization_annotation")


class _Specs:
    """The same tensors and integers as the chooser's, measured by our observers."""

    def __init__(self, wishes: Wishes) -> None:
        self._histogram = wishes.observer == "histogram"
        self._known: dict[int, Any] = {}

    def renew(self, node: Node) -> None:
        found = _annotation(node)
        if found is None:
            return
        inputs = {source: self._of(spec) for source, spec in found.input_qspec_map.items()}
        node.meta["quantization_annotation"] = replace(
            found, input_qspec_map=inputs, output_qspec=self._of(found.output_qspec)
        )

    def _of(self, spec: Any) -> Any:
        import torch
        from torchao.quantization.pt2e.quantizer import QuantizationSpec

        if not isinstance(spec, QuantizationSpec):
            return spec  # shared with another tensor, or none
        if id(spec) not in self._known:
            axis = 0 if spec.dtype == torch.int8 and "channel" in str(spec.qscheme) else spec.ch_axis
            made = replace(spec, observer_or_fake_quant_ctr=self._observer(spec), ch_axis=axis)
            self._known[id(spec)] = (spec, made)
        return self._known[id(spec)][1]

    def _observer(self, spec: Any) -> Any:
        import torch
        from torchao.quantization.pt2e import observer

        if spec.dtype == torch.int8:  # a weight
            channels = spec.qscheme in (torch.per_channel_symmetric, torch.per_channel_affine)
            kind: Any = observer.PerChannelMinMaxObserver if channels else observer.MinMaxObserver
            return kind.with_args(eps=WEIGHT_EPS)
        kind = watching(observer.HistogramObserver if self._histogram else observer.MinMaxObserver)
        return kind.with_args(eps=ACTIVATION_EPS)


def _with_biases(module: GraphModule) -> None:
    """A bias of zeros where there is none: the chooser knows layers with one only."""
    import torch

    for node in list(module.graph.nodes):
        kind = short(node)
        if kind not in CONVS | LINEAR or (len(node.args) > 2 and node.args[2] is not None):
            continue
        weight: Any = node.args[1]
        if weight.op != "get_attr":
            continue
        name = f"no_bias_of_{node.name}"
        module.register_buffer(name, torch.zeros(len(attribute(module, str(weight.target)))))
        with module.graph.inserting_before(node):
            bias = module.graph.get_attr(name)
        bias.meta["val"] = attribute(module, name)
        node.args = (*node.args[:2], bias, *node.args[3:])
    module.recompile()


_ALSO = {"relu6": "hardtanh", "logsigmoid": "log_sigmoid", "iadd": "add", "imul": "mul"}


def _shortcuts(module: GraphModule) -> list[Swap]:
    """Without them the chooser exports 500 small networks to look for each in the graph: a minute and a half.

    Those with operators that the graph hasn't can't be found. Batch norms are folded before it is asked.
    """
    from executorch.backends.apple.coreml.quantizer import _coreml_quantizer_utils as tools

    present = {short(node).partition(".")[0] for node in module.graph.nodes} - {""}
    plain: Any = {name: getattr(tools, name) for name in _MAKERS + _FINDERS}

    def has(function: Any, in_place: bool = False) -> bool:
        if function is None:
            return True
        name = str(function.__name__)
        return any(n + "_" * in_place in present for n in (name, _ALSO.get(name, name)))

    def conv(conv_dim: int, act_fn: Any = None, act_in_place: bool = False) -> Any:
        wanted = f"conv{conv_dim}d" in present and has(act_fn, act_in_place)
        return plain["get_conv_pattern"](conv_dim, act_fn, act_in_place) if wanted else None

    def linear(act_fn: Any = None, act_in_place: bool = False) -> Any:
        wanted = "linear" in present and has(act_fn, act_in_place)
        return plain["get_linear_pattern"](act_fn, act_in_place) if wanted else None

    def binary(binary_op: Any, act_fn: Any = None, act_in_place: bool = False) -> Any:
        wanted = has(binary_op) and has(act_fn, act_in_place)
        return plain["get_binary_op_act_pattern"](binary_op, act_fn, act_in_place) if wanted else None

    def finding(name: str) -> Any:
        def find(model: Any, pattern: Any, *rest: Any) -> Any:
            return plain[name](model, pattern, *rest) if pattern is not None else []

        return find

    return [
        Swap(tools, "get_conv_pattern", conv),
        Swap(tools, "get_linear_pattern", linear),
        Swap(tools, "get_binary_op_act_pattern", binary),
        Swap(tools, "get_conv_bn_pattern", lambda *_, **__: None),
        Swap(tools, "get_linear_bn_pattern", lambda *_, **__: None),
        *(Swap(tools, name, finding(name)) for name in _FINDERS),
    ]


_MAKERS = ("get_conv_pattern", "get_linear_pattern", "get_binary_op_act_pattern")
_FINDERS = ("annotate_weighted_mod_pattern", "annotate_binary_op_act_pattern")
