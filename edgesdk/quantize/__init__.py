"""Quantization schemes, found by scanning this folder; see ``_base`` for the seam."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from edgesdk.quantize._base import Scheme
from edgesdk.registry import collect

__all__ = ["Scheme", "find", "schemes"]


@cache
def schemes() -> Mapping[str, Scheme]:
    """Every scheme by its name, with its default settings, in the order in which ``auto`` tries them."""
    found = collect(__name__, "SCHEME", Scheme)
    return {scheme.name: scheme for scheme in sorted(found.values(), key=lambda s: s.cost)}


def find(name: str, options: Mapping[str, Any] | None = None) -> Scheme:
    """The scheme called ``name`` with some settings changed.

    Raises:
        KeyError: there is no such scheme.
        TypeError: a setting that the scheme hasn't.
    """
    return replace(schemes()[name], **(options or {}))
