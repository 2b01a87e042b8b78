"""Files that PyTorch writes, and what is said when a disk is full."""

from __future__ import annotations

import contextlib
import errno
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from edgesdk.errors import EdgeError, InputError


class _Patient(io.RawIOBase):
    """A file whose writes never fail: the first failure is kept for later.

    PyTorch's writer of archives (2.15) meets a failed write with a RuntimeError about positions, and with the end of the
    process when it is freed: its destructor writes once more, and throws.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.failure is None:
            try:
                self._file.write(data)
            except OSError as failure:
                self.failure = failure
        return size

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Asked for when all is written, to read it again; nobody does."""
        return offset


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Any]:
    """A file for ``torch.save``, ``torch.export.save`` and ``torch.jit.save``; none is left when the block fails.

    Raises:
        OSError: the disk is full, and the like; it names the file.
    """
    try:
        with path.open("wb") as file:
            patient = _Patient(file)
            yield patient
        if patient.failure:
            raise patient.failure
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and not error.filename:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


_OUTPUT = "choose another place with -o"


def elsewhere(folder: Path) -> str:
    """What to do to have a temporary folder on another disk."""
    from edgesdk import cache

    in_cache = folder.absolute().is_relative_to(cache.root().absolute())
    return f"put {'the cache' if in_cache else 'temporary files'} on another disk ({_variable(in_cache)}=FOLDER)"


def _variable(in_cache: bool) -> str:
    return "EDGESDK_CACHE_DIR" if in_cache else "TMPDIR"


def disk_error(error: OSError, where: str = "the output folder", otherwise: str = _OUTPUT) -> EdgeError | None:
    """The error a user can act on behind an OSError (disk full, no permission, read-only), else None.

    Args:
        where: what was written to, in words, when the error names no file.
        otherwise: how another place is chosen for it.
    """
    written = error.filename2 or error.filename  # of a copy, the second one
    where = str(written or where)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InputError(
            "disk_full", f"The disk is full; {where} could not be written.", why="No space is left on its file system.",
            fix=f"Free some space ('edgesdk cache clean' helps), or {otherwise}.",
        )  # fmt: skip
    if error.errno == errno.EFBIG:
        return InputError(
            "file_too_large", f"{written or 'A file'} grew beyond the largest file that is allowed here.",
            why="The file system has such a limit, or the shell has (ulimit -f).",
            fix=f"Raise the limit: ulimit -f unlimited; or {otherwise}.",
        )  # fmt: skip
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return InputError(
            "no_permission", f"{error.filename or where} may not be read or written.",
            why="The file's or folder's permissions don't allow it, or the file system is read-only.",
            fix=f"Change its permissions, or {otherwise}.",
        )  # fmt: skip
    return None


_WRITER = re.compile(r"inline_container|PytorchStreamWriter|failed writing|file write failed", re.IGNORECASE)


def writer_error(error: BaseException, where: str, otherwise: str) -> EdgeError | None:
    """The same behind the words of PyTorch's writer of archives, which knows positions only."""
    if not isinstance(error, RuntimeError) or not _WRITER.search(str(error)):
        return None
    return InputError(
        "disk_full", f"A file of PyTorch's could not be written into {where}.",
        why="The disk was full meanwhile, or a limit was reached (a quota, ulimit -f).",
        fix=f"Free some space ('edgesdk cache clean' helps), raise the limit, or {otherwise}.",
    )  # fmt: skip
