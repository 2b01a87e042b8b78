"""Two models compared sample by sample, without labels: agreement, flipped predictions, signal to noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgesdk.artifacts import OutputFidelity, TensorSpec
from edgesdk.data._outputs import scores
from edgesdk.fidelity import _reals, _snr_db
from edgesdk.metrics._base import Outputs
from edgesdk.metrics._topk import within

MAX_FLIPS = 20


@dataclass(frozen=True)
class Flip:
    """A prediction that changed.

    Attributes:
        where: file or row of the sample; with its row in the call when there are several.
        was: best class of the original.
        became: best class of the other; None when its scores are NaN.
        margin: by how much the original's best score exceeded its second best. Small ones flip first.
    """

    where: str
    was: int
    became: int | None
    margin: float

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class AgreementResult:
    """How often two models choose alike.

    Attributes:
        output: name of the output with the class scores.
        rows: predictions compared.
        top1: share of rows with the same best class, 0…1.
        top5: share of rows in which the original's best class is among the other's five best; None below 6 classes.
        flipped: number of rows whose best class changed.
        flips: the first :data:`MAX_FLIPS` of them.
    """

    output: str
    rows: int
    top1: float
    top5: float | None
    flipped: int
    flips: tuple[Flip, ...]

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "flips": [flip.to_json() for flip in self.flips]}


class Agreement:
    """Running agreement on one output with class scores; memory stays constant.

    Args:
        outputs: of the model.
        output: name of the one to compare, ``[N, K]`` or ``[N, T, K]`` (that of a metric, say); otherwise the first
            ``[N, K]``. Which of three dimensions are classes can't be seen from outside.
    """

    def __init__(self, outputs: Sequence[TensorSpec], output: str | None = None) -> None:
        self.output = output or next((o.name for o in outputs if scores(o, 2)), None)
        self._rows = self._same = self._near = 0
        self._classes = 0
        self._flips: list[Flip] = []

    def update(self, reference: Outputs, got: Outputs, where: str) -> None:
        """Add one call. Nothing is counted when no output holds class scores."""
        if self.output is None:
            return
        ref, other = np.asarray(reference[self.output]), np.asarray(got[self.output])
        if ref.ndim not in (2, 3) or ref.shape[-1] < 2 or ref.shape != other.shape or not ref.size:
            return
        ref, other = ref.reshape(-1, ref.shape[-1]), other.reshape(-1, ref.shape[-1])
        was = ref.argmax(axis=1)
        same = within(other, was, 1)
        self._classes = ref.shape[1]
        self._rows += len(ref)
        self._same += int(same.sum())
        self._near += int(within(other, was, 5).sum())
        for row in np.flatnonzero(~same):
            if len(self._flips) < MAX_FLIPS:
                self._flips.append(_flip(ref[row], other[row], where if len(ref) == 1 else f"{where}, row {row}"))

    def result(self) -> AgreementResult | None:
        """None when there were no class scores to compare."""
        if self.output is None or not self._rows:
            return None
        return AgreementResult(
            output=self.output,
            rows=self._rows,
            top1=self._same / self._rows,
            top5=self._near / self._rows if self._classes > 5 else None,
            flipped=self._rows - self._same,
            flips=tuple(self._flips),
        )


def _flip(ref: np.ndarray, other: np.ndarray, where: str) -> Flip:
    second, first = np.sort(ref.astype(np.float64))[-2:]
    became = None if np.isnan(other).any() else int(other.argmax())
    return Flip(where, int(ref.argmax()), became, float(first - second))


class Fidelity:
    """Running figures of one output against the original's; :func:`edgesdk.fidelity.fidelity_of` in constant memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._signal = self._noise = self._other = self._dot = self._absolute = 0.0
        self._worst = self._largest = 0.0
        self._values = 0
        self._rows = self._same = 0
        self._scores = True

    def update(self, reference: np.ndarray, got: np.ndarray) -> None:
        """Add one array of each, of the same shape. Values that aren't finite on both sides are left out."""
        one, other = np.asarray(reference), np.asarray(got)
        ref, val = _reals(one), _reals(other)
        finite = np.isfinite(ref) & np.isfinite(val)
        if not finite.all():
            ref, val = ref[finite], val[finite]
        error = np.abs(ref - val)
        self._signal += float(ref @ ref)
        self._other += float(val @ val)
        self._dot += float(ref @ val)
        self._noise += float(error @ error)
        self._absolute += float(error.sum())
        self._worst = max(self._worst, float(error.max(initial=0.0)))
        self._largest = max(self._largest, float(np.abs(ref).max(initial=0.0)))
        self._values += ref.size
        self._scores = self._scores and one.ndim == 2 and one.shape[1] > 1 and one.dtype.kind == "f"
        if self._scores:
            self._rows += len(one)
            self._same += int((one.argmax(1) == other.argmax(1)).sum())

    def result(self) -> OutputFidelity:
        norms = float(np.sqrt(self._signal) * np.sqrt(self._other))
        return OutputFidelity(
            name=self.name,
            max_abs_error=self._worst,
            mean_abs_error=self._absolute / self._values if self._values else 0.0,
            max_abs_reference=self._largest,
            snr_db=_snr_db(self._signal, self._noise),
            cosine=self._dot / norms if norms else None,
            top1_agreement=self._same / self._rows if self._scores and self._rows else None,
        )
