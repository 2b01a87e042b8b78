"""Small files that a user names beside the model (labels, recipe, key, report), read without waiting or running out of memory."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import IO, Any


def open_file(path: Path) -> IO[bytes]:
    """Open an ordinary file for reading. A pipe could block for ever and a device never end, so both are refused.

    Raises:
        OSError: it is missing, not readable, a folder, a pipe or a device; ``strerror`` says which.
    """
    # Without O_NONBLOCK the mere opening of a pipe waits for a writer.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "It is a folder", str(path))
    raise OSError(errno.EINVAL, "It is a pipe or a device, not an ordinary file", str(path))


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of an ordinary file.

    Raises:
        OSError: see :func:`open_file`.
        ValueError: it is larger than ``limit`` bytes.
    """
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"it is larger than {limit >> 20} MiB")
    return data


def parse_json(data: bytes | str) -> Any:
    """Parsed JSON.

    Raises:
        ValueError: it is no JSON, no Unicode text, or nested so deeply that no document of ours can be meant.
    """
    try:
        return json.loads(data)
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc
