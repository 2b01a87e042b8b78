"""Mean intersection over union of segmentation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from edgesdk.artifacts import TensorSpec
from edgesdk.data._outputs import scores
from edgesdk.metrics._base import Metric, Outputs, mismatch

MAX_CLASSES = 4096
_IGNORED = (255, -1, -100)  # pixels without a class: VOC and Cityscapes, torch's ignore_index


class MeanIou(Metric):
    """For outputs ``[N, K, H, W]`` and labels ``[N, H, W]``: the mean over the classes that occur (in labels or answers)
    of ``intersection / union``, counted over all pixels of all pictures. 255 is a class only when K is above 255."""

    name: ClassVar[str] = "mean_iou"
    title: ClassVar[str] = "mean IoU"

    def __init__(self) -> None:
        super().__init__()
        self._confusion = np.zeros((0, 0), np.int64)

    def reset(self) -> None:
        super().reset()
        self._confusion = np.zeros((0, 0), np.int64)

    def takes(self, output: TensorSpec) -> bool:
        return scores(output, 4)

    def update(self, outputs: Outputs, label: np.ndarray, where: str = "") -> None:
        answer, wanted = np.asarray(outputs[self.output]), np.asarray(label)
        if wanted.ndim == 4 and wanted.shape[1] == 1:
            wanted = wanted[:, 0]
        fits = answer.ndim == 4 and wanted.shape == (answer.shape[0], *answer.shape[2:]) and wanted.dtype.kind in "iu"
        if not fits:
            raise mismatch(self, where, f"{wanted.dtype}{list(wanted.shape)} against {list(answer.shape)}")
        classes = answer.shape[1]
        if classes > MAX_CLASSES:
            raise mismatch(self, where, f"{classes} classes are more than {MAX_CLASSES}")
        if not self._confusion.size:
            self._confusion = np.zeros((classes, classes), np.int64)
        ignored = [value for value in _IGNORED if not 0 <= value < classes]
        counted = ~np.isin(wanted, ignored)
        found, true = answer.argmax(axis=1)[counted], wanted[counted].astype(np.int64)
        if true.size and (true.min() < 0 or true.max() >= classes):
            raise mismatch(self, where, f"there are {classes} classes, the label holds {true.min()}…{true.max()}")
        self._confusion += np.bincount(true * classes + found, minlength=classes**2).reshape(classes, classes)
        self.count += int(counted.sum())

    def value(self) -> float:
        both = np.diag(self._confusion)
        union = self._confusion.sum(0) + self._confusion.sum(1) - both
        present = union > 0
        return float(100 * (both[present] / union[present]).mean()) if present.any() else float("nan")


METRIC = MeanIou()
