"""The numbers behind :class:`~edgesdk.preprocess.postprocess.Postprocess`; its module defines them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgesdk.errors import InputError, nearest

if TYPE_CHECKING:
    from edgesdk.preprocess.postprocess import Box, Label, Postprocess


def answer(post: Postprocess, outputs: Mapping[str, np.ndarray], labels: Sequence[str] | None) -> Any:
    """See ``Postprocess.apply``."""
    if post.kind == "raw":
        return dict(outputs)
    if post.kind == "boxes":
        return _boxes(post, outputs, labels)
    values = _get(outputs, post.output)
    if post.kind == "classify":
        return _classify(post, values, labels)
    if post.kind == "segment":
        return _segment(values, post.layout)
    return _embed(values)


def activate(values: np.ndarray, activation: str) -> np.ndarray:
    """Softmax over the last axis, sigmoid, or nothing; float64."""
    x = values.astype(np.float64)
    if activation == "softmax":
        grown = np.exp(x - x.max(axis=-1, keepdims=True))
        return np.asarray(grown / grown.sum(axis=-1, keepdims=True))
    if activation == "sigmoid":
        small = np.exp(-np.abs(x))
        return np.where(x >= 0, 1 / (1 + small), small / (1 + small))
    return x


def nms(boxes: np.ndarray, scores: np.ndarray, iou: float) -> list[int]:
    """Indices of the kept boxes, best first; equal to ``torchvision.ops.nms``.

    Args:
        boxes: float32 [N, 4], corners x0, y0, x1, y1.
        scores: [N].
    """
    box = boxes.astype(np.float32)
    area = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
    order = np.argsort(-scores.astype(np.float64), kind="stable")
    kept: list[int] = []
    while order.size:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        low, high = np.maximum(box[best, :2], box[order, :2]), np.minimum(box[best, 2:], box[order, 2:])
        side = np.maximum(high - low, np.float32(0))
        inter = side[:, 0] * side[:, 1]
        union = area[best] + area[order] - inter
        # 0/0 of boxes without area is no overlap; torch compares NaN, which is never larger either.
        ratio = np.divide(inter, union, out=np.zeros_like(inter), where=union != 0).astype(np.float64)
        order = order[~(ratio > iou)]
    return kept


def _get(outputs: Mapping[str, np.ndarray], name: str | None) -> np.ndarray:
    if name is not None and name not in outputs:
        raise InputError(
            "output_unknown", f"The model has no output '{name}'.", why=nearest(name, outputs),
            fix="Name one of the model's outputs in the postprocessing.",
        )  # fmt: skip
    values = np.asarray(outputs[name] if name is not None else next(iter(outputs.values())))
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(
            "output_not_finite", f"The output '{name or next(iter(outputs))}' holds NaN or infinity.",
            why="The input was out of the trained range, or numbers overflowed in half precision.",
            fix="Look at the raw outputs with session.run(); package with float32 if this variant is fp16.",
        )  # fmt: skip
    return values


def _shape_error(values: np.ndarray, wanted: str) -> InputError:
    return InputError(
        "output_shape", f"An output of shape {list(values.shape)} can't be read as {wanted}.",
        why="The postprocessing is made for another kind of model, or several samples were run at once.",
        fix="Run one sample at a time, or use the raw outputs of session.run().",
    )  # fmt: skip


def _label(labels: Sequence[str] | None, index: int, score: float) -> Label:
    from edgesdk.preprocess.postprocess import Label

    known = labels is not None and 0 <= index < len(labels)
    return Label(labels[index] if labels is not None and known else f"class {index}", float(np.float32(score)), index)


def _classify(post: Postprocess, values: np.ndarray, labels: Sequence[str] | None) -> list[Label]:
    if values.ndim == 0 or values.size != values.shape[-1] or values.size == 0:
        raise _shape_error(values, "the class scores [1, C] of one sample")
    scores = activate(values.reshape(-1), post.activation)
    best = np.argsort(-scores, kind="stable")[: post.top_k]
    return [_label(labels, int(i), scores[i]) for i in best]


def _segment(values: np.ndarray, layout: str) -> np.ndarray:
    if values.ndim == 4 and values.shape[0] == 1:
        values = values[0]
    if values.ndim != 3 or values.shape[0 if layout == "nchw" else -1] == 0:
        raise _shape_error(values, "one map per class, [1, C, H, W]")
    planes = values if layout == "nchw" else np.moveaxis(values, -1, 0)
    chosen: np.ndarray = planes[0] > 0 if len(planes) == 1 else planes.argmax(axis=0)
    return np.asarray(chosen, np.int32)


def _embed(values: np.ndarray) -> np.ndarray:
    x = values.astype(np.float64)
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return np.asarray(x / np.maximum(length, 1e-12), np.float32)


def _corners(boxes: np.ndarray, form: str) -> np.ndarray:
    box = boxes.astype(np.float32)
    first, second = box[:, :2], box[:, 2:]
    if form == "xywh":
        return np.concatenate([first, first + second], axis=1)
    if form == "cxcywh":
        half = second * np.float32(0.5)
        return np.concatenate([first - half, first + half], axis=1)
    return box


def _candidates(post: Postprocess, outputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corners [M, 4], scores [M] and class numbers [M] of all pairs that count."""
    boxes, scores = _get(outputs, post.boxes), _get(outputs, post.scores)
    classes = _get(outputs, post.classes) if post.classes else None
    boxes = boxes[0] if boxes.ndim == 3 and boxes.shape[0] == 1 else boxes
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise _shape_error(boxes, "boxes [N, 4]")
    count = len(boxes)
    per_box = scores.size // count if count else 1
    if scores.size != count * per_box:
        raise _shape_error(scores, f"the scores [{count}, C] of {count} boxes")
    found = activate(scores.reshape(count, per_box), post.activation)
    numbers = np.broadcast_to(np.arange(found.shape[1]), found.shape)
    if classes is not None:
        if classes.size != count or found.shape[1] != 1:
            raise _shape_error(classes, f"the class numbers of {count} boxes")
        numbers = classes.reshape(count, 1).astype(np.int64)
    take = found > post.min_score
    if post.background is not None:
        take &= numbers != post.background
    rows, columns = np.nonzero(take)
    return _corners(boxes, post.box_format)[rows], found[rows, columns], numbers[rows, columns]


def _boxes(post: Postprocess, outputs: Mapping[str, np.ndarray], labels: Sequence[str] | None) -> list[Box]:
    from edgesdk.preprocess.postprocess import Box

    boxes, scores, numbers = _candidates(post, outputs)
    groups = (
        [np.arange(len(boxes))] if post.class_agnostic else [np.nonzero(numbers == n)[0] for n in np.unique(numbers)]
    )
    kept = np.array(sorted(int(g[i]) for g in groups for i in nms(boxes[g], scores[g], post.iou)), dtype=np.int64)
    best = kept[np.argsort(-scores[kept], kind="stable")][: post.max_boxes]
    found = []
    for i in best:
        x0, y0, x1, y1 = map(float, boxes[i])
        found.append(Box(x0, y0, x1, y1, _label(labels, int(numbers[i]), scores[i])))
    return found
