"""What the user says about pictures, labels and licence, laid over what the model itself says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgesdk.artifacts import Model, TensorSpec
from edgesdk.bundle.manifest import MAX_LABELS
from edgesdk.errors import InputError, UsageError
from edgesdk.reading import parse_json, read_bytes

_MAX_LABELS_BYTES = 16 * 2**20
_LONGEST_LABEL = 1024
_UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""What the manifest's ``Label`` forbids, and halves of surrogate pairs, which UTF-8 can't write."""


def read_labels(path: Path) -> tuple[str, ...]:
    """Class names from a text file, one per line, or a JSON list, in the order of the class numbers.

    Raises:
        InputError: the file can't be read, is too large, or holds something else.
    """
    try:
        text = read_bytes(path, _MAX_LABELS_BYTES).decode("utf-8-sig")
    except OSError as exc:
        raise _bad_labels(path, f"{exc.strerror or exc}.") from exc
    except UnicodeDecodeError as exc:
        raise _bad_labels(path, "It is no UTF-8 text.") from exc
    except ValueError as exc:
        raise _bad_labels(path, f"The file can't be taken: {exc}.") from exc
    if text.lstrip().startswith("["):
        try:
            found = parse_json(text)
        except ValueError as exc:
            raise _bad_labels(path, f"It begins like a JSON list but isn't one: {exc}.") from exc
        if not all(isinstance(word, str) for word in found):
            raise _bad_labels(path, "The JSON list holds something that is no string.")
        labels = tuple(found)
    else:
        labels = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not labels:
        raise _bad_labels(path, "It holds no label.")
    _check_each(path, labels)
    return labels


def _check_each(path: Path, labels: Sequence[str]) -> None:
    """What a manifest can't hold is said here, with the label's number, and before any work."""
    if len(labels) > MAX_LABELS:
        raise _bad_labels(path, f"It holds {len(labels)} labels; a bundle holds at most {MAX_LABELS}.")
    for number, label in enumerate(labels, 1):
        if len(label) > _LONGEST_LABEL:
            raise _bad_labels(path, f"Label {number} has {len(label)} characters, more than {_LONGEST_LABEL}.")
        if _UNPRINTABLE.search(label):
            raise _bad_labels(
                path, f"Label {number}, {ascii(label)}, holds a line break or a character that can't be shown."
            )


def _bad_labels(path: Path, why: str) -> InputError:
    return InputError(
        "bad_labels", f"The labels file {path} can't be used.", why=why,
        fix="Write one label per line, or a JSON list of strings, in the order of the class numbers.",
    )  # fmt: skip


def with_user_words(
    model: Model, *, preprocess: Mapping[str, Any] | None, labels: Sequence[str] | None, license: str | None
) -> Model:
    """The model with the options' preprocessing, labels and licence.

    Args:
        preprocess: values of ``--image --resize --mean --std --interpolation`` by name; None where not given.

    Raises:
        UsageError: pictures don't fit the model's inputs.
        InputError: the number of labels isn't the number of classes.
    """
    if preprocess:
        if model.preprocess is None and not (preprocess.get("mean") or preprocess.get("std")):
            model = model.warned(
                "no_normalisation",
                "Pictures are only scaled to 0…1, since neither --mean nor --std is given. Most vision networks were trained "
                "with a mean and a standard deviation: give theirs, or the answers are wrong.",
            )
        model = replace(model, preprocess=_merged(model, preprocess))
    if model.preprocess is not None:
        model = replace(model, preprocess=model.preprocess.bind(model.signature.inputs, adapt=not preprocess))
    if labels:
        _check_labels(model, labels)
        model = replace(model, labels=tuple(labels))
    return replace(model, license=license or model.license)


def _merged(model: Model, said: Mapping[str, Any]) -> Any:
    from edgesdk.preprocess import ImageSpec, PreprocessSpec

    base = model.preprocess if isinstance(model.preprocess, ImageSpec) else None
    height, width, channels = _picture_input(model)
    size = said.get("image") or (height, width)
    resize = said.get("resize") or (base.resize.mode if base and base.resize else "shorter")
    interpolation = said.get("interpolation") or (base.resize.interpolation if base and base.resize else "bilinear")
    mean = said.get("mean") or (base.mean if base else None)
    std = said.get("std") or (base.std if base else None)
    return PreprocessSpec.from_options(size, resize, mean, std, interpolation, channels)


def _picture_input(model: Model) -> tuple[int, int, int]:
    """(height, width, channels) of the first input that can hold a picture."""
    for spec in model.signature.inputs:
        if spec.shape and len(spec.shape) == 4 and spec.dtype.startswith("float"):
            channels, height, width = (_fixed(d) for d in spec.shape[1:])
            if channels in (1, 3):
                return height, width, channels
    given = ", ".join(map(str, model.signature.inputs))
    raise UsageError(
        "no_picture_input", "--image and its kin need a model that takes a picture.",
        why=f"No input has the shape [N,1,H,W] or [N,3,H,W]; it takes {given}.",
        fix="Leave --image, --mean, --std, --resize and --interpolation out.",
    )  # fmt: skip


def _fixed(size: Any) -> int:
    return size if isinstance(size, int) else int(size.max)


def _check_labels(model: Model, labels: Sequence[str]) -> None:
    first = class_output(model.signature.outputs)
    if first is None or first.shape is None:
        return
    classes = first.shape[-1]
    if isinstance(classes, int) and classes not in (1, len(labels)):
        raise InputError(
            "labels_mismatch", f"There are {len(labels)} labels for {classes} classes.",
            why=f"Output {first} has {classes} scores, and each needs a name.",
            fix="Hand in the labels file that the model was trained with.",
        )  # fmt: skip


def class_output(outputs: Sequence[TensorSpec]) -> TensorSpec | None:
    """The output that holds class scores ``[N, K]``, if there is one."""
    for spec in outputs:
        if spec.shape is not None and len(spec.shape) == 2 and spec.dtype.startswith(("float", "bfloat")):
            return spec
    return None
