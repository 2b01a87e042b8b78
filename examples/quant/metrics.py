"""Metrics of the quantization table, in the form that ``edgesdk package --metric file.py:name`` takes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Outputs = Mapping[str, np.ndarray]


def cosine(outputs: Outputs, label: np.ndarray) -> float:
    """Cosine of the sentence vector, the mean over the tokens, with the float one; the label holds the float token vectors
    [1,T,D], zeros where the mask is."""
    true = label[0]
    hidden = next(array for array in outputs.values() if array.ndim == 3)[0]
    mean, wanted = hidden[true.any(1)].mean(0), true[true.any(1)].mean(0)
    return 100 * float(mean @ wanted / max(1e-12, np.linalg.norm(mean) * np.linalg.norm(wanted)))


def characters(outputs: Outputs, label: np.ndarray) -> float:
    """Share of a line's characters that are read right, 100 × (1 − edit distance / length); scores [1,T,K], 0 is the blank.

    The label [1,T] holds the classes of the characters, filled up with −1.
    """
    best = next(array for array in outputs.values() if array.ndim == 3)[0].argmax(-1)
    read = [int(c) for i, c in enumerate(best) if c and (i == 0 or c != best[i - 1])]
    true = [int(c) for c in label.reshape(-1) if c >= 0]
    return 100 * max(0.0, 1 - _distance(read, true) / len(true))


def _distance(read: list[int], true: list[int]) -> int:
    """Least number of insertions, deletions and replacements (Levenshtein)."""
    row = list(range(len(true) + 1))
    for i, mine in enumerate(read, 1):
        before, row[0] = row[0], i
        for j, theirs in enumerate(true, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (mine != theirs))
    return row[-1]


def mask_iou(outputs: Outputs, label: np.ndarray) -> float:
    """Overlap of the text mask (probability > 0.3, PP-OCR's own threshold) with the float model's."""
    mask, true = next(iter(outputs.values())) > 0.3, label.reshape(next(iter(outputs.values())).shape) > 0
    union = int((mask | true).sum())
    return 100 * int((mask & true).sum()) / union if union else 100.0


def speech(outputs: Outputs, label: np.ndarray) -> float:
    """Share of the frames told right: speech when the probability is above one half."""
    probability = next(array for array in outputs.values() if array.size == 1)
    return 100 * float((probability.reshape(-1)[0] > 0.5) == (label.reshape(-1)[0] > 0))


for _metric in (cosine, characters, mask_iou, speech):
    _metric.points = True  # type: ignore[attr-defined]
