"""A package's name becomes file names, and its version and licence become lines of other formats: what may stand in them."""

from __future__ import annotations

import re

MAX_NAME_BYTES = 200
"""In UTF-8; file systems end at 255, and ``.edge`` and the marks of temporary folders must fit behind it."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff/\\]")


def name_problem(name: str) -> str | None:
    """None for a name that can be a file's, else what is wrong with it (continues "--name is X, but …")."""
    if not name.strip():
        return "must not be empty"
    if name in (".", ".."):
        return "must not be the name of a folder"
    if _UNFIT.search(name):
        return "must hold no slash, backslash, line break or other character that no file name may hold"
    if len(name.encode("utf-8")) > MAX_NAME_BYTES:
        return f"must have at most {MAX_NAME_BYTES} bytes"
    return None


def line_problem(text: str, longest: int) -> str | None:
    """None for one line of text, else what is wrong with it."""
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", text):
        return "must be one line of text"
    if len(text) > longest:
        return f"must have at most {longest} characters"
    return None


def safe_name(stem: str) -> str:
    """The name of a package whose name nobody chose, from the model's: what can't be in a file's name is replaced."""
    name = _UNFIT.sub("_", stem).strip()
    while len(name.encode("utf-8")) > MAX_NAME_BYTES:
        name = name[:-1]
    return "model" if name_problem(name) else name
