"""Targets by name. Each is one file in this folder; see ``_base.Target`` for the contract."""

from __future__ import annotations

import functools

from edgesdk.errors import UsageError, nearest
from edgesdk.registry import collect
from edgesdk.targets._base import Emission, Target

__all__ = ["Emission", "Target", "find", "targets"]


@functools.cache
def targets() -> dict[str, Target]:
    """Every target, by name."""
    return collect("edgesdk.targets", "TARGET", Target)  # type: ignore[type-abstract]


def find(name: str) -> Target:
    """The target of that name.

    Raises:
        UsageError: no target is called that.
    """
    known = targets()
    if name not in known:
        raise UsageError(
            "unknown_target",
            f"There is no target '{name}'.",
            why=nearest(name, known),
            fix="Choose one of them with --target.",
        )
    return known[name]
