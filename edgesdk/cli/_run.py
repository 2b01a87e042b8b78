"""Run a command: parse, call, and turn whatever goes wrong into an exit code and a message."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgesdk.cli import _errors, _streams
from edgesdk.errors import EdgeError, InputError

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Terminated(BaseException):
    """SIGTERM, or SIGHUP when the terminal is closed, as an exception: temporary folders are removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(words: Sequence[str]) -> int:
    """Parse ``words``, run the verb, and return the exit code."""
    json = any(word.partition("=")[0] == "--json" for word in words)
    verbose = bool({"--verbose", "-v"} & set(words))
    try:
        with _prepared():
            _check_folder()
            code = _invoke(list(words))
        sys.stdout.flush()
        return code
    except EdgeError as error:
        return _errors.show(error, json)
    except KeyboardInterrupt:
        return _errors.note("interrupted", 128 + signal.SIGINT)
    except _Terminated as end:
        return _errors.note("terminated", 128 + end.number)
    except BrokenPipeError:
        _streams.silence(1)  # the reader of our output went away; that is its right
        return 128 + signal.SIGPIPE
    except Exception as exc:
        if isinstance(exc, OSError) and not _streams.write(1, ""):
            return _errors.show(_errors.unsaid(exc), json=False)
        return _errors.show(_errors.from_system(exc) or _errors.bug(exc, verbose), json)


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
    # A signal that is ignored stays so: nohup means that the run survives its terminal.
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None: set by other than Python, which can't set it again
                signal.signal(number, handler)


def _check_folder() -> None:
    try:
        Path.cwd()
    except OSError as exc:
        raise InputError(
            "no_working_folder", "The folder that the command is run in doesn't exist any more.",
            why="It was deleted or moved after the shell changed into it.", fix="Change to another folder: cd ~",
        ) from exc  # fmt: skip


def _terminate(number: int, _: Any) -> None:
    raise _Terminated(number)


def _invoke(words: list[str]) -> int:
    import typer

    from edgesdk.cli._app import root

    if len(words) > 1 and words[0] in ("--show-completion", "--install-completion"):
        # Typer takes a shell's name only where it doesn't look for one among the parent processes, and a container has none.
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
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
        raise _errors.from_usage(exc, words) from exc
    return 0
