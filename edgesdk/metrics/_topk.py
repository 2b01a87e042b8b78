"""Share of rows whose label is among the k best classes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from edgesdk.artifacts import TensorSpec
from edgesdk.data._outputs import scores
from edgesdk.metrics._base import Metric, Outputs, mismatch, one_hot

_IGNORED = (-1, -100)  # no class (torch's ignore_index)


class TopK(Metric):
    """For outputs ``[N, K]`` and labels [N] (or one-hot ``[N, K]``); for sequences ``[N, T, K]`` and ``[N, T]``."""

    k: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self._right = 0

    def reset(self) -> None:
        super().reset()
        self._right = 0

    def takes(self, output: TensorSpec) -> bool:
        return scores(output, 2) or (scores(output, 3) and output.shape is not None and output.shape[2] != 1)

    def update(self, outputs: Outputs, label: np.ndarray, where: str = "") -> None:
        answer = np.asarray(outputs[self.output])
        classes = np.asarray(label)
        if one_hot(classes) and classes.shape == answer.shape:
            classes = classes.argmax(axis=1)
        if classes.ndim == answer.ndim and classes.shape[-1] == 1:
            classes = classes[..., 0]
        if answer.ndim < 2 or classes.shape != answer.shape[:-1] or classes.dtype.kind not in "iu":
            raise mismatch(self, where, f"{classes.dtype}{list(classes.shape)} against {list(answer.shape)}")
        rows, wanted = answer.reshape(-1, answer.shape[-1]), classes.reshape(-1)
        counted = (wanted != _IGNORED[0]) & (wanted != _IGNORED[1])
        self.count += int(counted.sum())
        self._right += int(within(rows[counted], wanted[counted], self.k).sum())

    def value(self) -> float:
        return 100 * self._right / self.count if self.count else float("nan")


def within(rows: np.ndarray, wanted: np.ndarray, k: int) -> np.ndarray:
    """Is the wanted class among the k best of its row? bool [N].

    Among equal scores the lower class number counts as better, as in ``argmax``. A row with NaN has no best class, and a
    class that doesn't exist is never among them.
    """
    classes = rows.shape[1]
    valid = (wanted >= 0) & (wanted < classes) & ~np.isnan(rows).any(axis=1)
    index = np.clip(wanted, 0, classes - 1)
    mine = np.take_along_axis(rows, index[:, None], axis=1)
    before = (rows > mine) | ((rows == mine) & (np.arange(classes)[None] < index[:, None]))
    return np.asarray(valid & (before.sum(axis=1) < k))
