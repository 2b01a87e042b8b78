"""What a native library needs of others, and offers them: the names that the loader looks up when it loads the library."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# Libraries that every Android has and apps may use (NDK, "native APIs"); a library that needs another must bring it along.
SYSTEM = frozenset(
    f"lib{name}.so"
    for name in (
        "EGL", "GLESv1_CM", "GLESv2", "GLESv3", "OpenMAXAL", "OpenSLES", "aaudio", "amidi", "android", "binder_ndk",
        "c", "camera2ndk", "dl", "icu", "jnigraphics", "log", "m", "mediandk", "nativehelper", "nativewindow",
        "neuralnetworks", "stdc++", "sync", "vulkan", "z",
    )
)  # fmt: skip

_DYNAMIC, _DYNSYM = 6, 11  # SHT_*
_NEEDED = 1  # DT_NEEDED
_GLOBAL, _WEAK = 1, 2  # STB_*
_UNIQUE = 10  # STB_GNU_UNIQUE


@dataclass(frozen=True)
class Links:
    """``needed``: file names; ``wanted``: C++ names that others must offer; ``offered``: names that others may use.

    Names of C functions are not in ``wanted``: they may be Android's own, and which of them a device has is its own affair.
    """

    needed: tuple[str, ...] = ()
    wanted: frozenset[str] = frozenset()
    offered: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def read(data: bytes) -> Links:
    """Of a whole ELF file; empty for one without a table of sections, and for anything else."""
    if len(data) < 64 or data[:4] != b"\x7fELF" or data[4] not in (1, 2) or data[5] not in (1, 2):
        return Links()
    wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
    try:
        sections = list(_sections(data, wide, order))
        needed = tuple(
            _text(data, sections[part.link], value)
            for part in sections
            if part.kind == _DYNAMIC
            for tag, value in struct.iter_unpack(f"{order}{'qQ' if wide else 'iI'}", _bytes(data, part))
            if tag == _NEEDED
        )
        symbols = [
            one for part in sections if part.kind == _DYNSYM for one in _symbols(data, part, sections, wide, order)
        ]
    except (struct.error, IndexError, ValueError, OverflowError):  # cut off or damaged
        return Links()
    return Links(
        needed,
        frozenset(name for name, bind, here in symbols if not here and bind == _GLOBAL and name.startswith("_Z")),
        frozenset(name for name, bind, here in symbols if here and bind in (_GLOBAL, _WEAK, _UNIQUE)),
    )


def _sections(data: bytes, wide: bool, order: str) -> Iterator[_Section]:
    (start,) = struct.unpack_from(f"{order}{'Q' if wide else 'I'}", data, 40 if wide else 32)
    size, count = struct.unpack_from(f"{order}HH", data, 58 if wide else 46)
    for index in range(count):
        _, kind, _, _, offset, length, link = struct.unpack_from(
            f"{order}{'IIQQQQI' if wide else 'IIIIIII'}", data, start + index * size
        )
        yield _Section(kind, offset, length, link)


def _symbols(
    data: bytes, part: _Section, sections: list[_Section], wide: bool, order: str
) -> Iterator[tuple[str, int, bool]]:
    """Name, binding, and whether it is defined here."""
    for fields in struct.iter_unpack(f"{order}{'IBBHQQ' if wide else 'IIIBBH'}", _bytes(data, part)):
        name, info, section = (fields[0], fields[1], fields[3]) if wide else (fields[0], fields[3], fields[5])
        if name:
            yield _text(data, sections[part.link], name), info >> 4, section != 0


def _bytes(data: bytes, part: _Section) -> bytes:
    return data[part.offset : part.offset + part.size]


def _text(data: bytes, strings: _Section, at: int) -> str:
    start = strings.offset + at
    return data[start : data.index(0, start)].decode()
