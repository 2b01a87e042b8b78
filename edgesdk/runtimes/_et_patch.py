"""Changing foreign code safely: only sources that were read and tested, only for the length of a block."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Swap(NamedTuple):
    """``setattr(owner, name, new)``, undone at the end of the block."""

    owner: Any
    name: str
    new: Any


@contextlib.contextmanager
def swapped(swaps: Sequence[Swap]) -> Iterator[None]:
    """Set the attributes, and set them back whatever happens."""
    old = [(swap.owner, swap.name, vars(swap.owner)[swap.name]) for swap in swaps]
    try:
        for owner, name, new in swaps:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, value in old:
            setattr(owner, name, value)


@functools.cache
def root(package: str) -> Path | None:
    """Folder of a top-level package, found without importing it."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def fingerprint(files: Sequence[str]) -> str | None:
    """sha256 over the sources, each written ``package:path/in/it.py``; None when one is missing."""
    digest = hashlib.sha256()
    for name in files:
        package, _, path = name.partition(":")
        folder = root(package)
        if folder is None or not (folder / path).is_file():
            return None
        digest.update((folder / path).read_bytes())
    return digest.hexdigest()
