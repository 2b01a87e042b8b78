"""Free text inside Markdown: nothing of it can act as markup."""

from __future__ import annotations

import re


def line(text: str) -> str:
    """One line: whatever isn't printable, line ends included, becomes a space."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return " ".join("".join(c if c.isprintable() else " " for c in plain).split())


def text(free: str) -> str:
    """Text in a paragraph or table cell, every character that could be markup escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&$])", r"\\\1", line(free))


def code(free: str) -> str:
    """A code span that also holds backticks; a bar is escaped, so that it fits into a table."""
    plain = line(free)
    fence = "`" * (max((len(run) for run in re.findall("`+", plain)), default=0) + 1)
    pad = " " if "`" in plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}".replace("|", "\\|")
