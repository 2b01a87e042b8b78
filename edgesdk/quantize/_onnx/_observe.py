"""Ranges of activations from samples that stream by. Memory doesn't grow with their number (pitfall Q-19)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgesdk.quantize._onnx._arithmetic import HIGH, LOW, Params, affine
from edgesdk.runtimes._onnx_quant import Probe

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from edgesdk.data._store import Sample

    Array = np.ndarray

_BINS = 8192
_ELEMENTS = 2**18
"""Elements of one tensor of one sample that enter the histogram, evenly spread; extremes are taken from all."""


class Observer:
    """Extremes and a histogram over ±limit, where the limit is a power of two that doubles as values grow.

    Doubling adds up neighbouring bins, so nothing is lost but resolution, and one pass over the samples is enough.
    """

    def __init__(self) -> None:
        import numpy as np

        self.low, self.high = np.inf, -np.inf
        self.finite = True
        self._limit = 0.0
        self._found: Params | None = None
        self._counts: Array = np.zeros(_BINS, np.int64)

    @property
    def seen(self) -> bool:
        return self.low <= self.high

    @property
    def constant(self) -> bool:
        return self.low == self.high

    def add(self, array: Array) -> None:
        import numpy as np

        if not array.size:
            return
        flat = array.reshape(-1)
        low, high = float(flat.min()), float(flat.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            self.finite = False
            return
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._widen(max(-low, high, 1e-30))
        part = flat[:: -(-flat.size // _ELEMENTS)].astype(np.float64)
        places = ((part + self._limit) * (_BINS / (2 * self._limit))).astype(np.int64)
        self._counts += np.bincount(np.minimum(places, _BINS - 1), minlength=_BINS)

    def _widen(self, reach: float) -> None:
        import numpy as np

        if not self._limit:
            self._limit = float(2.0 ** np.ceil(np.log2(reach)))
        while self._limit < reach:
            half = self._counts.reshape(-1, 2).sum(1)
            self._counts = np.pad(half, _BINS // 4)
            self._limit *= 2

    def params(self, kind: str) -> Params:
        """Scale and zero point: of the extremes (``minmax``), or with the least squared error (``histogram``)."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        if kind == "minmax" or self.constant:
            return affine(low, high)
        if self._found is None:
            self._found = self._search(low, high)
        return self._found

    def _search(self, low: float, high: float) -> Params:
        import numpy as np

        used = np.flatnonzero(self._counts)
        values = (used + 0.5) * (2 * self._limit / _BINS) - self._limit
        return _least_error(values, self._counts[used], low, high)


def _least_error(values: Array, counts: Array, low: float, high: float) -> Params:
    """Shrink both ends together, then each alone; measured, never beyond the extremes."""
    import numpy as np

    steps = np.linspace(1.0, 0.2, 33)
    best = min(((low * s, high * s) for s in steps), key=lambda r: _error(values, counts, *r))
    lows = min(((low * s, best[1]) for s in steps), key=lambda r: _error(values, counts, *r))
    best = min((best, lows), key=lambda r: _error(values, counts, *r))
    highs = min(((best[0], high * s) for s in steps), key=lambda r: _error(values, counts, *r))
    return affine(*min((best, highs), key=lambda r: _error(values, counts, *r)))


def _error(values: Array, counts: Array, low: float, high: float) -> float:
    import numpy as np

    p = affine(low, high)
    integers = np.clip(np.round(values / p.scale) + p.zero, LOW, HIGH)
    return float((p.scale * (integers - p.zero) - values) ** 2 @ counts)


def observe(graph: ir.Model, names: Sequence[str], samples: Iterable[Sample]) -> Mapping[str, Observer]:
    """Run the float graph on every sample and watch the tensors.

    Raises:
        InputError: a sample isn't what the graph takes.
    """
    observers = {name: Observer() for name in names}
    with Probe(graph, names) as probe:
        for sample in samples:
            for name, array in probe.run(sample.feed):
                observers[name].add(array)
    return observers
