"""The words of failure: facts from the parser, the operating system or a bug, put into three parts in one place."""

from __future__ import annotations

import contextlib
import difflib
import errno
import json as jsonlib
import os
import re
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgesdk import _disk
from edgesdk._worker import lacks_memory
from edgesdk.cli import _streams
from edgesdk.errors import EdgeError, InputError, UsageError

_KEEP = 20  # tracebacks of earlier failures that stay on the disk


def show(error: EdgeError, json: bool) -> int:
    """Print an error where the user asked for it; returns its exit code."""
    with contextlib.suppress(BrokenPipeError):
        if json and _streams.write(1, jsonlib.dumps(error.to_json(), indent=2) + "\n"):
            return error.exit
    red, plain = ("\x1b[1;31m", "\x1b[0m") if coloured(sys.stderr) else ("", "")
    lines = [f"{red}error:{plain} {error.message}", f"  why: {error.why}", f"  fix: {error.fix}"]
    trace = error.details.get("traceback_text")
    _streams.write(2, "\n".join([*([trace] if trace else []), *lines]) + "\n")
    return error.exit


def note(text: str, code: int) -> int:
    _streams.write(2, f"{text}\n")
    return code


def coloured(stream: Any) -> bool:
    """Whether escape codes may go to the stream: a terminal that understands them, and a user who wants them."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def from_usage(exc: Any, words: Sequence[str] = ()) -> UsageError:
    """A complaint of the parser about ``words``, in ours. Matched by class name: Typer may carry its own copy of click."""
    ctx = getattr(exc, "ctx", None)
    path = ctx.command_path if ctx else "edgesdk"
    facts = (exc, ctx, path)
    kind = type(exc).__name__
    if kind == "MissingParameter":
        return _missing(exc, path, words)
    maker = {"NoSuchOption": _no_such_option, "BadParameter": _bad_value}.get(kind, _other)
    return maker(*facts)


def _no_such_option(exc: Any, ctx: Any, path: str) -> UsageError:
    name = str(exc.option_name)
    known = [o for p in (ctx.command.get_params(ctx) if ctx else ()) for o in p.opts if o.startswith("--")]
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if path == "edgesdk" and name in ("--json", "--quiet", "--verbose", "-q", "-v"):
        why = f"{name} belongs to the verb."
        fix = f"Write it after the verb: edgesdk package MODEL --target android {name}."
    else:
        why = f"Did you mean {' or '.join(close)}?" if close else f"'{path}' has no option of that or a similar name."
        fix = f"'{path} --help' lists the options."
    return UsageError("unknown_option", f"'{path}' has no option {name}.", why=why, fix=fix, details={"nearest": close})


def _missing(exc: Any, path: str, words: Sequence[str]) -> UsageError:
    param = exc.param
    argument = param.param_type_name == "argument"
    name = (param.metavar or param.name).upper() if argument else param.opts[0]
    fix = f"'{path} --help' shows what to write."
    if words and not argument:
        value = "report.html" if (path, name) == ("edgesdk report", "--output") else param.metavar or "VALUE"
        fix = f"Add it: {shlex.join(['edgesdk', *words, name, value])}. {fix}"
    return UsageError(
        "missing_argument",
        f"'{path}' needs {name}, and it is not given.",
        why=f"There is no default for {name}.",
        fix=fix,
    )


_WORDS = {
    "valid integer": "the value is no whole number",
    "valid number": "the value is no number",
    "null bytes": "the value holds a null byte",
}  # the parser's complaints, in words for people who don't program


def _bad_value(exc: Any, ctx: Any, path: str) -> UsageError:
    param = getattr(exc, "param", None)
    name = f"{param.opts[-1] if param.param_type_name == 'option' else param.name.upper()}: " if param else ""
    text = exc.message
    for foreign, ours in _WORDS.items():
        text = ours if foreign in text else text
    return UsageError(
        "bad_value", f"{name}{_sentence(text)}", why="The value is of another kind or out of range.",
        fix=f"'{path} --help' says what each option takes.",
    )  # fmt: skip


def _other(exc: Any, ctx: Any, path: str) -> UsageError:
    extra = re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", exc.format_message(), re.DOTALL)
    if extra:
        return UsageError(
            "too_many_words", f"'{path}' does not know what to do with: {extra[1]}", why="It takes fewer words, or an option is missing.",
            fix=f"'{path} --help' shows how to write it; a name with spaces stands in quotes.",
        )  # fmt: skip
    return UsageError(
        "bad_usage", f"'{path}': {_sentence(exc.format_message())}", why="The words after the verb don't fit together.",
        fix=f"'{path} --help' shows how to write it.",
    )  # fmt: skip


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "!", "?")) else text + "."


_OS = {
    errno.ENOSPC: ("disk_full", "The disk is full", "Free some space, or write elsewhere with -o; 'edgesdk cache clean' helps."),
    errno.EDQUOT: ("disk_full", "The disk quota is used up", "Free some space, or write elsewhere with -o."),
    errno.EROFS: ("not_writable", "The file system is read-only", "Make it writable, or write elsewhere with -o."),
    errno.EACCES: ("not_permitted", "Permission is denied", "Change the permissions, or choose another path."),
    errno.EPERM: ("not_permitted", "Permission is denied", "Change the permissions, or choose another path."),
    errno.EFBIG: ("disk_full", "A file grew beyond the limit", "Raise the limit (ulimit -f), or write elsewhere with -o."),
    errno.EIO: ("disk_broken", "The disk reports an error", "Check the disk, or write elsewhere."),
    errno.EMFILE: ("too_many_files", "Too many files are open", "Raise the limit: ulimit -n 1024."),
    errno.ENFILE: ("too_many_files", "Too many files are open", "Close other programs."),
    errno.ENAMETOOLONG: ("bad_path", "The path is too long", "Choose a shorter one."),
    errno.ELOOP: ("bad_path", "The path leads through links that point to each other", "Correct the links."),
    errno.ENOTDIR: ("bad_path", "A part of the path is a file, not a folder", "Correct the path."),
    errno.ESTALE: ("bad_path", "The folder is gone", "Change to a folder that exists."),
}  # fmt: skip


def from_system(exc: Exception) -> InputError | None:
    """A refusal of the operating system that no step expected; None when it looks like a bug of ours."""
    if lacks_memory(exc):
        return _out_of_memory()
    if not isinstance(exc, OSError) or exc.errno not in _OS:
        return None
    code, what, fix = _OS[exc.errno]
    where = f": {exc.filename}" if exc.filename else ""
    if isinstance(exc.filename, str):
        fix = _for_place(Path(exc.filename), fix)
    return InputError(code, f"{what}{where}.", why="The file system refused to read or write there.", fix=fix)


def _for_place(path: Path, fix: str) -> str:
    """The advice for a file of the cache or of a temporary folder of ours: -o chooses neither."""
    from edgesdk import cache

    place, temporary = path.absolute(), Path(tempfile.gettempdir()).absolute()
    ours = temporary in place.parents and place.relative_to(temporary).parts[0].startswith("edgesdk-")
    if ours or place.is_relative_to(cache.root().absolute()):
        return fix.replace("write elsewhere with -o", _disk.elsewhere(path))
    return fix


def unsaid(exc: OSError) -> InputError:
    return InputError(
        "output_stream", f"The answer can't be written to standard output: {exc.strerror or exc}.",
        why="It leads to a full disk, or to a device that takes nothing.", fix="Send it elsewhere, and run the command again.",
    )  # fmt: skip


def _out_of_memory() -> InputError:
    return InputError(
        "out_of_memory", "There is not enough memory.", why="The file, or what is made of it, needs more than there is.",
        fix="Close other programs, raise the limit (ulimit -v), or use --jobs 1.",
    )  # fmt: skip


def bug(exc: Exception, verbose: bool) -> EdgeError:
    """Anything unexpected: the traceback goes to a file, and the message says so."""
    text = "".join(traceback.format_exception(exc))
    place = _keep(text)
    kept = f"The traceback is in {place}." if place else "The traceback could not be written; --verbose shows it."
    # The bug of a worker process carries that process's traceback as its text: its last line says what happened.
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()] or ["no message"]
    said = lines[-1] if "Traceback (most recent call last)" in str(exc) else f"{type(exc).__name__}: {' '.join(lines)}"
    return EdgeError(
        "internal_error", f"edgesdk failed unexpectedly: {_sentence(said)}",
        why=f"This is a bug of edgesdk, not of yours. {kept}",
        fix="Please report it with that file; --verbose shows it at once.",
        details={"traceback": str(place) if place else None, **({"traceback_text": text} if verbose else {})},
    )  # fmt: skip


def _keep(text: str) -> Path | None:
    from platformdirs import user_state_path

    folder = user_state_path("edgesdk", appauthor=False) / "failures"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        place.write_text(f"edgesdk {' '.join(sys.argv[1:])}\n\n{text}")
        for old in sorted(folder.glob("*.txt"))[:-_KEEP]:
            old.unlink(missing_ok=True)
    except OSError:
        return None
    return place
