"""How much noise each layer's quantization makes: both graphs run side by side on samples."""

from __future__ import annotations

import math
import mmap
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk._memory import give_back, relieve
from edgesdk.artifacts import Layer, LayerError
from edgesdk.quantize._onnx._prepare import let_go
from edgesdk.quantize._onnx._result import Quantized
from edgesdk.runtimes._onnx_quant import Probe

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from edgesdk.data._store import Sample

    Array = np.ndarray

Make = Callable[[frozenset[str]], Quantized]
"""Quantizes a fresh copy of the graph, with these layers left in float."""

_ALONE = 64
"""Layers that are tried one by one at most; each takes a load and some runs."""
_ALONE_SAMPLES = 8
_LARGE = 1 << 16
"""Bytes from which a weight is worth a place in a file."""
_BLOCK = 1 << 16
"""Values that are compared at once: in float64, five times, they take far more memory than the tensors."""
_LIMIT = 300.0
"""Decibels beyond which a ratio says nothing; float64 ends there."""


class _Ratio:
    """Signal and noise, summed up."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, wanted: Array, found: Array) -> None:
        one, two = wanted.reshape(-1), found.reshape(-1)
        for begin in range(0, one.size, _BLOCK):
            self._add(one[begin : begin + _BLOCK], two[begin : begin + _BLOCK])

    def _add(self, wanted: Array, found: Array) -> None:
        import numpy as np

        a, b = wanted.astype(np.float64), found.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities of a mask, for one
        self.signal += float((np.where(np.isfinite(a), a, 0) ** 2).sum())
        self.noise += float((np.where(same, 0, b - a) ** 2).sum())

    @property
    def db(self) -> float | None:
        """None when there is no noise at all."""
        if self.noise == 0:
            return None
        if not math.isfinite(self.noise) or self.signal == 0:
            return -_LIMIT
        return max(-_LIMIT, min(_LIMIT, 10 * math.log10(self.signal / self.noise)))


def layer_errors(
    graph: ir.Model,
    make: Make,
    keep: frozenset[str],
    samples: Callable[[int], Iterable[Sample]],
    count: int,
    with_alone: bool,
) -> tuple[LayerError, ...]:
    """The noisiest layer first; ties by name.

    A layer inside a branch can't be watched; its place in the order is that of the model's outputs when it is quantized
    alone.

    Args:
        samples: gives the first N samples.
        count: samples to measure on.
        with_alone: quantize each layer by itself as well; those inside a branch are in any case.
    """
    forget = _to_disk(graph)
    whole = make(keep)
    rows = {layer.name: layer for layer in whole.layers if layer.precision != "float32"}
    watched = {name: place for name, place in whole.places.items() if name in rows}
    pairs = _pairs(graph, whole.graph, watched)
    before, after = Probe(graph, list(pairs)), Probe(whole.graph, list(pairs.values()))
    let_go(whole.graph)  # its weights are in the probe's file
    relieve()
    forget()
    noise = _along(before, after, pairs, samples(count), watched)
    order = sorted(rows, key=lambda name: (_rank(noise.get(name)), name))
    chosen = order[:_ALONE] if with_alone else [name for name in order if name not in noise]  # inside a branch
    few = samples(min(count, _ALONE_SAMPLES))
    alone = _alone(graph, make, whole, chosen, few, forget) if chosen else {}
    made = [_error(rows[name], noise, alone) for name in order]
    return tuple(sorted(made, key=lambda e: (_rank(e.snr_db), e.name)))


def _error(layer: Layer, noise: Mapping[str, float | None], alone: Mapping[str, float | None]) -> LayerError:
    found = alone.get(layer.name)
    return LayerError(layer.name, layer.op, noise.get(layer.name, found), found)


def _rank(snr: float | None) -> float:
    return math.inf if snr is None else snr


def _to_disk(graph: ir.Model) -> Callable[[], None]:
    """Put the large weights into a file that is mapped; the function that is returned lets go of what was read of it."""
    import numpy as np
    import onnx_ir as ir

    large: list[Any] = [v for v in graph.graph.initializers.values() if _movable(v.const_value)]
    with tempfile.TemporaryFile() as file:
        places = []
        for value in large:
            places.append(file.tell())
            file.write(np.ascontiguousarray(value.const_value.numpy()).data)
        file.write(b"\0")  # nothing can't be mapped
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for value, place in zip(large, places, strict=True):
        shape = value.const_value.shape.numpy()
        array = np.frombuffer(mapped, np.float32, math.prod(shape), place).reshape(shape)
        value.const_value = ir.Tensor(array, name=value.name)
    give_back()
    return lambda: mapped.madvise(mmap.MADV_DONTNEED) if hasattr(mmap, "MADV_DONTNEED") else None  # not on Windows


def _movable(tensor: Any) -> bool:
    import onnx_ir as ir

    return tensor is not None and tensor.dtype == ir.DataType.FLOAT and tensor.nbytes >= _LARGE


def _pairs(before: ir.Model, after: ir.Model, places: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Outputs of layers in both graphs, outside of branches."""
    inner = {str(v.name) for node in before.graph for v in node.outputs}
    known = {str(v.name) for node in after.graph for v in node.outputs}
    return {a: b for a, b in places.values() if a in inner and b in known}


def _along(
    before: Probe,
    after: Probe,
    pairs: Mapping[str, str],
    samples: Iterable[Sample],
    places: Mapping[str, tuple[str, str]],
) -> dict[str, float | None]:
    """Decibels at the output of each layer."""
    ratios = {a: _Ratio() for a in pairs}
    with before as one, after as two:
        for sample in samples:
            for (name, wanted), (_, found) in zip(one.run(sample.feed), two.run(sample.feed), strict=True):
                ratios[name].add(wanted, found)
    return {name: ratios[a].db for name, (a, _) in places.items() if a in ratios}


def _alone(
    graph: ir.Model,
    make: Make,
    whole: Quantized,
    names: Sequence[str],
    samples: Iterable[Sample],
    forget: Callable[[], None],
) -> dict[str, float | None]:
    """Decibels at the worst of the model's outputs with one layer quantized at a time."""
    outputs = [str(v.name) for v in graph.graph.outputs]
    feeds = [sample.feed for sample in samples]
    with Probe(graph, outputs) as probe:
        wanted = [dict(probe.run(feed)) for feed in feeds]
    everything = frozenset(layer.name for layer in whole.layers)
    found: dict[str, float | None] = {}
    for name in names:
        one = make(everything - {name})
        if not any(layer.name == name and layer.precision != "float32" for layer in one.layers):
            continue  # an addition, say, that is int8 only between int8 layers
        ratios = {output: _Ratio() for output in outputs}
        with Probe(one.graph, outputs) as probe:
            forget()
            for feed, answer in zip(feeds, wanted, strict=True):
                for output, array in probe.run(feed):
                    ratios[output].add(answer[output], array)
        found[name] = min((r.db for r in ratios.values()), key=_rank)
        del one, probe
        give_back()  # a graph is a cycle
    return found
