"""The canonical ZIP: every byte outside the payloads follows from names, sizes, CRCs and alignments."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
LOCAL_MAGIC, CENTRAL_MAGIC, END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"

PAGE = 16384
"""Alignment of payloads that are mapped: the greatest page size of Android and iOS devices."""
SMALL = 64
"""Alignment of everything else: a cache line, and enough for any dtype."""
MAX_BUNDLE = 2**32 - 2
"""ZIP without the ZIP64 extension ends here; phones map less."""

# "Android ZIP Alignment Extra Field": id, length, alignment, zeros. Known to zipalign and apksig.
PADDING_ID = 0xD935
VERSION = 20
MADE_BY = (3 << 8) | VERSION  # Unix, so that unzip gives plain files that can be read
ATTRIBUTES = 0o100644 << 16
DOS_TIME, DOS_DATE = 0, 0x21  # 1980-01-01 00:00:00, the first that ZIP can say


@dataclass(frozen=True)
class Entry:
    """One file: ``crc`` is its CRC-32, ``align`` the multiple its first byte lies on."""

    name: str
    size: int
    crc: int
    align: int = SMALL


@dataclass(frozen=True)
class Placed:
    entry: Entry
    start: int
    """Offset of the local header."""
    data: int
    """Offset of the first payload byte."""

    def local(self) -> bytes:
        e, name = self.entry, self.entry.name.encode("ascii")
        extra = self.data - self.start - LOCAL.size - len(name)
        head = LOCAL.pack(
            LOCAL_MAGIC, VERSION, 0, 0, DOS_TIME, DOS_DATE, e.crc, e.size, e.size, len(name), extra
        )  # fmt: skip
        return head + name + struct.pack("<HHH", PADDING_ID, extra - 4, e.align) + bytes(extra - 6)

    def central(self) -> bytes:
        e, name = self.entry, self.entry.name.encode("ascii")
        return CENTRAL.pack(
            CENTRAL_MAGIC, MADE_BY, VERSION, 0, 0, DOS_TIME, DOS_DATE, e.crc, e.size, e.size, len(name), 0, 0, 0, 0,
            ATTRIBUTES, self.start,
        ) + name  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Where everything lies: entries in file order, then the directory, then the end record."""

    placed: tuple[Placed, ...]
    directory: int
    size: int

    def fixed(self) -> Iterator[tuple[int, bytes, str]]:
        """Every byte that is not payload: (offset, bytes, what it is)."""
        for p in self.placed:
            yield p.start, p.local(), f"the header or padding of '{p.entry.name}'"
        directory = b"".join(p.central() for p in self.placed)
        count, length = len(self.placed), len(directory)
        end = END.pack(END_MAGIC, 0, 0, count, count, length, self.directory, 0)
        yield self.directory, directory, "the directory"
        yield self.directory + length, end, "the end record"


def place(entries: Iterable[Entry]) -> Layout:
    """Lay entries out one after another, without gaps but for the alignment."""
    placed, at, names = [], 0, 0
    for entry in entries:
        least = at + LOCAL.size + len(entry.name) + 6
        data = -(-least // entry.align) * entry.align
        placed.append(Placed(entry, at, data))
        at, names = data + entry.size, names + len(entry.name)
    return Layout(tuple(placed), at, at + len(placed) * CENTRAL.size + names + END.size)
