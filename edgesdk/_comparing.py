"""A lowered file against the original over a stream of samples: everything that an :class:`Evaluation` holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgesdk.evaluation import Evaluation, Flip, Score
from edgesdk.judging import Channels
from edgesdk.metrics import Agreement, Fidelity, Metric

if TYPE_CHECKING:
    import numpy as np

    from edgesdk.artifacts import Signature
    from edgesdk.data import Sample

    Outputs = Mapping[str, np.ndarray]


class Comparison:
    """Running comparison; memory doesn't grow with the number of samples.

    Args:
        metric: what labels are judged by; None compares with the original alone.
        labels: names of the classes, for the list of flipped predictions.
    """

    def __init__(self, signature: Signature, metric: Metric | None, labels: Sequence[str] | None) -> None:
        self._names = [spec.name for spec in signature.outputs]
        self._fidelity = {name: Fidelity(name) for name in self._names}
        self._channels = {name: Channels() for name in self._names}
        ranked = metric.output if metric and metric.name.startswith("top") else None
        self._agreement = Agreement(signature.outputs, ranked)
        self._ours = metric.fresh() if metric else None
        self._theirs = metric.fresh() if metric else None
        self._labels = labels or ()
        self._samples = 0
        shapes = {spec.name: spec.shape for spec in signature.outputs}
        self._classes = {name: shape[-1] for name, shape in shapes.items() if shape and isinstance(shape[-1], int)}

    def update(self, sample: Sample, wanted: Outputs, given: Outputs) -> None:
        """Add one call: the sample, the original's outputs and the file's."""
        self._samples += 1
        for name in self._names:
            self._fidelity[name].update(wanted[name], given[name])
            self._channels[name].update(wanted[name], given[name])
        self._agreement.update(wanted, given, sample.where)
        if self._ours is not None and self._theirs is not None and sample.label is not None:
            self._ours.update(given, sample.label, sample.where)
            self._theirs.update(wanted, sample.label, sample.where)

    def result(self, data: str, where: str) -> Evaluation:
        """See :class:`Evaluation` for ``data`` and ``where``."""
        agreed = self._agreement.result()
        lost = {name: share for name in self._names if (share := self._channels[name].lost) is not None}
        return Evaluation(
            samples=self._samples, data=data, where=where, score=self._score(),
            top1=agreed.top1 if agreed else None, top5=agreed.top5 if agreed else None,
            rows=agreed.rows if agreed else 0, flipped=agreed.flipped if agreed else 0,
            flips=tuple(
                Flip(f.where, self._class(f.was), self._class(f.became), f.margin) for f in (agreed.flips if agreed else ())
            ),
            outputs=tuple(f.result() for f in self._fidelity.values()), lost=lost, chance=self._chance(),
        )  # fmt: skip

    def _chance(self) -> float | None:
        """Points that guessing reaches in a top-k accuracy."""
        k = getattr(self._ours, "k", None)
        classes = self._classes.get(self._ours.output) if self._ours is not None else None
        return min(100.0, 100 * k / classes) if k and classes else None

    def _score(self) -> Score | None:
        if self._ours is None or self._theirs is None or not self._ours.count:
            return None
        original, value = self._theirs.value(), self._ours.value()
        return Score(self._ours.name, original, value, self._ours.drop(original, value), self._ours.count)

    def _class(self, number: int | None) -> str:
        if number is None:
            return "none (NaN)"
        return self._labels[number] if number < len(self._labels) else f"class {number}"
