"""Which tensors become int8 for XNNPACK, layer by layer.

The same patterns as executorch's ``XNNPACKQuantizer`` (1.5.1), written over again since that one can't leave a single
``cat`` in float, quantizes before a ReLU6 (half of the range is lost on what the ReLU6 cuts off), refuses grouped transposed
convolutions and takes masks for activations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edgesdk.quantize._pt2e._finite import BEHIND, behind_broken, unfit, watching
from edgesdk.quantize._pt2e._graph import attribute, scalars_to_tensors
from edgesdk.quantize._pt2e._sites import (
    CONVS,
    ELEMENTWISE,
    LINEAR,
    MASK,
    TRANSPOSED,
    Site,
    constants,
    find_sites,
    short,
)

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

KEPT = "restored to float: int8 costs too much accuracy here"
Mode = Literal["static", "dynamic", "qat"]

ACTIVATION_EPS = 2.0**-16
"""Least scale of activations: the range of a tensor is at least 0.004. XNNPACK takes ratios of scales up to 256."""
WEIGHT_EPS = 2.0**-24
"""Least scale of weights; ``_calibrate.protect_biases`` widens scales that would take a bias out of int32."""


@dataclass(frozen=True)
class Wishes:
    """How to quantize.

    Attributes:
        keep: names of layers that stay float.
        reasons: by name, why a layer stays float though nobody asked for it.
    """

    mode: Mode = "static"
    per_channel: bool = True
    observer: str = "histogram"
    keep: Collection[str] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Annotated:
    """What the annotator did: the layers that become int8, and why others don't; notes on those that differ."""

    sites: list[Site] = field(default_factory=list)
    quantized: list[Site] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)


def quantizer(wishes: Wishes) -> tuple[Any, Annotated]:
    """A torchao ``Quantizer`` for XNNPACK, and what it will have done once ``prepare`` has called it."""
    from edgesdk.runtimes._et_import import import_compiler

    import_compiler()
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer_utils import propagate_annotation
    from torchao.quantization.pt2e.quantizer import Quantizer

    record = Annotated()

    class XnnpackLayers(Quantizer):  # type: ignore[misc]
        def transform_for_annotation(self, model: GraphModule) -> GraphModule:
            return scalars_to_tensors(model) if wishes.mode != "dynamic" else model

        def annotate(self, model: GraphModule) -> GraphModule:
            _Annotator(model, wishes, record).run()
            if wishes.mode != "dynamic":
                propagate_annotation(model)
            return model

        def validate(self, model: GraphModule) -> None:
            """Every annotation is made by this class."""

    return XnnpackLayers(), record


class _Annotator:
    def __init__(self, module: GraphModule, wishes: Wishes, record: Annotated) -> None:
        self._module, self._wishes, self._record = module, wishes, record
        self._fixed = constants(module)
        self._activation = _activation(wishes)
        self._weights: dict[Node, tuple[Node, Node]] = {}
        self._broken = behind_broken(module, self._fixed) if wishes.mode == "dynamic" else set()
        self._read: set[Node] = set()

    def run(self) -> None:
        record = self._record
        record.sites = find_sites(self._module)
        self._read = read_as_integers(record.sites)
        # Operators with weights first: a cat takes over the scale of what feeds it.
        for site in sorted(record.sites, key=lambda s: s.kind == "cat.default"):
            reason = self._reason(site)
            if reason is None:
                self._annotate(site)
                record.quantized.append(site)
            elif self._wishes.mode != "dynamic" or site.kind not in ELEMENTWISE or site.bytes:
                record.why.setdefault(site.name, reason)
            if reason is not None:
                leave(site.node)
        order = {site.node: i for i, site in enumerate(record.sites)}
        record.quantized.sort(key=lambda s: order[s.node])

    def _reason(self, site: Site) -> str | None:
        """Why the layer stays float; None when it is quantized."""
        if site.name in self._wishes.keep:
            return KEPT
        if site.name in self._wishes.reasons:
            return self._wishes.reasons[site.name]
        if reason := unfit(self._module, site, self._fixed):
            return reason
        if self._wishes.mode == "dynamic":
            return self._not_dynamic(site)
        if site.recurrent:
            return "recurrent layers have no static int8 kernels; dynamic-int8 takes them"
        if site.kind in ELEMENTWISE:
            return self._masked(site) or (None if site.node in self._read else "what reads it computes in float")
        if site.kind in CONVS | TRANSPOSED:
            return self._not_convolved(site)
        if site.kind in LINEAR:
            return None if site.weight is not None else "its weight is computed from the input"
        return f"XNNPACK has no int8 kernel for {site.op}"

    def _not_dynamic(self, site: Site) -> str | None:
        if site.kind in ELEMENTWISE:
            return "element-wise operators stay float with dynamic int8"
        if site.kind in LINEAR and site.weight is not None:
            return BEHIND if site.node in self._broken else None
        if site.kind in CONVS | TRANSPOSED:
            return "convolutions stay float with dynamic int8; static-int8 takes them"
        return f"there is no dynamic int8 kernel for {site.op}"

    def _not_convolved(self, site: Site) -> str | None:
        rank = len(self._shape(site))
        if site.weight is None:
            return "its weight is computed from the input"
        if rank > 4:
            return "XNNPACK has no three-dimensional convolution"
        if rank == 3 and site.kind in TRANSPOSED:
            return "its weight is shared with other operators"
        return None

    def _masked(self, site: Site) -> str | None:
        for source in site.node.all_input_nodes:
            if source.op != "get_attr":
                continue
            value = attribute(self._module, str(source.target))
            if value.numel() and float(value.detach().abs().max()) > MASK:
                return f"it works with a mask or a constant beyond {MASK:g}"
        return None

    def _shape(self, site: Site) -> tuple[int, ...]:
        value: Any = site.weight.meta.get("val") if site.weight is not None else None
        if value is None and site.weight is not None and site.weight.op == "get_attr":
            value = attribute(self._module, str(site.weight.target))
        return tuple(value.shape) if value is not None else ()

    def _annotate(self, site: Site) -> None:
        from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

        if site.kind == "cat.default":
            self._annotate_cat(site)
            return
        inputs: dict[Any, Any] = {}
        for source in site.node.all_input_nodes if site.kind in ELEMENTWISE else [site.node.args[0]]:
            inputs[source] = self._activation
        if site.weight is not None:
            inputs[site.weight] = self._weight(site)
        dynamic = self._wishes.mode == "dynamic"
        output = None if dynamic else self._activation
        self._share_shape(site)
        if site.last is site.node:
            _set(site.node, QuantizationAnnotation(inputs, output, _annotated=True))
        else:
            _set(site.node, QuantizationAnnotation(inputs, _annotated=True))
            if not dynamic:
                _set(site.last, QuantizationAnnotation(output_qspec=output, _annotated=True))

    def _share_shape(self, site: Site) -> None:
        """What ``_widen`` put before the layer moves int8 numbers as they are."""
        from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, SharedQuantizationSpec

        before: Any = site.node.args[0]
        if self._wishes.mode == "dynamic" or short(before) != "unsqueeze.default" or len(before.users) != 1:
            return
        shared = SharedQuantizationSpec((before.args[0], before))
        _set(before, QuantizationAnnotation({before.args[0]: self._activation}, shared, _annotated=True))

    def _annotate_cat(self, site: Site) -> None:
        """One scale for everything that is put together, since the copy doesn't compute."""
        from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, SharedQuantizationSpec

        sources: Any = site.node.args[0]
        inputs: dict[Any, Any] = {sources[0]: self._activation}
        shared = SharedQuantizationSpec((sources[0], site.node))
        for source in sources[1:]:
            inputs.setdefault(source, shared)
        _set(site.node, QuantizationAnnotation(inputs, shared, _annotated=True))

    def _weight(self, site: Site) -> Any:
        """A weight that several operators read is quantized once."""
        from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

        weight: Any = site.weight
        if weight in self._weights:
            return SharedQuantizationSpec(self._weights[weight])
        self._weights[weight] = (weight, site.node)
        return _weight(self._wishes, *self._axis(site))

    def _axis(self, site: Site) -> tuple[int | None]:
        """The axis of output channels, or None for one scale in all."""
        if not self._wishes.per_channel:
            return (None,)
        if site.kind not in TRANSPOSED:
            return (0,)
        groups: Any = site.node.args[6] if len(site.node.args) > 6 else 1
        if groups == 1:
            return (1,)
        self._record.why[site.name] = "one scale for the whole weight: its kernel takes none per channel with groups"
        return (None,)


MOVERS = frozenset({
    "view.default", "reshape.default", "flatten.using_ints", "permute.default", "transpose.int", "unsqueeze.default",
    "squeeze.default", "squeeze.dim", "squeeze.dims", "slice.Tensor", "select.int", "expand.default", "contiguous.default",
    "clone.default", "dropout.default", "pad.default", "constant_pad_nd.default", "relu.default", "relu6.default",
    "hardtanh.default", "clamp.default", "max_pool2d.default", "avg_pool2d.default", "adaptive_avg_pool2d.default", "mean.dim",
    "chunk.default", "split.Tensor", "getitem",
})  # fmt: skip
"""Operators that hand integers on, or that stand between a sum and the convolution that reads it."""


def read_as_integers(sites: list[Site]) -> set[Node]:
    """Sums and products whose results a convolution or linear layer reads as int8, by itself or through more of them.

    The rest would be rounded for nothing: the sums of a transformer go into a layer norm, which computes in float, and carry
    what the next layers add to; rounding them cost MiniLM's static int8 eight of a hundred points of cosine similarity.
    """
    kinds = {site.node: site.kind for site in sites}
    found: set[Node] = set()
    for site in reversed(sites):  # readers come later in the graph
        if site.kind == "cat.default" or (site.kind in ELEMENTWISE and _reaches(site.node, kinds, found)):
            found.add(site.node)
    return found


def _reaches(node: Node, kinds: Mapping[Node, str], found: Collection[Node]) -> bool:
    waiting, seen = list(node.users), set()
    while waiting:
        user = waiting.pop()
        if user in seen:
            continue
        seen.add(user)
        if user in found or kinds.get(user, "") in CONVS | LINEAR | TRANSPOSED:
            return True
        if short(user) in MOVERS or getattr(user.target, "__name__", "") == "getitem":
            waiting.extend(user.users)
    return False


def _set(node: Node, annotation: Any) -> None:
    from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

    node.meta[Q_ANNOTATION_KEY] = annotation


def leave(node: Node) -> None:
    """Mark as dealt with: nothing is propagated to it."""
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

    _set(node, QuantizationAnnotation(_annotated=True))


def _activation(wishes: Wishes) -> Any:
    import torch
    from torchao.quantization.pt2e import fake_quantize, observer
    from torchao.quantization.pt2e.quantizer import QuantizationSpec

    kind: Any
    more: dict[str, Any] = {"eps": ACTIVATION_EPS}
    if wishes.mode == "dynamic":
        kind = observer.PlaceholderObserver
    else:
        ranges = observer.HistogramObserver if wishes.observer == "histogram" else observer.MinMaxObserver
        kind = watching(ranges)
        if wishes.mode == "qat":
            kind, more["observer"] = fake_quantize.FakeQuantize, ranges
    return QuantizationSpec(
        dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine,
        is_dynamic=wishes.mode == "dynamic", observer_or_fake_quant_ctr=kind.with_args(**more),
    )  # fmt: skip


def _weight(wishes: Wishes, axis: int | None) -> Any:
    import torch
    from torchao.quantization.pt2e import fake_quantize, observer
    from torchao.quantization.pt2e.quantizer import QuantizationSpec

    if wishes.mode == "qat":  # the weights of the moment, not those of earlier steps
        moving: Any = (
            observer.MovingAverageMinMaxObserver if axis is None else observer.MovingAveragePerChannelMinMaxObserver
        )
        make = fake_quantize.FakeQuantize.with_args(observer=moving, eps=WEIGHT_EPS, averaging_constant=1.0)
    else:
        watch: Any = observer.MinMaxObserver if axis is None else observer.PerChannelMinMaxObserver
        make = watch.with_args(eps=WEIGHT_EPS)
    return QuantizationSpec(
        dtype=torch.int8, quant_min=-127, quant_max=127,
        qscheme=torch.per_tensor_symmetric if axis is None else torch.per_channel_symmetric,
        ch_axis=axis, is_dynamic=False, observer_or_fake_quant_ctr=make,
    )  # fmt: skip


__all__ = ["Annotated", "Mode", "Wishes", "quantizer", "short"]
