"""Mean absolute error."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from edgesdk.metrics._error import ErrorMetric


class Mae(ErrorMetric):
    name: ClassVar[str] = "mae"
    title: ClassVar[str] = "mean absolute error"

    def each(self, difference: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(difference))


METRIC = Mae()
