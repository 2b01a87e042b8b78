"""How good a model is on labelled data, and how alike two models answer.

    metric = find("top1", signature) or choose(store, signature)      # METRIC of --metric, or by the labels
    for sample in store:
        metric.update(outputs, sample.label, sample.where)
    metric.value(), metric.drop(original_value, metric.value())

Metrics are found by scanning this folder; ``_base`` is the seam, ``_user`` the user's own ``file.py:metric``, ``_compare``
agreement, flipped predictions and signal to noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from edgesdk.artifacts import Signature
from edgesdk.data import Store
from edgesdk.errors import InputError, UsageError, nearest
from edgesdk.metrics._base import WORST_DROP, Metric
from edgesdk.metrics._base import one_hot as _one_hot
from edgesdk.metrics._compare import MAX_FLIPS, Agreement, AgreementResult, Fidelity, Flip
from edgesdk.registry import collect

__all__ = [
    "MAX_FLIPS",
    "WORST_DROP",
    "Agreement",
    "AgreementResult",
    "Fidelity",
    "Flip",
    "Metric",
    "check_name",
    "choose",
    "find",
    "metrics",
]


_LOOK = 16  # labels looked at to tell one-hot rows from quantities that happen to be 0 and 1


@cache
def metrics() -> Mapping[str, Metric]:
    """Every metric by its name; these are prototypes, use :func:`find` to measure."""
    return collect(__name__, "METRIC", Metric)  # type: ignore[type-abstract]


def check_name(text: str) -> None:
    """Refuse a ``--metric`` that can't be one, before any work and without torch.

    Raises:
        UsageError: no such metric.
        InputError: the file of ``file.py:metric`` doesn't exist, is no Python, or defines no such name.
    """
    head, colon, member = text.rpartition(":")
    if colon and head.endswith(".py") and member:
        file = Path(head).expanduser()
        if not file.is_file():
            raise InputError(
                "missing_file", f"{head} doesn't exist.", why="--metric names a function in it.", fix="Check the path."
            )
        from edgesdk.importing._defined import may_define

        if not may_define(file, member, f"{file}:{member}"):
            from edgesdk.metrics._user import none_such

            raise none_such(file, member)
        return
    if text not in metrics():
        raise UsageError(
            "unknown_metric", f"--metric '{text}' is unknown.", why=nearest(text, metrics()),
            fix="Choose one of them, or write your own: --metric file.py:metric",
        )  # fmt: skip


def find(text: str, signature: Signature) -> Metric:
    """The metric called ``text``, or the user's own, ready to measure this model.

    Raises:
        UsageError: no such metric.
        InputError: no output of the model is of its kind, or the user's code fails.
    """
    check_name(text)
    head, colon, member = text.rpartition(":")
    if colon:
        from edgesdk.metrics._user import UserMetric

        return UserMetric(Path(head).expanduser(), member)
    return metrics()[text].bind(signature.outputs)


def choose(store: Store, signature: Signature, task: str | None = None) -> Metric | None:
    """The metric that the labels suggest, or None: no labels, or of a form that nothing compares.

    Class numbers and an output of scores ``[N, K]`` → top1; a map of class numbers and scores ``[N, K, H, W]`` → mean_iou;
    quantities of an output's shape → mae.

    Args:
        task: what the model is for, if known; ``segment…`` keeps maps of class numbers from being read as sequences.
    """
    if not store.labelled:
        return None
    label = store[0].label
    if label is None:
        return None
    name = _name_for(label, all(_hot(sample.label) for sample in store.first(_LOOK)), signature, task)
    if name is None:
        return None
    outputs = [o for o in signature.outputs if metrics()[name].takes(o) and _comparable(name, label, o.shape)]
    return metrics()[name].bind(outputs) if outputs else None


def _hot(label: np.ndarray | None) -> bool:
    return label is not None and _one_hot(label)


def _name_for(label: np.ndarray, hot: bool, signature: Signature, task: str | None) -> str | None:
    if label.dtype.kind == "f":
        classed = any(metrics()["top1"].takes(o) and _agree(label.shape, o.shape or ()) for o in signature.outputs)
        return "top1" if hot and classed else "mae"
    if hot or label.ndim <= 1 or label.shape[1:] == (1,):
        classed = any(metrics()["top1"].takes(o) and len(o.shape or ()) == 2 for o in signature.outputs)
        return "top1" if classed else None
    if any(metrics()["mean_iou"].takes(o) for o in signature.outputs):
        return "mean_iou"
    return "top1" if label.ndim == 2 and not (task or "").startswith("segment") else None


def _comparable(name: str, label: np.ndarray, shape: tuple[object, ...] | None) -> bool:
    """The ranks agree, and the fixed sizes do."""
    if shape is None:
        return True
    if name == "mean_iou":
        wanted = (shape[0], *shape[2:])
        return _agree(label.shape if label.ndim == 3 else (label.shape[0], *label.shape[2:]), wanted)
    if name == "mae":
        return _agree(label.shape, shape) or (label.ndim == 1 and all(side == 1 for side in shape[1:]))
    if label.ndim <= 1 or label.shape[1:] == (1,) or _one_hot(label):
        return len(shape) == 2
    return len(shape) == 3 and _agree(label.shape, shape[:-1])


def _agree(shape: tuple[int, ...], wanted: tuple[object, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        side == size for side, size in zip(shape, wanted, strict=True) if isinstance(size, int)
    )
