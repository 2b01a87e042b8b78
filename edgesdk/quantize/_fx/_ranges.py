"""The range of every value that is to be quantized, from histograms that stream over the samples (Q-19).

``torch.ao``'s histogram observer searches 2048 steps in Python for each value; with cumulative sums the squared error of
every range is one look-up, so all pairs of a grid are tried. Both minimize the same thing: the squared error of rounding
inside the range plus that of clipping outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

LEVELS = 255  # steps of 8 bits
LARGEST = 2.0**100
"""Values beyond it are taken for infinite: scales made of them leave float32."""
_LEAST_SCALE = 1e-8
_BINS = 4096  # at most; at least half as many
_SEEN = 65536  # elements of one tensor that enter the histogram; its extremes are exact
_ROOM = 1.25
_GRID = 64  # ranges tried on each side


@dataclass(frozen=True)
class QParams:
    """value = scale × (stored - zero_point), stored in 0…255."""

    scale: float
    zero_point: int


class Histogram:
    """Counts of a value's elements in bins whose width is a power of two, so that bins merge without error."""

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.seen = 0
        self.finite = True
        self.zeros = 0
        self._width = 0.0
        self._begin = 0  # number of the first bin
        self._counts = np.zeros(0, np.int64)

    @property
    def constant(self) -> bool:
        return self.seen > 0 and self.low == self.high

    def add(self, tensor: torch.Tensor) -> None:
        flat = tensor.detach().reshape(-1).float()  # NumPy has no bfloat16
        if not flat.numel():
            return
        low, high = float(flat.min()), float(flat.max())
        if not (math.isfinite(low) and math.isfinite(high)) or max(-low, high) > LARGEST:
            self.finite = False
            return
        self.seen += flat.numel()
        self.low, self.high = min(self.low, low), max(self.high, high)
        step = flat.numel() // _SEEN + 1
        some = flat[:: step | 1].numpy()  # an odd step meets every column of a picture
        self._count(some[some != 0])
        self.zeros += int((some == 0).sum())

    def _count(self, values: np.ndarray) -> None:
        span = self.high - self.low
        if span <= 0 or not values.size:
            return
        if not self._width:
            self._width = 2.0 ** math.ceil(math.log2(max(span, 1e-30) / _BINS))
        while span / self._width > _BINS:
            self._coarsen()
        first, last = math.floor(self.low / self._width), math.floor(self.high / self._width)
        self._cover(first, last)
        where = np.floor(values / self._width).astype(np.int64) - self._begin
        self._counts += np.bincount(where, minlength=len(self._counts))

    def _coarsen(self) -> None:
        self._width *= 2
        if not len(self._counts):
            return
        counts = self._counts
        if self._begin % 2:
            counts = np.concatenate([[0], counts])
        if len(counts) % 2:
            counts = np.concatenate([counts, [0]])
        self._begin //= 2
        self._counts = counts.reshape(-1, 2).sum(1)

    def _cover(self, first: int, last: int) -> None:
        if not len(self._counts):
            self._begin, self._counts = first, np.zeros(last - first + 1, np.int64)
            return
        before, after = max(self._begin - first, 0), max(last - (self._begin + len(self._counts) - 1), 0)
        if before or after:
            self._counts = np.pad(self._counts, (before, after))
            self._begin -= before

    def params(self, observer: str, floor: float = -math.inf, ceiling: float = math.inf) -> QParams:
        """Scale and zero point.

        Args:
            observer: ``histogram`` or ``minmax``.
            floor, ceiling: what lies beyond makes no difference to who reads the value.
        """
        low, high = max(min(self.low, 0.0), floor), min(max(self.high, 0.0), ceiling)
        if observer == "histogram" and len(self._counts):
            low, high = self._best(low, high)
        return affine(low, high)

    @property
    def faint(self) -> bool:
        """Values that vary, yet by less than 255 of the least steps: they would all be rounded to a few numbers or to zero."""
        return 0 < max(self.high, 0.0) - min(self.low, 0.0) < LEVELS * _LEAST_SCALE

    def roomy(self) -> QParams:
        """Parameters for a value that leaves as it is: results beyond those of the samples aren't clipped at once.

        A quarter more on each side costs 2 dB of a step that is fine already; clipping the largest scores of 256 digits
        cost 10 dB on those that came later.
        """
        return affine(_ROOM * self.low, _ROOM * self.high)

    def _best(self, low: float, high: float) -> tuple[float, float]:
        middles = (np.arange(len(self._counts)) + self._begin + 0.5) * self._width
        middles = np.clip(middles, low, high)
        counts = self._counts.astype(np.float64)
        portions = np.arange(_GRID // 4, _GRID + 1) / _GRID
        lows = low * portions if low < 0 else np.zeros(1)
        highs = high * portions if high > 0 else np.zeros(1)
        over = _clipped(middles, counts, highs)
        under = _clipped(-middles[::-1], counts[::-1], -lows)
        step = (highs[None, :] - lows[:, None]) / LEVELS
        error = counts.sum() * step**2 / 12 + over[None, :] + under[:, None]
        i, j = np.unravel_index(int(np.argmin(error[::-1, ::-1])), error.shape)  # equal: the widest
        return float(lows[len(lows) - 1 - i]), float(highs[len(highs) - 1 - j])


def _clipped(middles: np.ndarray, counts: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Squared error of what lies above each bound, when it is set to the bound."""
    above = [np.cumsum((counts * middles**p)[::-1])[::-1] for p in (0, 1, 2)]
    above = [np.append(a, 0.0) for a in above]
    at = np.searchsorted(middles, bounds, side="right")
    zero, one, two = (a[at] for a in above)
    error: np.ndarray = two - 2 * bounds * one + bounds**2 * zero
    error[error < 0] = 0.0
    return error


def affine(low: float, high: float) -> QParams:
    """The parameters whose range holds ``low`` and ``high``, and zero exactly."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / LEVELS, _LEAST_SCALE)
    return QParams(scale, min(max(round(-low / scale), 0), LEVELS))
