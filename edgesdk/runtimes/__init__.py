"""Runtimes by name. Each is one file in this folder; see ``_base.EdgeRuntime`` for the contract."""

from __future__ import annotations

import functools

from edgesdk.errors import MissingToolError, UsageError, nearest
from edgesdk.registry import collect
from edgesdk.runtimes._base import EdgeRuntime, LowerConfig, Runner

__all__ = ["EdgeRuntime", "LowerConfig", "Runner", "find", "runtimes"]


@functools.cache
def runtimes() -> dict[str, EdgeRuntime]:
    """Every runtime, by name; the test double ``null`` included."""
    return collect("edgesdk.runtimes", "RUNTIME", EdgeRuntime)  # type: ignore[type-abstract]


def find(name: str) -> EdgeRuntime:
    """The runtime of that name.

    Raises:
        UsageError: no runtime is called that.
    """
    known = runtimes()
    if name not in known:
        raise UsageError(
            "unknown_runtime", f"There is no runtime '{name}'.", why=nearest(name, [n for n in known if n != "null"]),
            fix="Choose one of them with --runtime.",
        )  # fmt: skip
    return known[name]


def require(runtime: EdgeRuntime) -> None:
    """Refuse with the install command when the runtime's libraries are absent.

    Raises:
        MissingToolError: they are.
    """
    sentence = runtime.missing()
    if sentence:
        raise MissingToolError(
            "runtime_missing", sentence, why=f"The {runtime.name} runtime is an optional part of edgesdk.",
            fix=f"Install it: pip install 'edgesdk[{runtime.name}]'",
        )  # fmt: skip
