"""A reader for FlatBuffers by field number, without generated code: ``.pte``, XNNPACK payloads, ``.ort``.

Every offset is checked against the buffer, so a damaged or hostile file ends in :class:`Damaged` and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_ITEMS: Final = 10_000_000

_SIZES: Final = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "f": 4, "d": 8}


class Damaged(ValueError):
    """An offset or a length leads out of the buffer."""


def root(data: bytes | memoryview) -> Table:
    """The outermost table."""
    view = memoryview(data)
    return Table(view, _number(view, 0, "I"))


def _number(data: memoryview, at: int, kind: str) -> int:
    size = _SIZES[kind]
    if at < 0 or at + size > len(data):
        raise Damaged(f"it reads {size} bytes at {at} of {len(data)}")
    value: int = struct.unpack_from("<" + kind, data, at)[0]
    return value


@dataclass(frozen=True)
class Table:
    """One table; ``field`` counts from 0 in the order of the schema (a union takes two: its type, then its value)."""

    data: memoryview
    at: int

    def _place(self, field: int) -> int | None:
        vtable = self.at - _number(self.data, self.at, "i")
        slot = 4 + 2 * field
        if slot + 2 > _number(self.data, vtable, "H"):
            return None
        offset = _number(self.data, vtable + slot, "H")
        return self.at + offset if offset else None

    def number(self, field: int, kind: str, default: int = 0) -> int:
        """A scalar; ``kind`` as in :mod:`struct`."""
        place = self._place(field)
        return default if place is None else _number(self.data, place, kind)

    def table(self, field: int) -> Table | None:
        place = self._place(field)
        return None if place is None else Table(self.data, place + _number(self.data, place, "I"))

    def text(self, field: int) -> str:
        place = self._place(field)
        return "" if place is None else self._text(place + _number(self.data, place, "I"))

    def _text(self, at: int) -> str:
        length = _number(self.data, at, "I")
        if at + 4 + length > len(self.data):
            raise Damaged(f"a text of {length} bytes at {at} is longer than the file")
        return bytes(self.data[at + 4 : at + 4 + length]).decode("utf-8", "replace")

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        """Position of the first item and the number of items."""
        place = self._place(field)
        if place is None:
            return 0, 0
        at = place + _number(self.data, place, "I")
        count = _number(self.data, at, "I")
        if count > MAX_ITEMS or at + 4 + count * size > len(self.data):
            raise Damaged(f"a list of {count} items at {at} is longer than the file")
        return at + 4, count

    def numbers(self, field: int, kind: str) -> tuple[int, ...]:
        at, count = self._vector(field, _SIZES[kind])
        return struct.unpack_from(f"<{count}{kind}", self.data, at) if count else ()

    def length(self, field: int, size: int = 1) -> int:
        """Number of items of a list, without reading them."""
        return self._vector(field, size)[1]

    def blob(self, field: int) -> memoryview:
        at, count = self._vector(field, 1)
        return self.data[at : at + count]

    def tables(self, field: int) -> Iterator[Table]:
        at, count = self._vector(field, 4)
        for i in range(count):
            yield Table(self.data, at + 4 * i + _number(self.data, at + 4 * i, "I"))

    def texts(self, field: int) -> Iterator[str]:
        at, count = self._vector(field, 4)
        for i in range(count):
            yield self._text(at + 4 * i + _number(self.data, at + 4 * i, "I"))
