"""What goes wrong without being the user's command line: bugs of ours, the file system, signals."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from edgesdk.cli import _errors, _run

from .conftest import Call


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the cache's statistics divide by zero."""
    from edgesdk.cache import Cache

    monkeypatch.setattr(Cache, "stats", lambda self: 1 / 0)


def test_a_bug_says_that_it_is_ours_and_keeps_the_traceback(broken: None, call: Call) -> None:
    ran = call("cache")
    assert (ran.code, ran.out) == (1, "")
    assert "error: edgesdk failed unexpectedly: ZeroDivisionError: division by zero." in ran.err
    assert "Traceback" not in ran.err
    kept = Path(ran.err.split("The traceback is in ")[1].split("\n")[0].rstrip("."))
    assert "ZeroDivisionError" in kept.read_text() and "def <lambda>" not in ran.err


def test_a_bug_as_json(broken: None, call: Call) -> None:
    document = call("cache", "--json").document
    assert (document["schema"], document["code"], document["exit"]) == ("edgesdk.error/1", "internal_error", 1)
    assert Path(document["details"]["traceback"]).is_file()
    assert all(document[part] for part in ("message", "why", "fix"))


def test_verbose_shows_the_traceback(broken: None, call: Call) -> None:
    assert "Traceback (most recent call last)" in call("cache", "--verbose").err


def test_only_the_last_tracebacks_are_kept(broken: None, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_errors, "_KEEP", 2)
    first = call("cache", "--json").document["details"]["traceback"]
    folder = Path(first).parent
    for name in ("10000101-000000-1.txt", "10000101-000000-2.txt", "10000101-000000-3.txt"):
        (folder / name).write_text("old")
    call("cache")
    assert len(list(folder.iterdir())) == 2


def test_a_home_that_cannot_be_written_loses_the_file_not_the_message(
    broken: None, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    monkeypatch.setenv("HOME", str(blocked))
    assert "The traceback could not be written; --verbose shows it." in call("cache").err


def test_a_workers_bug_is_told_by_its_last_line() -> None:
    text = "Traceback (most recent call last):\n  File x, line 1\nKeyError: 'weights'"
    assert _errors.bug(RuntimeError(text), verbose=False).message == "edgesdk failed unexpectedly: KeyError: 'weights'."


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOSPC, "disk_full", "The disk is full: out/x.pte."),
        (errno.EROFS, "not_writable", "The file system is read-only: out/x.pte."),
        (errno.EACCES, "not_permitted", "Permission is denied: out/x.pte."),
    ],
)
def test_the_file_system_refuses(number: int, code: str, words: str) -> None:
    error = _errors.from_os(OSError(number, "said by the system", "out/x.pte"))
    assert error and (error.exit, error.code, error.message) == (3, code, words)


def test_an_unexpected_refusal_of_the_system_is_a_bug() -> None:
    assert _errors.from_os(OSError(errno.EBADF, "bad descriptor")) is None


def test_ctrl_c_leaves_with_130(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "_invoke", _raise(KeyboardInterrupt()))
    ran = call("cache")
    assert (ran.code, ran.out, ran.err) == (130, "", "interrupted\n")


def test_a_closed_pipe_is_quiet(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    kept = os.dup(1)
    monkeypatch.setattr(_run, "_invoke", _raise(BrokenPipeError()))
    ran = call("cache")
    os.dup2(kept, 1)
    os.close(kept)
    assert (ran.code, ran.out, ran.err) == (141, "", "")


def _raise(error: BaseException):  # type: ignore[no-untyped-def]
    def run(words: list[str]) -> int:
        raise error

    return run
