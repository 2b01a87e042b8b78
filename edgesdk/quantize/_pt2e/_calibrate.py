"""Let samples stream through the observers, and see that every one of them saw something (pitfalls Q-09, Q-19)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model
from edgesdk.data import Sample, Store
from edgesdk.errors import InputError
from edgesdk.quantize._pt2e import _graph as graphs
from edgesdk.quantize._pt2e._sites import Site, constants

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_BIAS_STEPS = 2.0**28
"""A bias becomes an int32 in units of (input scale × weight scale); an eighth of int32's range is left to the sums."""

HUGE = 1e6
"""An element-wise operator whose tensors reach this far works with masks; no activation of a trained net does."""


FAINT = 2.0**-16 * 32
"""Values that stay below have fewer than 32 steps to each side: ``_annotate.ACTIVATION_EPS`` is the least scale."""


def opened(calibration: Path | None) -> Store:
    """The store of calibration samples.

    Raises:
        InputError: there is none, or it holds no samples.
    """
    store = Store(calibration) if calibration is not None else None
    if store is None or len(store) == 0:
        raise InputError(
            "no_calibration", "Static int8 needs calibration samples, and there are none.",
            why="The ranges of activations are measured on real inputs." if store is None else "The data set is empty.",
            fix="Give some hundreds of typical inputs: --calibration FOLDER or --calibration FILE.npz.",
        )  # fmt: skip
    return store


def observe(prepared: GraphModule, model: Model, samples: Iterator[Sample]) -> int:
    """Run the samples one by one; only the observers' ranges and histograms are kept.

    A model with state sees each sample twice, afresh and with the state that all samples before it left: on the first call
    alone, what reads the state would see zeros.

    Returns:
        the number of samples.
    """
    program: Any = model.program
    state = {name: graphs.attribute(prepared, name).clone() for name in graphs.written_buffers(prepared)}
    carried = {name: value.clone() for name, value in state.items()}
    count = 0
    for sample in samples:
        leaves = graphs.leaves_of(model, sample.feed)
        graphs.call(prepared, program, leaves)
        if state:
            reset(prepared, carried)
            graphs.call(prepared, program, leaves)
            carried = {name: graphs.attribute(prepared, name).clone() for name in state}
            reset(prepared, state)
        count += 1
    return count


def reset(module: GraphModule, state: dict[str, Any]) -> None:
    """Set the buffers that a call writes to back."""
    for name, value in state.items():
        graphs.attribute(module, name).copy_(value)


def fixed_values(prepared: GraphModule) -> dict[Node, Any]:
    """Values of all nodes that follow from weights alone; computing them shows the weights to their observers.

    State is left alone, and with it what writes to it: a counter would begin at one.
    """
    import torch

    values: dict[Node, Any] = {}
    state = frozenset(graphs.written_buffers(prepared))
    with torch.no_grad():
        for node in prepared.graph.nodes:
            if node.op == "get_attr" and str(node.target) not in state:
                values[node] = graphs.attribute(prepared, str(node.target))
            elif node.all_input_nodes and all(source in values for source in node.all_input_nodes):
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                called: Any = prepared.get_submodule(str(node.target)) if node.op == "call_module" else node.target
                if node.op in ("call_module", "call_function"):
                    values[node] = called(*args, **kwargs)
    return values


def check_observers(prepared: GraphModule, sites: list[Site]) -> None:
    """Raises:
    InputError: a quantized layer with weights saw no data, or the same number only (pitfall Q-09).
    """
    fixed = _fixed(prepared)
    for site in sites:
        source: Any = site.node.args[0]
        if site.weight is None or source in fixed:
            continue
        observer = observer_of(prepared, source)
        if observer is None or not hasattr(observer, "min_val"):
            continue
        if not observer.min_val.numel() or float(observer.min_val) > float(observer.max_val):
            raise _untouched(site, "saw no data at all")
        if float(observer.min_val) == float(observer.max_val):
            raise _untouched(site, f"saw nothing but the number {float(observer.min_val):g}")


def _untouched(site: Site, what: str) -> InputError:
    return InputError(
        "observer_untouched", f"The layer '{site.name}' ({site.op}) {what} during calibration.",
        why="Its range can't be measured: the samples are blank or all alike, or the branch it lies in is dead.",
        fix="Give calibration samples that differ, as the model will meet them; or keep the layer in float.",
        details={"layer": site.name},
    )  # fmt: skip


def unsound(prepared: GraphModule, sites: list[Site]) -> dict[str, str]:
    """Layers that met numbers which int8 can't hold, with the reason."""
    found: dict[str, str] = {}
    for site in sites:
        for node in (*site.node.all_input_nodes, *site.last.users):
            reason = str(getattr(observer_of(prepared, node), "unsound", ""))
            if reason:
                found.setdefault(site.name, reason)
    return found


def faint(prepared: GraphModule, sites: list[Site]) -> dict[str, str]:
    """Layers whose tensors are so small that the least scale leaves them few steps or none, with the reason."""
    found: dict[str, str] = {}
    for site in sites:
        given = [n for n in site.node.all_input_nodes if n is not site.node.args[1] or site.weight is None]
        for node in (*given, *site.last.users):
            observer = observer_of(prepared, node)
            if observer is None or not getattr(observer, "min_val", _NOTHING).numel():
                continue
            reach = max(abs(float(observer.min_val.min())), abs(float(observer.max_val.max())))
            if 0 < reach < FAINT:
                found.setdefault(site.name, f"its values reach {reach:.1e} only, too little for int8's least scale")
    return found


def masked(prepared: GraphModule, sites: list[Site]) -> dict[str, str]:
    """Element-wise operators that turned out to work with masks, with the reason."""
    found: dict[str, str] = {}
    for site in sites:
        if site.weight is not None:
            continue
        for node in (*site.node.all_input_nodes, *site.last.users):
            observer = observer_of(prepared, node)
            if observer is None or not getattr(observer, "min_val", _NOTHING).numel():
                continue
            reach = max(abs(float(observer.min_val)), abs(float(observer.max_val)))
            if reach > HUGE:
                found[site.name] = f"its values reach {reach:.3g}, as masks do"
    return found


class _Nothing:
    def numel(self) -> int:
        return 0


_NOTHING = _Nothing()


def observer_of(prepared: GraphModule, node: Any) -> Any | None:
    """The observer that the node calls; None for other nodes."""
    if getattr(node, "op", "") != "call_module":
        return None
    found = prepared.get_submodule(str(node.target))
    return getattr(found, "activation_post_process", found)  # of a fake quantization


def _fixed(prepared: GraphModule) -> set[Node]:
    """Constants and what observes them."""
    found = constants(prepared)
    for node in prepared.graph.nodes:
        if node.op == "call_module" and node.all_input_nodes and found.issuperset(node.all_input_nodes):
            found.add(node)
    return found


def protect_biases(prepared: GraphModule, sites: list[Site]) -> None:
    """Widen the scale of channels whose weights are so small that their bias would not fit into an int32.

    A channel of zeros (pruned, or behind a batch norm of weight zero) has the least scale that there is.
    """
    import torch

    for site in sites:
        bias: Any = site.node.args[2] if len(site.node.args) > 2 else None
        watch = observer_of(prepared, site.node.args[0])
        weights = observer_of(prepared, site.node.args[1]) if site.weight is not None else None
        if bias is None or bias.op != "get_attr" or watch is None or weights is None:
            continue
        if not hasattr(watch, "calculate_qparams") or not hasattr(weights, "max_val") or not weights.max_val.numel():
            continue
        scale = watch.calculate_qparams()[0].detach()
        values = graphs.attribute(prepared, str(bias.target)).detach().abs()
        least = 127.0 * values / (_BIAS_STEPS * scale)
        least = least if weights.max_val.dim() else least.max()
        if least.shape == weights.max_val.shape:
            weights.max_val.copy_(torch.maximum(weights.max_val, least))


_MOST = 2.0**8
_LEAST = {"add.Tensor": 2.0**-10, "mul.Tensor": 2.0**-16}


def refused(prepared: GraphModule, sites: list[Site]) -> dict[str, str]:
    """Layers whose scales XNNPACK would refuse when the file is loaded, with the reason (pitfall Q-15).

    It multiplies sums by (input scale × weight scale / output scale), which must be below 256; of additions and products
    the ratio has a lower end too (XNNPACK's ``src/operators``: convolution-nhwc.c, fully-connected-nc.c, binary-elementwise-nd.c).
    """
    scales = _Scales(prepared)
    found: dict[str, str] = {}
    for site in sites:
        out = next((s for s in map(scales.of, site.last.users) if s), None)
        given = [s for s in map(scales.of, site.node.all_input_nodes) if s]
        if out is None or not given or site.kind == "cat.default":
            continue
        if site.weight is not None:
            given = [given[0] * scales.largest(site.node.args[1])]
        elif site.kind == "mul.Tensor":
            given = [given[0] * given[-1]]
        ratios = [g / out for g in given]
        if max(ratios) >= _MOST or min(ratios) < _LEAST.get(site.kind, 0.0):
            worst = max(ratios) if max(ratios) >= _MOST else min(ratios)
            found[site.name] = (
                f"its results are too far in size from what goes in for XNNPACK (ratio of scales {worst:.1e})"
            )
    return found


class _Scales:
    def __init__(self, prepared: GraphModule) -> None:
        self._prepared = prepared
        self._known: dict[int, float] = {}

    def of(self, node: Any) -> float | None:
        """The largest scale of what observes a tensor; None where nothing does."""
        watch = observer_of(self._prepared, node)
        if watch is None or not getattr(watch, "min_val", _NOTHING).numel():
            return None
        if id(watch) not in self._known:
            self._known[id(watch)] = float(watch.calculate_qparams()[0].max())
        return self._known[id(watch)]

    def largest(self, weight: Any) -> float:
        return self.of(weight) or 1.0
