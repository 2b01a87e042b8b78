"""Which PyTorch Mobile library reads a ``.ptl``: its bytecode version, and the table of what each release takes (T-02)."""

from __future__ import annotations

import pickletools
import zipfile
from typing import IO

# (least, greatest) bytecode version. 1.12.2: kMin/kMaxSupportedBytecodeVersion in the headers of the published AAR; torch 2.15
# still has the same, so 2.1.0 in between has too. 1.9.0: its least, and what it writes; its greatest isn't in the headers.
LIBRARIES = {"2.1.0": (4, 9), "1.12.2": (4, 9), "1.9.0": (3, 5)}

_INTEGERS = frozenset({"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1"})


def bytecode_version(stream: IO[bytes]) -> int | None:
    """The version in a ``.ptl``'s ``bytecode.pkl``, read without unpickling; None when there is none.

    ``bytecode.pkl`` is a tuple whose first element is the version, so the first integer of the pickle is it.
    """
    if not zipfile.is_zipfile(stream):
        return None
    with zipfile.ZipFile(stream) as archive:
        for name in archive.namelist():
            if name.endswith("/bytecode.pkl"):
                return _first_integer(archive.read(name))
    return None


def _first_integer(data: bytes) -> int | None:
    try:
        return next((int(str(arg)) for op, arg, _ in pickletools.genops(data) if op.name in _INTEGERS), None)
    except ValueError:
        return None


def libraries_for(version: int | None) -> tuple[str, ...]:
    """Published libraries that read that bytecode, newest first; all of them when the version isn't known."""
    return tuple(name for name, (low, high) in LIBRARIES.items() if version is None or low <= version <= high)
