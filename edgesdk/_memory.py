"""Memory that is free but not given back."""

from __future__ import annotations

import ctypes
import gc
import sys


def give_back() -> None:
    """Collect what only cycles hold, and hand free pages to the system.

    Graphs of torch are cycles that hold tensors of megabytes, which the collector counts as single objects; and glibc keeps
    freed blocks of up to 32 MB for later (mallopt(3), M_MMAP_THRESHOLD).
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl doesn't
        if trim is not None:
            trim(0)
