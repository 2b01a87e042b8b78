"""Errors of quantities: labels are float arrays of the output's shape, or one number per row."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from edgesdk.artifacts import TensorSpec
from edgesdk.metrics._base import Metric, Outputs, Unit, mismatch


class ErrorMetric(Metric):
    """The mean of something over all values. A value that is NaN or infinite in the answer makes the result infinite."""

    higher_is_better: ClassVar[bool] = False
    unit: ClassVar[Unit] = "own"

    def __init__(self) -> None:
        super().__init__()
        self._sum = 0.0

    def reset(self) -> None:
        super().reset()
        self._sum = 0.0

    @abstractmethod
    def each(self, difference: np.ndarray) -> np.ndarray:
        """What is averaged, for ``answer - label`` in float64."""

    def takes(self, output: TensorSpec) -> bool:
        return output.dtype.startswith(("float", "bfloat", "int", "uint"))

    def update(self, outputs: Outputs, label: np.ndarray, where: str = "") -> None:
        answer, wanted = np.asarray(outputs[self.output]), np.asarray(label)
        same = answer.shape == wanted.shape or (answer.size == wanted.size and _squeezed(answer) == _squeezed(wanted))
        if not same:
            raise mismatch(self, where, f"{wanted.dtype}{list(wanted.shape)} against {list(answer.shape)}")
        difference = answer.reshape(-1).astype(np.float64) - wanted.reshape(-1).astype(np.float64)
        self._sum += float(self.each(difference).sum())
        self.count += answer.size

    def value(self) -> float:
        if not self.count:
            return float("nan")
        return self._sum / self.count if np.isfinite(self._sum) else float("inf")


def _squeezed(array: np.ndarray) -> tuple[int, ...]:
    return tuple(side for side in array.shape if side != 1)
