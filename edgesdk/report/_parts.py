"""What a bundle's bytes are: files of the model, recorded calls, and the rest. In a small model the rest is the most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgesdk.report import _words

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    name: str
    bytes: int
    size: str
    share: str


@dataclass(frozen=True)
class Parts:
    """``total`` is the bundle's size in words, empty when the document doesn't know it."""

    rows: tuple[Part, ...]
    total: str
    words: str

    @property
    def pairs(self) -> tuple[tuple[str, float], ...]:
        return tuple((part.name, float(part.bytes)) for part in self.rows)


def view(found: Json) -> Parts | None:
    """None when the document doesn't say (it is older than this split)."""
    told: Json = found.get("bundle_parts") or {}
    known = [
        (name, int(told[key]))
        for key, name in (("models", "Model files"), ("golden", "Golden vectors"), ("rest", "Manifest and padding"))
        if isinstance(told.get(key), int)
    ]
    total = sum(size for _, size in known)
    if not total:
        return None
    rows = tuple(Part(name, size, _words.size(size), _words.percent(size / total)) for name, size in known)
    return Parts(rows, _words.size(total) if "rest" in told else "", _sentence(told, found.get("golden")))


def _sentence(told: Json, golden: Any) -> str:
    count = golden if isinstance(golden, int) else len(golden or ())
    if not told.get("golden"):
        return "It holds no golden vectors."
    calls = "one recorded call" if count == 1 else f"{count} recorded calls" if count else "recorded calls"
    models = told.get("models") or 0
    most = told["golden"] > models
    more = " They are larger than the model here: as the inputs are, whatever the model's size." if most else ""
    return (
        f"Golden vectors are {calls}, inputs with the original's answers, which a device repeats to test itself.{more}"
    )
