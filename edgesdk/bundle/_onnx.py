"""Where an ``.onnx`` keeps its weights: read from the protobuf alone, without onnx and without loading tensors.

ONNX Runtime opens the files that external-data fields name. A bundle's model may only name files of its own variant.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgesdk.bundle import _errors
from edgesdk.bundle.manifest import Variant
from edgesdk.errors import InputError

if TYPE_CHECKING:
    from edgesdk.bundle.archive import EdgeBundle

MAX_NESTING = 64
_KEY = re.compile(b"location")
"""The key that every external tensor has: without it anywhere in the file there is nothing to look for."""

_ORT = b"ORTM"
"""The file identifier of ONNX Runtime's flatbuffer (``ort.fbs``)."""
_TAG = 2**32 - 1
"""protobuf cuts a tag to 32 bits: what a longer one says above them must not hide its field from us."""

# Field numbers of onnx.proto that lead to tensors: message → {field: message}.
_PATHS = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 11: "Attribute"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Tensor": {13: "Entry"},
    "Entry": {},
}


def check_external_data(bundle: EdgeBundle, variant: Variant) -> None:
    """Refuse a variant whose model names files other than its own ``extra_files``.

    ONNX Runtime has a format of its own without such fields. It knows one in a file by the suffix ``.ort``, one in
    memory by its first bytes: only what is one by both is left out, everything else is read as a protobuf.

    Raises:
        InputError: it does, or it may do so and the protobuf is damaged.
    """
    if variant.runtime != "onnx":
        return
    folder = posixpath.dirname(variant.file)
    with bundle.file(variant.file) as view:
        if variant.file.endswith(".ort") and view[4:8] == _ORT:
            return
        try:
            named = set(locations(view)) if _KEY.search(view) else set()
        except ValueError as exc:
            raise _errors.corrupt(bundle.path, f"'{variant.file}' is no ONNX file ({exc})") from exc
    for location in sorted(named):
        if posixpath.join(folder, location) not in variant.extra_files:
            raise InputError(
                "external_data_outside",
                f"'{variant.file}' of {bundle.path} reads its weights from {location!r}, which is not part of the variant.",
                why="A bundle may not make the engine open other files of this machine.", fix=_errors.AGAIN,
            )  # fmt: skip


def locations(model: memoryview) -> Iterator[str]:
    """The ``location`` of every external tensor of a serialised ModelProto.

    Raises:
        ValueError: the bytes are no protobuf.
    """
    stack: list[tuple[memoryview, str, int]] = [(model, "Model", 0)]
    while stack:
        data, kind, depth = stack.pop()
        if depth > MAX_NESTING:
            raise ValueError(f"graphs are nested deeper than {MAX_NESTING} levels")
        texts = {}
        for number, value in _fields(data):
            inner = _PATHS[kind].get(number)
            if inner:
                stack.append((value, inner, depth + 1))
            elif kind == "Entry" and number in (1, 2):
                texts[number] = bytes(value)
        if texts.get(1) == b"location":
            yield texts.get(2, b"").decode("utf-8", "replace")


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The length-delimited fields of one message; others are skipped."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        tag &= _TAG
        wire = tag & 7
        if wire == 0:
            _, at = _varint(data, at)
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if at + size > len(data):
            raise ValueError("a field is longer than the file")
        if wire == 2:
            yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("it ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than ten bytes")
