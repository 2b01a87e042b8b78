"""Where a verb's words go: the answer to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import json as jsonlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk.cli import _progress
from edgesdk.cli._errors import coloured
from edgesdk.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


class Output:
    """The streams of one command.

    Raises:
        UsageError: ``--quiet`` and ``--verbose`` together.
    """

    def __init__(self, json: bool, quiet: bool, verbose: bool) -> None:
        if quiet and verbose:
            raise UsageError(
                "bad_usage", "--quiet and --verbose contradict each other.", why="One asks for less, the other for more.",
                fix="Leave one of them out.",
            )  # fmt: skip
        self.json, self.quiet, self.verbose = json, quiet, verbose

    @contextlib.contextmanager
    def working(self) -> Iterator[_progress.Quiet | _progress.Plain | _progress.Live]:
        """Progress while a library works. Whatever it writes to stdout meanwhile goes to stderr: stdout is the answer's.

        Redirection is done on the file descriptor, since native code and worker processes know no ``sys.stdout``.
        """
        bar = _progress.progress(self.quiet, self.verbose)
        with _stdout_to_stderr(), _python_warnings(self.verbose):
            try:
                yield bar
            finally:
                bar.done()

    def answer(self, document: Mapping[str, Any], show: Callable[[Console], None], brief: str = "") -> None:
        """Print the answer: the JSON object, ``brief`` when quiet (if there is one), or what ``show`` prints."""
        if self.json:
            # No NaN: JSON has none, and a reader would choke on it. ASCII: stdout's encoding may be anything.
            sys.stdout.write(jsonlib.dumps(document, indent=2, allow_nan=False) + "\n")
        elif self.quiet and brief:
            sys.stdout.write(brief + "\n")
            sys.stderr.writelines(f"warning: {message}\n" for message in _warnings(document))
        else:
            show(console())

    def warn(self, text: str) -> None:
        if not self.quiet:
            sys.stderr.write(f"warning: {text}\n")


NOTES = frozenset({"int8_hint", "auto_choice", "layers_restored", "never_first", "qat_stages"})
"""Codes of what is advice, not doubt."""


def _warnings(document: Mapping[str, Any]) -> Iterator[str]:
    """What a quiet user must know all the same, and why a verdict is bad."""
    for part in (document, *document.get("packages", ())):
        yield from (w["message"] for w in part.get("warnings", ()) if w["code"] not in NOTES)
    if document.get("ok") is False and document.get("why"):
        yield str(document["why"])


def console() -> Console:
    """Rich on stdout: tables as wide as the terminal, or as the content where there is none; colours where wanted."""
    from rich.console import Console

    class Answer(Console):
        def on_broken_pipe(self) -> None:
            """Rich would leave with exit code 1, which is ours for bugs."""
            raise BrokenPipeError

    terminal = coloured(sys.stdout)
    # A pipe has no width: never cut a path in two there.
    width = None if terminal or os.environ.get("COLUMNS") else 160
    return Answer(
        highlight=False,
        no_color=not terminal,
        force_terminal=terminal,
        width=width,
        soft_wrap=not terminal,
        emoji=False,
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> Any:
    """A table without vertical lines; ``right`` numbers the columns that are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, head in enumerate(heads):
        made.add_column(head, justify="right" if number in right else "left", no_wrap=number == 0, overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def percent(share: float) -> str:
    """``96 %``; never rounded to all or nothing."""
    if 0.995 <= share < 1 or 0 < share < 0.01:
        return "> 99 %" if share > 0.5 else "< 1 %"
    return f"{100 * share:.0f} %"


def count(number: int | None) -> str:
    """A number for people: ``3.5 M``."""
    if number is None:
        return "unknown"
    value, unit = float(number), ""
    for bigger in (" k", " M", " G", " T"):
        if value < 1000:
            break
        value, unit = value / 1000, bigger
    return f"{value:.0f}" if not unit else f"{value:.3g}{unit}"


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # stdout is closed: nothing can reach it anyway
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def _python_warnings(verbose: bool) -> Iterator[None]:
    """Libraries warn about their own deprecations; that is noise to our user unless asked for."""
    import warnings

    with warnings.catch_warnings():
        if not verbose:
            warnings.simplefilter("ignore")
        yield
