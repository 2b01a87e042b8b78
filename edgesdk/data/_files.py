"""Samples that are files of their own: folders of pictures, sounds or arrays; a folder of class folders carries labels."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgesdk.artifacts import TensorSpec, Warn
from edgesdk.data._classes import numbers_of_names
from edgesdk.data._facts import ModelFacts
from edgesdk.data._locate import DataSource
from edgesdk.data._npy import MAX_SMALL, Archive, read_array
from edgesdk.data._npz import LABEL, arrays_by_input
from edgesdk.data._readers import Reader, Row
from edgesdk.errors import InputError

_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing", "eval", "dev"})
_NOUN = {"image": "pictures", "audio": "sounds"}


class FilesReader(Reader):
    """One sample per file, opened one after the other."""

    def __init__(self, source: DataSource, facts: ModelFacts) -> None:
        self._source, self._facts = source, facts
        self._files = source.files
        self.count = len(self._files)
        if source.kind != "arrays":
            media_input(facts, "image" if source.kind == "images" else "audio", str(source.path))
        warnings = []
        if source.left_out:
            names = ", ".join(file.name for file in source.left_out[:3])
            warnings.append(
                Warn(
                    "files_left_out",
                    f"{source.path}: {len(source.left_out)} files are no samples and were left out: {names}.",
                )
            )
        warning = self._number_classes()
        self.warnings = (*warnings, *([warning] if warning else []))

    def _number_classes(self) -> Warn | None:
        names = self._class_names()
        if names is None:
            return None
        numbers, warning = numbers_of_names(names, self._facts.labels, str(self._source.path))
        self.classes = np.asarray([numbers[name] for name in names], np.int64)
        return warning

    def _class_names(self) -> list[str] | None:
        """The first folder below the root, of each file; None for a flat folder."""
        base = self._source.path
        if not base.is_dir():
            return None
        parts = [file.relative_to(base).parts for file in self._files]
        beside = [p for p in parts if len(p) == 1]
        if len(beside) == len(parts):
            return None
        names = [p[0] for p in parts]
        if beside:
            other = next(p[0] for p in parts if len(p) > 1)
            raise InputError(
                "mixed_folder", f"{base} holds files ({beside[0][0]} …) beside folders ({other} …).",
                why="Class folders are labels, files beside them have none.", fix="Put the files into a folder, or remove them.",
            )  # fmt: skip
        found = set(names)
        if len(found) > 1 and {name.casefold() for name in found} <= _SPLITS:
            raise InputError(
                "split_folder", f"{base} holds the parts {', '.join(sorted(found))} of a data set, not classes.",
                why="Each folder directly below is read as a class.", fix=f"Name one of them: {base / sorted(found)[0]}",
            )  # fmt: skip
        if len(found) == 1 and next(iter(found)) not in (self._facts.labels or ()):
            return None  # pictures in the one folder "images" are not a class
        return names

    def rows(self, chosen: Sequence[int] | None) -> Generator[Row, None, None]:
        for number in chosen if chosen is not None else range(len(self._files)):
            file = self._files[number]
            label = None if self.classes is None else self.classes[number]
            if self._source.kind == "arrays":
                yield _array_row(file, label, self._facts)
            else:
                spec = media_input(self._facts, "image" if self._source.kind == "images" else "audio", str(file))
                yield Row({spec.name: prepared(file, self._facts)}, label, str(file))


def media_input(facts: ModelFacts, kind: str, where: str) -> TensorSpec:
    """The one input that pictures (``image``) or sounds (``audio``) feed.

    Raises:
        InputError: the model's preprocessing isn't known or is of another kind, or the model has further inputs.
    """
    spec = facts.preprocess
    if spec is None:
        fix = f"Say how a picture becomes the input: --image {_side(facts)} --mean … --std … (as in training)"
        raise InputError(
            "no_preprocess", f"{where} holds {_NOUN[kind]}, but how they become the model's input isn't known.",
            why="The model file says nothing about it, and a guess would make wrong ranges.",
            fix=f"{fix}; or save prepared arrays as .npz." if kind == "image" else "Save prepared arrays as .npz.",
        )  # fmt: skip
    if spec.kind != kind:
        raise InputError(
            "wrong_data", f"{where} holds {_NOUN[kind]}, but the model's preprocessing takes {_NOUN.get(spec.kind, spec.kind)}.",
            why="They are prepared in different ways.", fix=f"Name a folder of {_NOUN.get(spec.kind, spec.kind)}, or an .npz.",
        )  # fmt: skip
    inputs = facts.signature.inputs
    fed = next((s for s in inputs if s.name == spec.input), inputs[0])
    others = [s.name for s in inputs if s.name != fed.name]
    if others:
        raise InputError(
            "missing_input", f"{where} feeds '{fed.name}', but the model also takes {', '.join(map(repr, others))}.",
            why="A folder holds one input.",
            fix="Use a .csv with a column for each input (paths of pictures are allowed), or an .npz.",
        )  # fmt: skip
    return fed


def _side(facts: ModelFacts) -> int:
    """Pixels of the model's own input where it is square, for an example of a command."""
    shape = facts.signature.inputs[0].shape or ()
    return shape[-1] if len(shape) == 4 and isinstance(shape[-1], int) and shape[-1] == shape[-2] else 224


def prepared(data: Any, facts: ModelFacts) -> np.ndarray:
    """A picture or sound (path or object) through the model's own preprocessing, batch dimension included."""
    if facts.preprocess is None:
        media_input(facts, "image", str(data))
        raise AssertionError("media_input raises without a preprocessing")
    return facts.preprocess.apply(data)


def _array_row(file: Path, label: Any, facts: ModelFacts) -> Row:
    """A file that holds one sample: an ``.npy`` for one input, an ``.npz`` with an array per input and maybe ``label``."""
    with file.open("rb") as opened:
        is_npy = opened.read(6) == b"\x93NUMPY"
    if is_npy:
        only = _only_input(file, facts)
        array = read_array(file)
        if array.nbytes > MAX_SMALL:
            raise _too_large(file, array.nbytes)
        return Row({only: array}, label, str(file))
    archive = Archive(file)
    try:
        of = arrays_by_input(list(archive.headers), facts.signature, str(file))
        inputs = {name: archive.whole(array) for name, array in of.items()}
        if LABEL in archive.headers and LABEL not in of.values():
            label = _scalar(archive.whole(LABEL))
    finally:
        archive.close()
    return Row(inputs, label, str(file))


def _scalar(label: np.ndarray) -> np.ndarray:
    return label


def _only_input(file: Path, facts: ModelFacts) -> str:
    inputs = facts.signature.inputs
    if len(inputs) == 1:
        return inputs[0].name
    raise InputError(
        "missing_input", f"{file} holds one array, the model takes {len(inputs)} inputs.",
        why=f"They are {', '.join(map(str, inputs))}.", fix="Save one .npz per sample, with the arrays by input name.",
    )  # fmt: skip


def _too_large(file: Path, size: int) -> InputError:
    return InputError(
        "too_large", f"{file} has {size >> 20} MB; a file of a folder holds one sample, at most {MAX_SMALL >> 20} MB.",
        why="Each file is read as a whole.", fix=f"Name the file itself instead of its folder: {file}",
    )  # fmt: skip


def cell_file(path: Path, spec: TensorSpec, facts: ModelFacts, where: str) -> np.ndarray:
    """What a file that a table or dataset names gives for an input: a picture or sound through the preprocessing, an array.

    Raises:
        InputError: missing, unreadable, or of a kind that doesn't feed this input.
    """
    from edgesdk.data._locate import sniff, unreadable

    try:
        kind = sniff(path)
    except FileNotFoundError as exc:
        if re.fullmatch(r"[-+.\deE\s,;]+", path.name):
            raise InputError(
                "bad_cell", f"{where} holds {path.name[:40]!r} for the input '{spec.name}', which is neither a number nor a list.",
                why="A cell with several numbers is read as a list only in brackets.",
                fix=f"Write it as [1, 2, 3] (in double quotes in a .csv), or one number a column: {spec.name}_0, {spec.name}_1, ….",
            ) from exc  # fmt: skip
        raise InputError(
            "missing_file", f"{path} doesn't exist.", why=f"{where} names it for the input '{spec.name}'.",
            fix="Paths are relative to the folder of the table or program that names them; correct them.",
        ) from exc  # fmt: skip
    except OSError as exc:
        raise unreadable(path, exc) from exc
    if kind == "npy":
        return read_array(path)
    if kind not in ("image", "sound"):
        code, what = (
            ("image_unreadable", "a picture, sound or .npy") if kind != "pickle" else ("pickle_refused", "data")
        )
        raise InputError(
            code, f"{path} can't be read as {what}.", why="Its bytes are of another kind, or it is damaged.",
            fix="Put a good file in its place, or drop the row.", details={"path": str(path)},
        )  # fmt: skip
    _check_media(path, kind, spec, facts)
    return prepared(path, facts)


def _check_media(path: Path, kind: str, spec: TensorSpec, facts: ModelFacts) -> None:
    wanted: Mapping[str, str] = {"image": "image", "sound": "audio"}
    if (
        facts.preprocess is not None
        and facts.preprocess.kind == wanted[kind]
        and facts.preprocess.input in (spec.name, None)
    ):
        return
    if facts.preprocess is None:
        media_input(facts, wanted[kind], str(path))
    raise InputError(
        "wrong_data", f"{path} can't feed the input '{spec.name}'.",
        why=f"The model's preprocessing makes {_NOUN[facts.preprocess.kind] if facts.preprocess else 'something'} "
        f"the input '{facts.preprocess.input if facts.preprocess else ''}'.",
        fix="Give numbers or an .npy for the other inputs.",
    )  # fmt: skip
