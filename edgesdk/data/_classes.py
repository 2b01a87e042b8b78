"""Class names and folders as class numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from edgesdk.artifacts import Warn
from edgesdk.data._facts import ModelFacts
from edgesdk.data._outputs import scores
from edgesdk.errors import InputError, nearest

_WORDNET = re.compile(r"n[0-9]{8}")
_NUMBER = re.compile(r"\d{1,9}")


def numbers_of_names(
    names: Sequence[str], labels: tuple[str, ...] | None, where: str
) -> tuple[dict[str, int], Warn | None]:
    """A class number for each name.

    By the model's labels when they are known; names that are numbers stand for themselves; otherwise the place in sorted
    order, as torchvision's ``ImageFolder`` counts. A warning tells when that had to be assumed though labels are known.

    Raises:
        InputError: ``unknown_class``: some names are labels of the model and others aren't.
    """
    ordered = sorted(set(names))
    if labels:
        by_key: dict[str, int] = {}
        for number, label in enumerate(labels):
            by_key.setdefault(_key(label), number)
        exact = {label: number for number, label in enumerate(labels)}
        found = {n: exact.get(n, by_key.get(_key(n), -1)) for n in ordered}
        unknown = [name for name, number in found.items() if number < 0]
        if not unknown:
            return found, None
        if len(unknown) < len(ordered):
            raise InputError(
                "unknown_class", f"{where}: the class '{unknown[0]}' is none of the model's labels.",
                why=nearest(unknown[0], labels[:2000])[:400], fix="Rename it as the label, or correct --labels.",
            )  # fmt: skip
    if all(_NUMBER.fullmatch(name) for name in ordered):
        return {name: int(name) for name in ordered}, None
    warning = None
    if labels and all(
        _WORDNET.fullmatch(name) for name in ordered
    ):  # ImageNet's own folders: its classes are in this order
        warning = Warn(
            "class_order_assumed",
            f"{where}: the classes are WordNet numbers ({', '.join(ordered[:3])} …) and the labels are names, so they were "
            "numbered in sorted order, as ImageNet's are. If the model counts them otherwise, every label is wrong.",
        )
    elif labels:
        raise InputError(
            "unknown_class", f"{where}: none of the classes ({', '.join(ordered[:3])} …) is a label of the model.",
            why=f"Its labels are {', '.join(labels[:5])}{' …' if len(labels) > 5 else ''}; guessing an order would make every "
            "label wrong.",
            fix="Name the folders as the labels, or by class number, or correct --labels.",
        )  # fmt: skip
    return {name: number for number, name in enumerate(ordered)}, warning


def _key(name: str) -> str:
    return re.sub(r"[\s_\-]+", " ", name).strip().casefold()


def class_numbers(values: np.ndarray, facts: ModelFacts, where: str) -> np.ndarray:
    """A column of labels: int64 for class numbers and names, float32 for quantities.

    Whole numbers that were stored as floats (a table with gaps does that) are class numbers when the model gives scores.

    Raises:
        InputError: ``bad_label``.
    """
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind == "U":
        words = [str(value).strip() for value in values]
        numbers = _as_floats(words)
        if numbers is None:
            table, _ = numbers_of_names(words, facts.labels, where)
            return np.asarray([table[word] for word in words], np.int64)
        values = numbers
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    if values.dtype.kind != "f":
        raise InputError(
            "bad_label", f"{where}: the labels are {values.dtype}, not numbers or names.",
            why="A label is a class number counted from 0, or a quantity.", fix="Save them as int64 or float32.",
        )  # fmt: skip
    whole = np.isfinite(values).all() and bool((values == np.round(values)).all())
    return (
        values.astype(np.int64)
        if whole and any(scores(o, 2) for o in facts.signature.outputs)
        else values.astype(np.float32)
    )


def _as_floats(words: list[str]) -> np.ndarray | None:
    try:
        return np.asarray([float(word) for word in words])
    except ValueError:
        return None
