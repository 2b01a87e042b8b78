"""Samples in an ``.npz`` (arrays by input name, samples first, optional ``label``) or an ``.npy`` (one input)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgesdk.artifacts import Signature, TensorSpec, Warn
from edgesdk.data._classes import class_numbers
from edgesdk.data._facts import ModelFacts
from edgesdk.data._npy import Archive, Header, read_array
from edgesdk.data._readers import Reader, Row
from edgesdk.data._shape import form_of
from edgesdk.errors import InputError

LABEL = "label"
_LIKE_LABEL = frozenset(
    [
        "labels",
        "class",
        "classes",
        "target",
        "targets",
        "y",
        "y_true",
        "gt",
        "truth",
        "ground_truth",
        "category",
        "answer",
        "answers",
        "annotation",
        "class_id",
        "label_id",
        "lable",
        "lables",
    ]
)


def like_label(names: Sequence[str]) -> str | None:
    """The name that must mean the labels, when none is called ``label``; None when no name looks like it."""
    if LABEL in names:
        return None
    return next((name for name in names if name.strip().lower() in {LABEL, *_LIKE_LABEL}), None)


def arrays_by_input(names: Sequence[str], signature: Signature, where: str) -> dict[str, str]:
    """Which array feeds which input: by name; the only array of any name for a model with one input.

    Raises:
        InputError: ``missing_input``: an input has no array; the message lists both sides.
    """
    inputs = [spec.name for spec in signature.inputs]
    data = [name for name in names if name != LABEL or LABEL in inputs]
    if len(inputs) == 1 and len(data) == 1:
        return {inputs[0]: data[0]}
    missing = [name for name in inputs if name not in data]
    stray = like_label([name for name in names if name not in inputs])
    if stray and (not missing or len(inputs) == 1 == len(data) - 1):
        raise InputError(
            "label_misnamed", f"{where} has no array '{LABEL}', and '{stray}' looks like it.",
            why=f"It holds {', '.join(map(repr, names))}; labels are found by the name '{LABEL}' alone.",
            fix=f"Save it by that name: np.savez('samples.npz', {', '.join(f'{n}=…' for n in inputs)}, {LABEL}=…)",
        )  # fmt: skip
    if missing:
        raise InputError(
            "missing_input", f"{where} has no array for the model's input '{missing[0]}'.",
            why=f"It holds {', '.join(map(repr, names)) or 'nothing'}; the model takes {', '.join(map(str, signature.inputs))}.",
            fix=f"Save the arrays by those names: np.savez('samples.npz', {', '.join(f'{n}=…' for n in inputs)}, label=…)",
        )  # fmt: skip
    return {name: name for name in inputs}


class NpzReader(Reader):
    """Rows of an ``.npz`` as streams: one row of each array is in memory, compressed or not."""

    def __init__(self, path: Path, facts: ModelFacts) -> None:
        self._path = path
        self._archive = Archive(path)
        headers = self._archive.headers
        self._of = arrays_by_input(list(headers), facts.signature, str(path))
        specs = {spec.name: spec for spec in facts.signature.inputs}
        # A scalar (a sample rate, say) is the same for every sample.
        self._same = {n: self._archive.whole(a) for n, a in self._of.items() if headers[a].shape == ()}
        self.count = self._count(headers)
        for name, array in self._of.items():
            if name not in self._same:
                _check_rows(headers[array], specs[name], self._archive.where(array))
        self._labels, self._label_array = self._read_labels(headers, facts)
        unused = sorted(set(headers) - set(self._of.values()) - {LABEL})
        if unused:
            self.warnings = (
                Warn(
                    "unused_arrays",
                    f"{path}: {', '.join(map(repr, unused))} are no inputs of the model and aren't read.",
                ),
            )

    def _count(self, headers: dict[str, Header]) -> int:
        lengths = {array: headers[array].shape[0] for n, array in self._of.items() if n not in self._same}
        if not lengths:
            return 1
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"'{name}' has {count}" for name, count in lengths.items())
            raise InputError(
                "sample_count", f"{self._path}: the arrays hold different numbers of samples: {listed}.",
                why="The first dimension counts the samples, the same ones in every array.",
                fix="Save equally many rows of each; where an input is the same for all samples, repeat it (np.repeat).",
            )  # fmt: skip
        return next(iter(lengths.values()))

    def _read_labels(self, headers: dict[str, Header], facts: ModelFacts) -> tuple[np.ndarray | None, bool]:
        """Class numbers read as a whole, or whether there is an array of labels to stream."""
        header = headers.get(LABEL)
        if header is None or LABEL in self._of.values():
            return None, False
        if not header.shape or header.shape[0] != self.count:
            rows = header.shape[0] if header.shape else 1
            raise InputError(
                "label_count", f"{self._path}: there are {self.count} samples and {rows} labels.",
                why="Each sample has its label: a class number, or an array of the output's shape.",
                fix="Save as many labels as samples, in the same order.",
            )  # fmt: skip
        if len(header.shape) > 1 and int(np.prod(header.shape[1:])) != 1:
            return None, True
        labels = class_numbers(self._archive.whole(LABEL).reshape(-1), facts, f"{self._path}, 'label'")
        if labels.dtype.kind == "i":
            self.classes = labels
        return labels.reshape(header.shape), False

    def rows(self, chosen: Sequence[int] | None) -> Generator[Row, None, None]:
        numbers = list(chosen) if chosen is not None else list(range(self.count or 0))
        streams = {n: self._archive.rows(a, numbers) for n, a in self._of.items() if n not in self._same}
        labels = self._archive.rows(LABEL, numbers) if self._label_array else None
        try:
            for number in numbers:
                inputs = {**self._same, **{name: next(stream) for name, stream in streams.items()}}
                label: Any = next(labels) if labels is not None else None
                if self._labels is not None:
                    label = self._labels[number]
                yield Row(inputs, label, f"{self._path}[{number}]")
        finally:
            self._archive.close()


class NpyReader(Reader):
    """Rows of an ``.npy``, mapped from the file."""

    def __init__(self, path: Path, facts: ModelFacts) -> None:
        self._path = path
        if len(facts.signature.inputs) != 1:
            raise InputError(
                "missing_input", f"{path} holds one array, the model takes {len(facts.signature.inputs)} inputs.",
                why=f"They are {', '.join(map(str, facts.signature.inputs))}.",
                fix="Save an .npz with an array for each: np.savez('samples.npz', NAME=…, NAME=…)",
            )  # fmt: skip
        self._spec = facts.signature.inputs[0]
        self._array = read_array(path)
        if self._array.ndim == 0:
            self._array = self._array[None]
        self.count = len(self._array)
        if self.count:
            form_of(self._array.shape[1:], self._spec, str(path))

    def rows(self, chosen: Sequence[int] | None) -> Generator[Row, None, None]:
        for number in chosen if chosen is not None else range(len(self._array)):
            yield Row({self._spec.name: np.asarray(self._array[number])}, None, f"{self._path}[{number}]")


def _check_rows(header: Header, spec: TensorSpec, where: str) -> None:
    """The shape is judged by the header, before a byte of the values is read."""
    if header.shape[0]:
        form_of(header.shape[1:], spec, where.rstrip(","))
