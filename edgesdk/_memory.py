"""Memory that is free but not given back, or held and not needed for now."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

_LARGE = 1 << 16
"""Bytes from which a tensor is worth moving."""
_sparing: list[bool] = []


def give_back() -> None:
    """Collect what only cycles hold, and hand free pages to the system.

    Graphs of torch are cycles that hold tensors of megabytes, which the collector counts as single objects; and glibc keeps
    freed blocks of up to 32 MB for later (mallopt(3), M_MMAP_THRESHOLD).
    """
    gc.collect()
    trim()


def trim() -> None:
    """Hand free pages to the system, without a collection; takes milliseconds."""
    if sys.platform == "linux":
        native = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl doesn't
        if native is not None:
            native(0)


@contextlib.contextmanager
def frugal(wanted: bool) -> Iterator[None]:
    """Within the block :func:`park` and :func:`relieve` work, and at its end what is free is given back.

    Both take time (a collection 0.3 s and more): for runs that quantize, where one process holds several forms of a model.
    """
    if not wanted:
        yield
        return
    _sparing.append(True)
    try:
        with tight():
            yield
            give_back()
    finally:
        _sparing.pop()


@contextlib.contextmanager
def tight() -> Iterator[None]:
    """Within the block large blocks go back to the system as soon as they are freed: engines load weights in several forms."""
    _returned_from(1 << 20)
    try:
        yield
    finally:
        _returned_from(1 << 25)


def _returned_from(size: int) -> None:
    """Blocks from this size go back to the system when they are freed; others fill the gaps that they leave.

    glibc begins with 128 kB and raises it up to 32 MB by itself, which is faster: new pages must be zeroed.
    """
    native = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if native is not None:
        native(_MMAP_THRESHOLD, size)
        native(_TRIM_THRESHOLD, 2 * size)  # in the proportion that glibc keeps by itself


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""``M_TRIM_THRESHOLD`` and ``M_MMAP_THRESHOLD`` of glibc's malloc.h."""


def relieve() -> None:
    """:func:`give_back`, when memory is to be spared: before a step that needs much of it."""
    if _sparing:
        give_back()


def park(tensors: Iterable[Any]) -> None:
    """Move torch tensors to a file that is mapped in their place, when memory is to be spared.

    Their pages are read when somebody looks at them: weights that are needed only if a later step fails cost no memory.
    The file has no name, and goes when the last tensor does.
    """
    if not _sparing:
        return
    import numpy as np
    import torch

    chosen = {id(t): t for t in tensors if _movable(t)}.values()
    with tempfile.TemporaryFile() as file:
        places = [(tensor, _append(file, tensor)) for tensor in chosen]
        file.flush()
        for tensor, place in places:
            size = tensor.numel() * tensor.element_size()
            mapped = torch.from_numpy(np.memmap(file, np.uint8, "c", place, (size,)))
            tensor.data = mapped.view(tensor.dtype).view(tensor.shape)


def _movable(tensor: Any) -> bool:
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
        return False
    plain = tensor.layout is torch.strided and tensor.is_contiguous() and not tensor.is_quantized
    return plain and tensor.numel() * tensor.element_size() >= _LARGE


def _append(file: Any, tensor: Any) -> int:
    """Write a tensor at a multiple of 64 bytes, as torch aligns its own; where it begins."""
    import torch

    file.write(b"\0" * (-file.tell() % 64))
    place: int = file.tell()
    file.write(tensor.detach().view(-1).view(torch.uint8).numpy().data)
    return place
