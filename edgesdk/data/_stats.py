"""Figures of a store's inputs, gathered sample by sample: what the checks judge."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from edgesdk.artifacts import Signature, TensorSpec
from edgesdk.data._store import Sample, Store
from edgesdk.errors import InputError

_NOISE_SAMPLES = 64  # samples that are looked at for neighbours that have nothing to do with each other
_SIGNAL = 1024  # values in a row from which on a signal can be told from noise


@dataclass
class InputStats:
    """One input over all samples.

    Attributes:
        blank: samples in which all values are equal, with the first one's place.
        alike: all samples are equal to the first.
        whole: all values are whole numbers.
        ends: least and largest value of each channel of pictures, [C, 2]; None for all else.
        neighbours: mean correlation of neighbouring values along rows (and columns of pictures); None when not measured.
    """

    name: str
    kind: str
    rank: int
    samples: int = 0
    values: int = 0
    low: float = np.inf
    high: float = -np.inf
    total: float = 0.0
    squares: float = 0.0
    blank: int = 0
    first_blank: str = ""
    alike: bool = True
    whole: bool = True
    ends: np.ndarray | None = None
    _first: bytes = b""
    _correlations: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return self.total / max(self.values, 1)

    @property
    def std(self) -> float:
        return float(np.sqrt(max(0.0, self.squares / max(self.values, 1) - self.mean**2)))

    @property
    def neighbours(self) -> float | None:
        return float(np.mean(self._correlations)) if self._correlations else None

    def add(self, array: np.ndarray, where: str) -> None:
        self.samples += 1
        self.values += array.size
        if not array.size:
            return
        low, high = float(array.min()), float(array.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        if array.size > 1 and low == high:
            self.blank += 1
            self.first_blank = self.first_blank or where
        digest = hashlib.sha256(np.ascontiguousarray(array).data).digest() + repr(array.shape).encode()
        self._first = self._first or digest
        self.alike = self.alike and digest == self._first
        if self.kind == "f":
            self.total += float(array.sum(dtype=np.float64))
            self.squares += float(np.square(array, dtype=np.float64).sum())
            self.whole = self.whole and bool((array == np.round(array)).all())
            self.ends = _wider(self.ends, array)
            if self.samples <= _NOISE_SAMPLES and low < high:
                self._correlations.extend(_neighbours(array))


def _wider(ends: np.ndarray | None, array: np.ndarray) -> np.ndarray | None:
    """The ends of three channels, [3, 2], with those of one more sample [N, 3, H, W] or [N, H, W, 3]."""
    channel = next((axis for axis in (1, 3) if array.ndim == 4 and array.shape[axis] == 3), None)
    if channel is None:
        return None
    others = tuple(axis for axis in range(4) if axis != channel)
    low, high = array.min(axis=others), array.max(axis=others)
    if ends is not None:
        low, high = np.minimum(low, ends[:, 0]), np.maximum(high, ends[:, 1])
    return np.stack([low, high], axis=1)


def _neighbours(array: np.ndarray) -> list[float]:
    """Correlation of each value with the next, for pictures (both sides at least 8) and long signals; else nothing."""
    if array.ndim == 4:
        axes = [axis for axis in (1, 2, 3) if array.shape[axis] > 4]
        if len(axes) < 2 or min(array.shape[axis] for axis in axes[-2:]) < 8:
            return []
        rows, columns = axes[-2:]
        planes = array - array.mean(
            axis=(rows, columns), keepdims=True, dtype=np.float64
        )  # a channel's mean is no shape
        return [_lag(planes, rows), _lag(planes, columns)]
    # [N, n] may as well be features without an order, so only [N, 1, n] is taken for a signal.
    if array.ndim == 3 and array.shape[1] == 1 and array.shape[-1] >= _SIGNAL:
        return [_lag(array, array.ndim - 1)]
    return []


def _lag(array: np.ndarray, axis: int) -> float:
    moved = np.moveaxis(array.astype(np.float64), axis, -1)
    centred = moved - moved.mean()
    one, other = centred[..., :-1], centred[..., 1:]
    norm = float(np.sqrt((one * one).sum() * (other * other).sum()))
    return float((one * other).sum()) / norm if norm else 0.0


def gather(store: Store, signature: Signature) -> dict[str, InputStats]:
    """Figures of every input, by name; every value is looked at.

    Raises:
        InputError: ``non_finite_sample``: NaN or infinity in an input or label; names the file or row.
    """
    found: dict[str, InputStats] = {}
    for sample in store:
        for spec in signature.inputs:
            array = sample.feed[spec.name]
            if array.dtype.kind in "fc" and not np.isfinite(array).all():
                raise _non_finite(array, f"input '{spec.name}'", sample)
            if array.dtype.kind == "c":  # a complex value is two
                array = np.stack([array.real, array.imag], axis=-1)
            stats = found.setdefault(spec.name, InputStats(spec.name, array.dtype.kind, array.ndim))
            stats.add(array, sample.where)
        if sample.label is not None and sample.label.dtype.kind == "f" and not np.isfinite(sample.label).all():
            raise _non_finite(sample.label, "the label", sample)
    return found


def _non_finite(array: np.ndarray, what: str, sample: Sample) -> InputError:
    bad = ~np.isfinite(array)
    count, at = int(bad.sum()), [int(i) for i in np.argwhere(bad)[0]]
    word = "NaN" if np.isnan(array[tuple(at)]) else "infinity"
    return InputError(
        "non_finite_sample", f"{sample.where}: {what} holds {word} ({count} of {array.size} values, the first at {at}).",
        why="A gap in the data, a division by zero or an overflow; ranges measured on it would be useless.",
        fix="Correct or drop that sample.", details={"where": sample.where, "count": count},
    )  # fmt: skip


def is_picture(spec: TensorSpec) -> bool:
    """A float input ``[N, C, H, W]`` or ``[N, H, W, C]`` with 1 or 3 channels."""
    return spec.shape is not None and len(spec.shape) == 4 and (spec.shape[1] in (1, 3) or spec.shape[3] in (1, 3))
