"""The seam that every report format fills."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Document = Mapping[str, Any]
Tone = Literal["good", "warn", "bad"]


@dataclass(frozen=True)
class Fact:
    """One labelled value; ``note`` explains it to somebody who has never seen a tensor. ``code`` is set in monospace."""

    label: str
    value: str
    note: str = ""
    code: bool = False


class Format(ABC):
    """One file format. A subclass lives in one file ``as_NAME.py`` that ends with ``FORMAT = ItsClass()``."""

    name: ClassVar[str]
    """The suffix without its dot: ``html``."""

    @abstractmethod
    def text(self, documents: Sequence[Document]) -> str:
        """The whole file's text; the same documents give the same text. Never called with an empty sequence."""
