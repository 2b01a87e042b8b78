"""Are the labels what the model's outputs can be compared with?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from edgesdk.artifacts import Dim, Size, TensorSpec, Warn
from edgesdk.data._facts import ModelFacts
from edgesdk.data._outputs import scores
from edgesdk.data._store import Sample, Store
from edgesdk.errors import InputError

IGNORED = (255, -1, -100)
"""Values that segmentation data give to pixels without a class (VOC and Cityscapes; torch's ``ignore_index``)."""


def missing_labels(store: Store, role: str) -> list[Warn]:
    """Some samples carry a label and others don't."""
    bare = [sample.where for sample in store if sample.label is None]
    if not 0 < len(bare) < len(store):
        return []
    text = f"{_option(role)}: {len(bare)} of {len(store)} samples carry no label, the first is {bare[0]}."
    return [Warn("labels_missing", text if role == "calibration" else f"{text} No accuracy can be measured.")]


def check_labels(store: Store, facts: ModelFacts, role: str) -> list[Warn]:
    """Faults of labels; nothing when there are none.

    Raises:
        InputError: ``label_out_of_range`` or ``label_shape``, naming the file or row.
    """
    labelled = [i for i in range(len(store)) if store[i].label is not None]
    if not labelled:
        return []
    label = store[labelled[0]].label
    if label is None or label.dtype.kind != "i":
        _check_values(store, labelled, facts.signature.outputs)
    elif label.ndim <= 1 or (label.ndim == 2 and label.shape[1] == 1):
        return _check_classes(store, labelled, facts, _option(role))
    else:
        _check_maps(store, labelled, facts.signature.outputs)
    return []


def _option(role: str) -> str:
    return "--calibration" if role == "calibration" else "--eval"


def _count(size: Size) -> int | None:
    return None if isinstance(size, Dim) else size


def _check_classes(store: Store, labelled: list[int], facts: ModelFacts, option: str) -> list[Warn]:
    output = next((o for o in facts.signature.outputs if scores(o, 2)), None)
    classes = _count(output.shape[1]) if output is not None and output.shape else None
    seen: Counter[int] = Counter()
    where: dict[int, str] = {}
    for i in labelled:
        sample = store[i]
        for value in np.asarray(sample.label).reshape(-1):
            seen[int(value)] += 1
            where.setdefault(int(value), sample.where)
    low, high = min(seen), max(seen)
    if classes is not None and (low < 0 or high >= classes):
        raise _out_of_range(low, high, classes, where)
    if len(seen) == 1 and sum(seen.values()) > 1 and output is not None:
        text = f"{option}: all {sum(seen.values())} labels are {low} ({where[low]} …)."
        return [Warn("one_class", f"{text} An accuracy measured on one class hides what happens to the others.")]
    return []


def _out_of_range(low: int, high: int, classes: int, where: dict[int, str]) -> InputError:
    bad = low if low < 0 else high
    why, fix = "Labels are class numbers counted from 0.", "Correct the labels, or take the data of this model."
    if low == 1 and high == classes:
        fix = "They seem to be counted from 1: subtract 1 from all of them."
    if high >= classes and low >= 0 and high > 2 * classes:
        why = "The data seem to belong to another model, with more classes."
    return InputError(
        "label_out_of_range", f"{where[bad]}: the label is {bad}, the model has {classes} classes (0…{classes - 1}).",
        why=why, fix=fix, details={"where": where[bad], "label": bad, "classes": classes},
    )  # fmt: skip


def _check_maps(store: Store, labelled: list[int], outputs: Sequence[TensorSpec]) -> None:
    """Class numbers of pixels ``[N, H, W]``."""
    output = next((o for o in outputs if scores(o, 4)), None)
    if output is None or output.shape is None:
        _check_values(store, labelled, outputs)
        return
    classes = _count(output.shape[1])
    for i in labelled:
        sample = store[i]
        label = np.asarray(sample.label)
        wanted = (output.shape[0], *output.shape[2:])
        if not _agrees(label.shape, wanted):
            raise _shape(sample, label.shape, output)
        values = np.setdiff1d(np.unique(label), IGNORED)
        if classes is not None and values.size and (values[0] < 0 or values[-1] >= classes):
            bad = int(values[0] if values[0] < 0 else values[-1])
            raise InputError(
                "label_out_of_range", f"{sample.where}: the label holds the class {bad}, the model has {classes} (0…{classes - 1}).",
                why=f"Pixels are class numbers counted from 0; {', '.join(map(str, IGNORED))} are left out.",
                fix="Correct the labels, or take the data of this model.", details={"where": sample.where, "label": bad},
            )  # fmt: skip


def _check_values(store: Store, labelled: list[int], outputs: Sequence[TensorSpec]) -> None:
    """Labels that are compared value by value have the shape of an output."""
    for i in labelled:
        sample = store[i]
        label = np.asarray(sample.label)
        if not any(_takes(label, o) for o in outputs):
            raise _shape(sample, label.shape, outputs[0])


def _takes(label: np.ndarray, output: TensorSpec) -> bool:
    """The output's shape, that without its last dimension (class numbers of a sequence), or one number per row."""
    if output.shape is None or _agrees(label.shape, output.shape) or _one_each(label, output):
        return True
    return label.dtype.kind == "i" and len(output.shape) == 3 and _agrees(label.shape, output.shape[:-1])


def _one_each(label: np.ndarray, output: TensorSpec) -> bool:
    """One number per row for an output ``[N, 1]`` or ``[N]``."""
    shape = output.shape or ()
    return label.ndim == 1 and len(shape) in (1, 2) and all(d == 1 for d in shape[1:])


def _agrees(shape: tuple[int, ...], wanted: Sequence[Size]) -> bool:
    return len(shape) == len(wanted) and all(isinstance(w, Dim) or s == w for s, w in zip(shape, wanted, strict=True))


def _shape(sample: Sample, shape: tuple[int, ...], output: TensorSpec) -> InputError:
    return InputError(
        "label_shape", f"{sample.where}: the label has the shape {list(shape)}, the output is {output}.",
        why="A label is a class number, a map of class numbers of the picture's size, or an array of the output's shape.",
        fix="Save labels of one of these forms.", details={"where": sample.where, "shape": list(shape)},
    )  # fmt: skip
