"""``python -m edgesdk.emulated [RUNTIME…]``: set the emulated phone up; costs nothing when it is there."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from edgesdk.emulated import _place as place
from edgesdk.emulated import describe
from edgesdk.emulated._install import install
from edgesdk.errors import EdgeError, InputError


def main(words: Sequence[str]) -> int:
    """Exit code 0, or that of the error, which is told on stderr. Without names: every engine that is installed."""
    chosen = list(words) or [name for name in place.RUNTIMES if place.version(name) is not None] or list(place.RUNTIMES)
    try:
        install(chosen, lambda line: _say(f"emulated: {line}"))
        _say(f"emulated: ready. {json.dumps(describe())}")
    except EdgeError as error:
        _say(f"emulated: {error.message}\n  why: {error.why}\n  fix: {error.fix}")
        return error.exit
    except OSError as error:  # a full disk, a folder that can't be written to: the user's files, as in the command line
        _say(f"emulated: {error.filename or 'The cache'} can't be written: {error.strerror or error}.")
        return InputError.exit
    return 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
