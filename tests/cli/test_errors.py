"""What goes wrong without being the user's command line: bugs of ours, the file system, signals."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from edgesdk.cli import _errors, _run

from .conftest import Call, environment


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
    error = _errors.from_system(OSError(number, "said by the system", "out/x.pte"))
    assert error and (error.exit, error.code, error.message) == (3, code, words)


def test_a_full_cache_is_not_moved_by_the_option_for_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESDK_CACHE_DIR", "small/cache")
    temporary = tempfile.gettempdir()  # an output may lie there, too
    for path, words in (
        ("small/cache/work/ab/x", "EDGESDK_CACHE_DIR=FOLDER"), (f"{temporary}/edgesdk-verify-a/x", "TMPDIR=FOLDER"),
        ("out/x.pte", "elsewhere with -o"), (f"{temporary}/out/x.pte", "elsewhere with -o"),
    ):  # fmt: skip
        error = _errors.from_system(OSError(errno.ENOSPC, "full", path))
        assert error and words in error.fix


def test_an_unexpected_refusal_of_the_system_is_a_bug() -> None:
    assert _errors.from_system(OSError(errno.EBADF, "bad descriptor")) is None


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


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread: not enough memory"),
    ],
)
def test_too_little_memory_is_no_bug(error: Exception) -> None:
    found = _errors.from_system(error)
    assert found and (found.code, found.exit) == ("out_of_memory", 3)


@pytest.mark.parametrize("error", [ImportError("cannot import name 'x'"), RuntimeError("shape"), KeyError("memory")])
def test_other_failures_are_not_taken_for_too_little_memory(error: Exception) -> None:
    assert _errors.from_system(error) is None


def sh(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """``edgesdk`` in the command stands for a process of its own, started by a shell."""
    ours = f"{shlex.quote(sys.executable)} -m edgesdk"
    return subprocess.run(
        ["bash", "-c", command.replace("edgesdk", ours)], cwd=folder, env=environment(folder), capture_output=True,
        text=True, stdin=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("--version", 0), ("package --help", 0), ("inspect nowhere --json", 3)])
def test_a_closed_stream_changes_no_exit_code(closed: str, words: str, code: int, tmp_path: Path) -> None:
    ran = sh(tmp_path, f"edgesdk {words} {closed}")
    assert ran.returncode == code
    assert "Traceback" not in ran.stderr


def test_an_answer_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    ran = sh(tmp_path, "edgesdk cache --json > /dev/full")
    assert ran.returncode == 3
    assert ran.stderr.startswith("error: The answer can't be written to standard output")
    assert "Exception ignored" not in ran.stderr


def test_an_error_that_can_not_be_written_as_json_is_written_in_words(tmp_path: Path) -> None:
    ran = sh(tmp_path, "edgesdk inspect nowhere --json > /dev/full")
    assert ran.returncode == 3
    assert "error: nowhere doesn't exist." in ran.stderr


def test_progress_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("a,b\n")
    for stream in ("2> /dev/full", "2> >(head -c 0)"):
        assert sh(tmp_path, f"edgesdk inspect m.csv --json {stream}").returncode == 3


def test_a_deleted_working_folder_is_named(tmp_path: Path) -> None:
    ran = sh(tmp_path, "mkdir gone && cd gone && rmdir ../gone && PYTHONPATH=/nowhere edgesdk cache --json")
    assert ran.returncode == 3
    assert json.loads(ran.stdout)["code"] == "no_working_folder"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_run_is_passed_on_after_cleaning_up(number: int, call: Call, monkeypatch: Any) -> None:
    from edgesdk.cache import Cache

    monkeypatch.setattr(Cache, "stats", lambda self: os.kill(os.getpid(), number) or time.sleep(5))
    inherited = signal.signal(number, signal.SIG_DFL)  # these tests may run under nohup, which is honoured
    try:
        ran = call("cache")
        assert (ran.code, ran.err) == (128 + number, "terminated\n")
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, inherited)


def test_nohup_is_honoured(call: Call, monkeypatch: Any) -> None:
    from edgesdk.cache import Cache

    stats = Cache.stats
    monkeypatch.setattr(Cache, "stats", lambda self: os.kill(os.getpid(), signal.SIGHUP) or stats(self))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert call("cache").code == 0
    finally:
        signal.signal(signal.SIGHUP, before)
