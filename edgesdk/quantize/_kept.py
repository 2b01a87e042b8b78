"""A training is run once for a run: its result lies beside the samples, for every worker and every later lowering."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from edgesdk import modelfile
from edgesdk._disk import writing

if TYPE_CHECKING:
    from edgesdk.artifacts import Model
    from edgesdk.runtimes._base import LowerConfig


def place_of(model: Model, config: LowerConfig) -> Path | None:
    """Where a training of these settings on these samples is kept: beside the samples, for all workers of the run."""
    if config.calibration is None:
        return None
    parts = [modelfile.fingerprint(model), dict(config.options), config.seed, list(config.keep_float)]
    settings = json.dumps(parts, sort_keys=True)
    return config.calibration.with_name(f"qat-{hashlib.sha256(settings.encode()).hexdigest()[:16]}.pt")


@contextlib.contextmanager
def one_at_a_time(place: Path | None) -> Iterator[None]:
    """Runtimes lower side by side; the second to come waits for the training instead of repeating it."""
    if place is None:
        yield
        return
    with FileLock(f"{place}.lock"):
        yield


def read(place: Path | None) -> dict[str, Any] | None:
    import torch

    if place is None or not place.is_file():
        return None
    found: dict[str, Any] = torch.load(place, weights_only=True)
    return found


def write(place: Path | None, kept: dict[str, Any]) -> None:
    """Keep a training. A full disk costs the next one its time, and never the run."""
    import torch

    if place is None:
        return
    temporary = place.with_suffix(".part")
    with contextlib.suppress(OSError):
        with writing(temporary) as file:
            torch.save(kept, file)
        temporary.replace(place)
