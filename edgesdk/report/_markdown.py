"""Free text inside Markdown: nothing of it can act as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from edgesdk.report._base import Fact


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


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells that are Markdown already; nothing when there are no rows."""
    if not rows:
        return []
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows), ""]


def facts(title: str, found: Iterable[Fact]) -> list[str]:
    """A section with a list; nothing when there are none."""
    rows = [
        f"- {text(f.label)}: {code(f.value) if f.code else text(f.value)}{f' ({text(f.note)})' if f.note else ''}"
        for f in found
    ]
    return [f"## {text(title)}", "", *rows, ""] if rows else []
