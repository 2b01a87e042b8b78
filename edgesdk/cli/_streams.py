"""Standard streams that are closed, full, or without a reader: none of them may end a run or hide its exit code."""

from __future__ import annotations

import os
import sys


def open_all() -> None:
    """Put the null device where a standard stream is closed (``edgesdk … >&-``).

    Otherwise the next file that is opened takes the stream's number, and what is printed lands in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


def write(number: int, text: str) -> bool:
    """Write to stdout (1) or stderr (2); False when it can't be written, which then stays silent to the end.

    Raises:
        BrokenPipeError: stdout's reader went away.
    """
    stream = sys.stdout if number == 1 else sys.stderr
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        silence(number)
        if number == 1:
            raise
        return False
    except OSError:
        silence(number)
        return False
    return True


def silence(number: int) -> None:
    """Lead a stream to the null device: what is still buffered must not fail once more when Python ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
