"""The seam of metrics: how good the answers are, measured against labels, one call of the model after the other.

``edgesdk/metrics/NAME.py`` ends with ``METRIC = ItsClass()`` and is found by scanning. Memory doesn't grow with the
number of samples.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

import numpy as np

from edgesdk.artifacts import TensorSpec
from edgesdk.errors import InputError

Outputs = Mapping[str, "np.ndarray"]
Unit = Literal["points", "own"]

WORST_DROP = 999.0
"""Upper end of a drop in relative percent: from an error of zero, any other error is infinitely worse (and JSON has no
infinity)."""


class Metric(ABC):
    """A running measurement.

    Attributes:
        name: word of ``--metric``.
        title: for people, in a table's head.
        higher_is_better: accuracies yes, errors no.
        unit: ``points`` for a share in 0…100; ``own`` for a value in the unit of the labels.
        output: name of the output that is compared; set by :meth:`bind`.
        count: rows (values, for errors) that were compared so far.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    unit: ClassVar[Unit] = "points"

    def __init__(self) -> None:
        self.output = ""
        self.count = 0

    @abstractmethod
    def update(self, outputs: Outputs, label: np.ndarray, where: str = "") -> None:
        """Add one call: the outputs by name, batch included, and its label.

        Raises:
            InputError: ``metric_failed``: output and label can't be compared; names ``where``.
        """

    @abstractmethod
    def value(self) -> float:
        """The result so far: points (0…100) or in the labels' unit; NaN before the first update."""

    @abstractmethod
    def takes(self, output: TensorSpec) -> bool:
        """The output's shape and dtype are of the kind that this metric compares."""

    def fresh(self) -> Self:
        """The same metric at its beginning, for the next variant."""
        other = copy.copy(self)
        other.reset()
        return other

    def reset(self) -> None:
        self.count = 0

    def bind(self, outputs: Sequence[TensorSpec]) -> Self:
        """A fresh one that looks at the first output that fits.

        Raises:
            InputError: ``metric_mismatch``: no output fits.
        """
        found = next((o for o in outputs if self.takes(o)), None)
        if found is None:
            raise InputError(
                "metric_mismatch", f"--metric {self.name} can't be measured on this model.",
                why=f"No output is of the kind it compares; they are {', '.join(map(str, outputs))}.",
                fix="Choose another metric, or write your own: --metric file.py:metric",
            )  # fmt: skip
        bound = self.fresh()
        bound.output = found.name
        return bound

    def drop(self, original: float, value: float) -> float:
        """By how much ``value`` is worse than ``original``, in the unit of ``--max-drop``; negative when it is better.

        For points, the plain difference. For everything else, percent of the original's value: an MAE that grows from
        2.00 to 2.02 drops by 1.0; at most :data:`WORST_DROP`.
        """
        worse = original - value if self.higher_is_better else value - original
        if np.isnan(worse):
            return WORST_DROP
        if self.unit == "points":
            return worse
        if abs(worse) <= 1e-9:
            return 0.0
        scale = abs(original)
        relative = 100 * worse / scale if scale > 0 else np.copysign(np.inf, worse)
        return float(np.clip(relative, -WORST_DROP, WORST_DROP))


def mismatch(metric: Metric, where: str, what: str) -> InputError:
    return InputError(
        "metric_failed", f"{where or 'A sample'}: {metric.name} can't compare the output '{metric.output}' with the label: {what}.",
        why="The label isn't of the form that the metric takes.",
        fix="Correct the labels of --eval, or choose another --metric.", details={"where": where},
    )  # fmt: skip


def one_hot(label: np.ndarray) -> bool:
    """Rows of zeros with a single one: ``[N, K]``."""
    return (
        label.ndim == 2
        and label.shape[1] > 1
        and bool(((label == 0) | (label == 1)).all())
        and bool((label.sum(axis=1) == 1).all())
    )
