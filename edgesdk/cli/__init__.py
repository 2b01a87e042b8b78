"""The command line: one short module per verb. Only this package prints, and only its ``main`` decides exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Help and version are answered here, before anything is imported that takes time.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        from edgesdk.cli import _streams

        _streams.open_all()
    if "_EDGESDK_COMPLETE" not in os.environ:
        if not words or words[0] in ("--help", "-h", "help"):
            return _say(_help())
        if words[0] == "--version":
            from edgesdk._version import __version__

            return _say(f"edgesdk {__version__}\n")
    from edgesdk.cli._run import run

    return run(words)


def _help() -> str:
    from edgesdk.cli._verbs import root_help

    return root_help()


def _say(text: str) -> int:
    from edgesdk.cli import _streams

    try:
        return 0 if _streams.write(1, text) else 3
    except BrokenPipeError:  # the reader went away (`edgesdk --help | head -1`)
        return 0
