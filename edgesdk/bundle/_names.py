"""Which entry names are safe on every file system that a bundle may be unpacked on."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NAME = 255
_PART = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*")
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def unsafe(name: str) -> str | None:
    """None for a safe name, else the reason it is refused.

    ASCII only: Python, Java and Swift then agree on order, case folding and normalisation. No part starts or ends with
    a dot, which also rules out ``.`` and ``..``; backslashes, drive letters, spaces and control characters are no
    permitted characters.
    """
    if not 0 < len(name) <= MAX_NAME:
        return f"has {len(name)} characters, not 1 to {MAX_NAME}"
    for part in name.split("/"):
        if not _PART.fullmatch(part):
            return "has a part that is empty, starts with a dot, or holds another character than A-Z a-z 0-9 _ . @ + -"
        if part.endswith("."):
            return "has a part that ends with a dot"
        if _RESERVED.fullmatch(part):
            return "has a part that is a device's name on Windows"
    return None


def clash(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that can't lie side by side: equal but for case, or one the folder of the other."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            return seen[name.lower()], name
        seen[name.lower()] = name
    for low, name in seen.items():
        parts = low.split("/")
        for end in range(1, len(parts)):
            folder = "/".join(parts[:end])
            if folder in seen:
                return seen[folder], name
    return None
