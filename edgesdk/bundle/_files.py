"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edgesdk.bundle import _errors


@contextlib.contextmanager
def appearing(path: Path, *, lasting: bool = False) -> Iterator[IO[bytes]]:
    """A new file to write into, which takes its place under ``path`` when the block ends without an error.

    It is written beside its place, so that one rename makes it appear. ``lasting``: it survives a power cut.

    Raises:
        InputError: no such folder, no permission, disk full; whatever lay under ``path`` is still there.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            yield file
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if lasting:
            _sync_folder(path.parent)
    except OSError as exc:
        raise _errors.unwritable(path, exc) from exc
    finally:
        with contextlib.suppress(OSError):  # it has its place already, or never came to be
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the rename last, where folders can be opened at all."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
