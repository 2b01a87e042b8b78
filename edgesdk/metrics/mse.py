"""Mean squared error."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from edgesdk.metrics._error import ErrorMetric


class Mse(ErrorMetric):
    name: ClassVar[str] = "mse"
    title: ClassVar[str] = "mean squared error"

    def each(self, difference: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(difference))


METRIC = Mse()
