"""NumPy's file format read row by row: no pickle, nothing allocated on a header's word alone."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgesdk.errors import InputError

MAX_HEADER = 10_000
MAX_SMALL = 256 << 20
"""Bytes of an array that is read as a whole (labels, the sample of a file of its own)."""
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    KeyError,
)


@dataclass(frozen=True)
class Header:
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    offset: int

    @property
    def bytes(self) -> int:
        size = self.dtype.itemsize
        for side in self.shape:
            size *= side
        return size

    @property
    def row_bytes(self) -> int:
        return self.bytes // self.shape[0] if self.shape and self.shape[0] else 0


def read_header(file: IO[bytes], where: str) -> Header:
    """The header at the file's beginning; the file then stands at the first value.

    Raises:
        InputError: ``pickle_refused`` for arrays of Python objects, ``damaged_file`` for a header that can't be read.
    """
    try:
        version = np.lib.format.read_magic(file)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = reader(file, max_header_size=MAX_HEADER)
    except (*UNREADABLE, SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError) as exc:
        raise _damaged(where, f"its header can't be read ({str(exc)[:200]})") from exc
    if dtype.hasobject:
        raise InputError(
            "pickle_refused", f"{where} holds Python objects, which edgesdk doesn't open.",
            why="NumPy stores them as a pickle, and opening a pickle runs whatever code stands in it.",
            fix="Save numbers of one shape; samples of different lengths go into a folder, one .npz each.",
        )  # fmt: skip
    if any(side < 0 for side in shape):
        raise _damaged(where, f"its header claims the shape {list(shape)}")
    return Header(tuple(int(side) for side in shape), dtype, bool(fortran), file.tell())


def _damaged(where: str, what: str) -> InputError:
    return InputError(
        "damaged_file", f"{where} is damaged: {what}.", why="The copy was probably cut short, or changed afterwards.",
        fix="Write the file again with np.save or np.savez.",
    )  # fmt: skip


def read_array(path: Path) -> np.ndarray:
    """An ``.npy`` as a read-only map of the file: nothing is read before it is used.

    Raises:
        InputError: pickled, damaged, or cut short.
    """
    with path.open("rb") as file:
        header = read_header(file, str(path))
    size = path.stat().st_size
    if header.offset + header.bytes > size:
        raise _damaged(
            str(path), f"its header claims {header.bytes} bytes of values, the file has {size - header.offset}"
        )
    if not header.bytes:
        return np.zeros(header.shape, header.dtype)
    order: Any = "F" if header.fortran else "C"
    shape = header.shape or (1,)
    mapped = np.memmap(path, header.dtype, "r", offset=header.offset, shape=shape, order=order)
    return np.asarray(mapped).reshape(header.shape) if not header.shape else np.asarray(mapped)


class Archive:
    """An ``.npz``: the headers of its arrays, and their rows as a stream.

    Raises:
        InputError: damaged, encrypted, holds a name twice, or a header that lies about the size.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except UNREADABLE as exc:
            raise _damaged(str(path), f"its table of contents can't be read ({exc})") from exc
        self.headers: dict[str, Header] = {}
        for info in self._zip.infolist():
            self._add(info)

    def _add(self, info: zipfile.ZipInfo) -> None:
        name = info.filename.removesuffix(".npy")
        where = self.where(name)
        if name in self.headers:
            raise _damaged(str(self.path), f"it holds the array '{name}' twice")
        try:
            with self._zip.open(info) as file:
                header = read_header(file, where)
        except UNREADABLE as exc:
            raise _damaged(where, str(exc)) from exc
        if header.offset + header.bytes != info.file_size:
            raise _damaged(
                where, f"its header claims {header.bytes} bytes of values, it has {info.file_size - header.offset}"
            )
        self.headers[name] = header

    def where(self, name: str) -> str:
        return f"{self.path}, array '{name}',"

    def whole(self, name: str) -> np.ndarray:
        """A small array.

        Raises:
            InputError: ``too_large``: more than :data:`MAX_SMALL` bytes.
        """
        header = self.headers[name]
        if header.bytes > MAX_SMALL:
            raise InputError(
                "too_large", f"{self.where(name)} has {header.bytes >> 20} MB; at most {MAX_SMALL >> 20} MB are read at once.",
                why="It is read as a whole.", fix="Save samples first in one array each, or cut it into files.",
            )  # fmt: skip
        try:
            with self._zip.open(f"{name}.npy") as file:
                file.read(header.offset)
                data = _exactly(file, header.bytes)
        except UNREADABLE as exc:
            raise _damaged(self.where(name), str(exc)) from exc
        order: Any = "F" if header.fortran else "C"
        return np.frombuffer(data, header.dtype).reshape(header.shape, order=order)

    def rows(self, name: str, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        """Those rows (ascending) of an array, one at a time in memory."""
        header = self.headers[name]
        if header.fortran and len(header.shape) > 1:  # its rows aren't contiguous
            whole = self.whole(name)
            yield from (whole[i] for i in chosen)
            return
        size, at = header.row_bytes, 0
        try:
            with self._zip.open(f"{name}.npy") as file:
                file.read(header.offset)
                for index in chosen:
                    _skip(file, (index - at) * size)
                    yield np.frombuffer(_exactly(file, size), header.dtype).reshape(header.shape[1:])
                    at = index + 1
        except UNREADABLE as exc:
            raise _damaged(self.where(name), str(exc)) from exc

    def close(self) -> None:
        self._zip.close()


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise EOFError("the values end too early")
    return data


def _skip(file: IO[bytes], size: int) -> None:
    while size > 0:
        got = len(file.read(min(size, 1 << 20)))
        if not got:
            raise EOFError("the values end too early")
        size -= got
