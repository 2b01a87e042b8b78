"""Run a command: parse, call, and turn whatever goes wrong into an exit code and a message."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from edgesdk.cli import _errors
from edgesdk.errors import EdgeError


class _Terminated(BaseException):
    """SIGTERM, as an exception: temporary folders are removed on the way out."""


def run(words: Sequence[str]) -> int:
    """Parse ``words``, run the verb, and return the exit code."""
    json = any(word.partition("=")[0] == "--json" for word in words)
    verbose = bool({"--verbose", "-v"} & set(words))
    try:
        with _prepared():
            code = _invoke(list(words))
        sys.stdout.flush()
        return code
    except EdgeError as error:
        return _errors.show(error, json)
    except KeyboardInterrupt:
        return _errors.note("interrupted", 128 + signal.SIGINT)
    except _Terminated:
        return _errors.note("terminated", 128 + signal.SIGTERM)
    except BrokenPipeError:
        # The reader of our output went away. That is its right; say nothing, and keep Python's exit quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    except MemoryError:
        return _errors.show(_errors.out_of_memory(), json)
    except OSError as exc:
        return _errors.show(_errors.from_os(exc) or _errors.bug(exc, verbose), json)
    except Exception as exc:
        return _errors.show(_errors.bug(exc, verbose), json)


@contextlib.contextmanager
def _prepared() -> Iterator[None]:
    """Streams that can write any name, and SIGTERM as an exception; a caller's own handler comes back afterwards."""
    for stream in (sys.stdout, sys.stderr):
        # A name with letters that the terminal can't show must not stop a run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(*_: Any) -> None:
    raise _Terminated


def _invoke(words: list[str]) -> int:
    import typer

    from edgesdk.cli._app import root

    command = root()
    if "_EDGESDK_COMPLETE" in os.environ:
        command.main(args=words, prog_name="edgesdk")  # answers the shell and leaves
    # Typer either carries its own copy of click or uses the installed one: take the classes from where they are.
    click_usage: type[Exception] = typer.BadParameter.__bases__[0]
    try:
        with command.make_context("edgesdk", words) as ctx:
            command.invoke(ctx)
    except typer.Exit as leave:
        return int(leave.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except click_usage as exc:
        raise _errors.from_usage(exc) from exc
    return 0
