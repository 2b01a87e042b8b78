"""torch's own loaders, held to what is safe: no unpickling of objects, no tracebacks of theirs in the user's terminal."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from edgesdk.artifacts import Warn

# torch.load(weights_only=True) could be made to run code before 2.6 (CVE-2025-32434) and to corrupt memory before
# 2.10 (CVE-2026-24747).
SAFE_TORCH: Final = (2, 10)
_FORCE: Final = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_FORCE_NOT: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_lock = threading.RLock()


@contextmanager
def force_weights_only() -> Iterator[None]:
    """Every ``torch.load`` inside, also those that torch makes itself with ``weights_only=False``, is a safe one."""
    with _lock:
        before = {name: os.environ.pop(name, None) for name in (_FORCE, _FORCE_NOT)}
        os.environ[_FORCE] = "1"
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


@contextmanager
def quiet_torch() -> Iterator[None]:
    """torch logs whole tracebacks for files that it can't read; our error says what the user needs."""
    loggers = [
        logging.getLogger(name)
        for name in ("torch.export", "torch.export.pt2_archive._package", "torch._export", "torch.utils._pytree")
    ]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def unsafe_torch(version: str) -> tuple[Warn, ...]:
    """A warning when this torch's safe loading had known holes."""
    parts = version.partition("+")[0].split(".")
    found = tuple(int(part) for part in parts[:2] if part.isdigit())
    if len(found) < 2 or found >= SAFE_TORCH:
        return ()
    safe = ".".join(map(str, SAFE_TORCH))
    return (
        Warn(
            "unsafe_torch",
            f"torch {version} has known holes in its safe loading; read untrusted files with torch {safe} or newer.",
        ),
    )
