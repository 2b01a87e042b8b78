"""ONNX files have no magic number; the outermost fields of the protobuf message tell."""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import IO, Final

# onnx.ModelProto: field number → wire type (0 varint, 2 length-delimited)
_FIELDS: Final = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_GRAPH: Final = 7
_MAX_IR: Final = 100
_LOCATION: Final = re.compile(rb"\x0a\x08location\x12([\x01-\xff])", re.DOTALL)


def looks_like_onnx(path: Path, size: int) -> tuple[bool, str | None]:
    """Whether the bytes are an ONNX model, and what is wrong with it when it is one that was cut short.

    Only the lengths of the outermost fields are read, so a model of gigabytes takes no time.
    """
    seen: set[int] = set()
    with path.open("rb") as file:
        while file.tell() < size:
            start = file.tell()
            tag = _varint(file)
            if tag is None or _FIELDS.get(tag >> 3) != tag & 7:
                return _verdict(seen, f"the bytes from {start} on are no ONNX")
            value = _varint(file)
            if value is None or (tag >> 3 == 1 and not 1 <= value <= _MAX_IR):
                return False, None
            seen.add(tag >> 3)
            if tag & 7 == 2:
                if file.tell() + value > size:
                    part = "its graph" if tag >> 3 == _GRAPH else "a part of it"
                    return _verdict(seen, f"{part} claims {value} bytes, the file ends after {size - file.tell()}")
                file.seek(value, 1)
    return ({1, _GRAPH} <= seen, None)


def _verdict(seen: set[int], problem: str) -> tuple[bool, str | None]:
    """Damage is reported only for what surely began as ONNX: a version, and something of a model after it."""
    return (True, problem) if 1 in seen and _GRAPH in seen else (False, None)


def _varint(file: IO[bytes]) -> int | None:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None


def is_file(path: Path) -> bool:
    """As ``Path.is_file``, and False for names that the file system can't hold."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def external_files(path: Path) -> tuple[Path, ...]:
    """Files beside an ONNX model that hold its weights (``external_data``), as far as they lie below its folder.

    The names stand in the message as ``StringStringEntryProto{key: "location", value: NAME}``.
    """
    found: set[Path] = set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _LOCATION.finditer(data):
            start, length = match.end(), match[1][0]
            if length >= 0x80:  # a varint of two bytes: names from 128 to 16383 bytes
                length = (length & 0x7F) | data[start] << 7
                start += 1
            beside = path.parent / data[start : start + length].decode("utf-8", errors="replace")
            if ".." not in beside.parts and is_file(beside):
                found.add(beside)
    return tuple(sorted(found))
