"""Reports: one document or several in, one file out, its format chosen by the suffix.

    from edgesdk import report
    report.write(document, Path("report.html"))

A document is the JSON that edgesdk prints: ``edgesdk.package/1`` (and ``report.json``, the same with more fields),
``edgesdk.bench/1``, or an ``.edge`` bundle's manifest (``edgesdk.bundle/1``). A new format is one new file in this folder.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgesdk.errors import InputError, UsageError, nearest
from edgesdk.registry import collect
from edgesdk.report._base import Document, Format

__all__ = ["Document", "Format", "formats", "render", "write"]


@functools.cache
def formats() -> dict[str, Format]:
    """Every format, by suffix without its dot."""
    return collect("edgesdk.report", "FORMAT", Format)  # type: ignore[type-abstract]


def render(document: Document | Sequence[Document], suffix: str) -> str:
    """The report's text in the format of that suffix (``.html``, ``html``).

    Raises:
        UsageError: there is no such format.
        InputError: there is no document, or one of an unknown kind.
    """
    known, name = formats(), suffix.lower().lstrip(".")
    if name not in known:
        raise UsageError(
            "unknown_report_format",
            f"There is no report format '{suffix}'.",
            why=nearest(name, known),
            fix="Choose one by the suffix of -o, e.g. -o report.html",
        )
    documents = [document] if not isinstance(document, Sequence) else list(document)
    if not documents:
        raise InputError(
            "nothing_to_report",
            "There is nothing to report on.",
            why="No document was given.",
            fix="Name at least one report.json, bench result or .edge bundle.",
        )
    return known[name].text(documents)


def write(document: Document | Sequence[Document], path: Path) -> None:
    """Write the report; the format is chosen by ``path``'s suffix. An existing file is replaced only once all is there.

    Raises:
        UsageError: the suffix names no format.
        InputError: there is no document, or one of an unknown kind, or the file can't be written.
    """
    text = render(document, path.suffix or path.name)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as temporary:
            partial = Path(temporary.name)
        try:
            # A lone surrogate (a file name that isn't UTF-8) becomes its escape, which JSON and Python read back.
            partial.write_bytes(text.encode("utf-8", "backslashreplace"))
            partial.chmod(0o666 & ~_umask())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            "cannot_write",
            f"'{path}' can't be written: {error.strerror or error}.",
            why="The folder is missing, read-only or full.",
            fix="Name a file in a folder that exists and can be written to.",
        ) from error


def _umask() -> int:
    """The process's mask; it can only be read by setting it. Temporary files are private, reports are not."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
