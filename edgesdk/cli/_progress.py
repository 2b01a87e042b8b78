"""Progress on stderr: a live line on a terminal, plain lines elsewhere, nothing when asked to be quiet.

The pipeline knows only the protocol :class:`Progress`.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from edgesdk.cli import _streams
from edgesdk.cli._errors import coloured


class Progress(Protocol):
    """What a long run tells while it works."""

    def stage(self, name: str) -> None:
        """A step begins (``import``, ``lower``, …); the one before it is finished."""

    def update(self, text: str, fraction: float | None = None) -> None:
        """Where the step stands; ``fraction`` is 0…1, None when unknown."""

    def note(self, text: str) -> None:
        """Something worth a line, for those who asked for detail."""

    def warn(self, text: str) -> None:
        """Something the user should know though the run goes on."""

    def done(self) -> None:
        """The last step is finished."""


class Quiet:
    """Says nothing (``--quiet``)."""

    def stage(self, name: str) -> None: ...

    def update(self, text: str, fraction: float | None = None) -> None: ...

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def done(self) -> None: ...


class Plain:
    """One line for each stage, with the seconds since the start: for logs and pipes.

    Updates and notes appear with ``--verbose`` only; an update that repeats the one before it is left out.
    """

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._begin = time.monotonic()
        self._last = ""
        self._working = False
        self.warned: set[str] = set()

    def _line(self, text: str) -> None:
        # A log that can't be written any more (disk full, reader gone) is no reason to lose the work.
        _streams.write(2, f"[{time.monotonic() - self._begin:6.1f} s] {text}\n")

    def stage(self, name: str) -> None:
        self._working = True
        self._line(name)

    def update(self, text: str, fraction: float | None = None) -> None:
        if self._verbose and text != self._last:
            self._last = text
            self._line(f"  {text}")

    def note(self, text: str) -> None:
        if self._verbose:
            self._line(f"  {text}")

    def warn(self, text: str) -> None:
        if text not in self.warned:
            self.warned.add(text)
            self._line(f"warning: {text}")

    def done(self) -> None:
        if self._working and self._verbose:
            self._line("done")
        self._working = False


class Live:
    """A spinner, the stage, what it is at and the elapsed time; a finished stage leaves one line behind."""

    def __init__(self, verbose: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._verbose = verbose
        self._console = Console(stderr=True, highlight=False)
        columns = (
            SpinnerColumn(), TextColumn("{task.fields[stage]:<8}", markup=False),
            BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}", markup=False),
        )  # fmt: skip
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task: Any = None
        self._stage, self._since = "", 0.0
        self.warned: set[str] = set()

    def stage(self, name: str) -> None:
        self._finish()
        self._stage, self._since = name, time.monotonic()
        self._task = self._bar.add_task("", total=None, stage=name)
        self._bar.start()

    def update(self, text: str, fraction: float | None = None) -> None:
        if self._task is not None:
            total = None if fraction is None else 1.0
            self._bar.update(self._task, description=text, total=total, completed=fraction or 0.0)

    def note(self, text: str) -> None:
        if self._verbose:
            self._console.print(f"  {text}", style="dim", markup=False)

    def warn(self, text: str) -> None:
        if text not in self.warned:
            self.warned.add(text)
            self._console.print(f"! {text}", style="yellow", markup=False)

    def done(self) -> None:
        self._finish()
        self._bar.stop()

    def _finish(self) -> None:
        if self._task is None:
            return
        self._bar.remove_task(self._task)
        self._task = None
        took = time.monotonic() - self._since
        self._console.print(f"✓ {self._stage:<8} {took:6.1f} s", style="green", markup=False)


def progress(quiet: bool, verbose: bool) -> Quiet | Plain | Live:
    """The one that fits: stderr may be a terminal, a pipe, or a terminal that can't redraw (``TERM=dumb``)."""
    if quiet:
        return Quiet()
    # NO_COLOR asks for no colour; a redrawn line is made of the same escape codes, so it goes too.
    return Live(verbose) if coloured(sys.stderr) else Plain(verbose)
