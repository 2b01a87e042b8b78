"""The seam that every target fills: what is lowered for it by default, and the project around the bundle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class Emission:
    """A finished bundle, and what the project around it needs to know.

    Attributes:
        name: NAME of the package, free text; targets derive identifiers from it (``my net.v2`` → ``my_net_v2``).
        bundle: path of ``NAME.edge``, already inside ``folder``'s file system.
        document: the package's JSON object (variants with runtime, backend, file, bytes; signature; labels count).
        manifest: the bundle's manifest as JSON.
    """

    name: str
    version: str
    license: str | None
    bundle: Path
    document: Mapping[str, Any]
    manifest: Mapping[str, Any]


class Target(ABC):
    """One platform. A subclass lives in one file that ends with ``TARGET = ItsClass()``."""

    name: ClassVar[str]
    abis: ClassVar[tuple[str, ...]]
    variants: ClassVar[tuple[tuple[str, str | None], ...]]
    """(runtime, backend) lowered when the user names none."""

    @abstractmethod
    def emit(self, emission: Emission, folder: Path) -> None:
        """Write the platform's project and ``README.md`` (ten lines to paste) into ``folder``, deterministic bytes."""
