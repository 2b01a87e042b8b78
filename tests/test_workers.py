"""Workers: results, errors, crashes and Ctrl-C of another process arrive as what they are."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from edgesdk.errors import InputError
from edgesdk.workers import Pool, WorkerBug, WorkerCrashed, last_words

HERE = "tests.test_workers"


def echo(args: dict[str, Any], report: Any) -> dict[str, Any]:
    sys.stdout.write("a library writes to stdout\n")
    report("half", 0.5)
    return {"pid": os.getpid(), **args}


def refuse(args: dict[str, Any], report: Any) -> dict[str, Any]:
    raise InputError("bad_thing", "The thing is bad.", why="It fell.", fix="Lift it.", details={"n": 3})


def bug(args: dict[str, Any], report: Any) -> dict[str, Any]:
    raise KeyError("surprise")


def crash_loudly(args: dict[str, Any], report: Any) -> dict[str, Any]:
    os.write(2, b"E: kernel gave up\n")
    os.abort()


def crash(args: dict[str, Any], report: Any) -> dict[str, Any]:
    os.abort()


def fill_disk(args: dict[str, Any], report: Any) -> dict[str, Any]:
    with Path("/dev/full").open("wb") as file:
        file.write(bytes(10**6))
    return {}


def sleep(args: dict[str, Any], report: Any) -> dict[str, Any]:
    time.sleep(60)
    return {}


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    with Pool(2, tmp_path) as pool:
        yield pool


def _run(pool: Pool, name: str, **where: Any) -> Any:
    return pool.submit(f"{HERE}:{name}", {"x": 1}, lambda *_: None, **where).result(timeout=60)


def test_a_result_and_its_progress_arrive(pool: Pool) -> None:
    seen: list[Any] = []
    _, result = pool.submit(f"{HERE}:echo", {"x": 1}, lambda *a: seen.append(a)).result(timeout=60)
    assert result["x"] == 1 and seen == [("half", 0.5)]


def test_what_one_process_made_another_one_checks(pool: Pool) -> None:
    first, made = _run(pool, "echo", on=0)
    other, checked = _run(pool, "echo", not_on=first)
    assert other != first and made["pid"] != checked["pid"]


def test_a_fresh_worker_holds_nothing_of_earlier_jobs(pool: Pool) -> None:
    used = {_run(pool, "echo", on=number)[1]["pid"] for number in (0, 1)}
    number, made = _run(pool, "echo", fresh=True, not_on=0)
    assert number != 0 and made["pid"] not in used
    assert _run(pool, "echo", on=0)[1]["pid"] in used


def test_an_edge_error_keeps_its_kind_and_words(pool: Pool) -> None:
    with pytest.raises(InputError) as caught:
        _run(pool, "refuse")
    assert (caught.value.code, caught.value.fix, caught.value.details) == ("bad_thing", "Lift it.", {"n": 3})


def test_anything_unexpected_is_a_bug_with_its_traceback(pool: Pool) -> None:
    with pytest.raises(WorkerBug, match=r"KeyError.*surprise"):
        _run(pool, "bug")


def test_a_native_crash_is_an_answer_and_the_worker_is_replaced(pool: Pool) -> None:
    with pytest.raises(WorkerCrashed) as caught:
        _run(pool, "crash", on=1)
    assert caught.value.signal == "SIGABRT"
    assert _run(pool, "echo", on=1)[1]["x"] == 1


def test_a_full_disk_in_a_worker_says_so(pool: Pool) -> None:
    with pytest.raises(InputError) as caught:
        _run(pool, "fill_disk")
    assert caught.value.code == "disk_full"


def test_stopping_ends_jobs_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    with Pool(2, tmp_path) as pool:
        job = pool.submit(f"{HERE}:sleep", {}, lambda *_: None)
        _run(pool, "echo")
        pool.stop()
        with pytest.raises(WorkerCrashed):
            job.result(timeout=20)


def leave_something(args: dict[str, Any], report: Any) -> dict[str, Any]:
    return {"left": tempfile.mkdtemp()}


def test_temporary_files_of_libraries_lie_in_the_pools_folder(pool: Pool, tmp_path: Path) -> None:
    """What a library forgets to remove, or can't because it is killed, goes with the work folder."""
    left = pool.submit(f"{HERE}:leave_something", {}, lambda *_: None).result()[1]["left"]
    assert Path(left).is_relative_to(tmp_path)


def fork_and_end(args: dict[str, Any], report: Any) -> dict[str, Any]:
    """As native code may: the child never heard of Python's fork hooks and holds the pipe of answers."""
    if ctypes.CDLL(None).fork() == 0:
        time.sleep(30)
        os._exit(0)
    os._exit(3)


def fork_and_return_twice(args: dict[str, Any], report: Any) -> dict[str, Any]:
    return {"child": os.fork() == 0}


class Stop(BaseException):
    pass


def stop(args: dict[str, Any], report: Any) -> dict[str, Any]:
    raise Stop("enough")


def test_a_forked_child_that_holds_the_pipe_does_not_keep_the_run(pool: Pool) -> None:
    with pytest.raises(WorkerCrashed, match="exit code 3"):
        pool.submit(f"{HERE}:fork_and_end", {}, lambda *_: None).result(timeout=20)


def test_a_job_that_forks_is_answered_once_by_the_worker_itself(pool: Pool) -> None:
    for _ in range(3):
        assert _run(pool, "fork_and_return_twice", on=0)[1] == {"child": False}
    assert _run(pool, "echo", on=0)[1]["x"] == 1


def test_an_exception_that_is_no_exception_is_a_bug_with_its_traceback_and_no_crash(pool: Pool) -> None:
    with pytest.raises(WorkerBug, match="Stop: enough"):
        _run(pool, "stop", on=1)


def test_the_log_of_a_crash_tells_libraries_from_python_s_fault_handler(pool: Pool) -> None:
    with pytest.raises(WorkerCrashed) as caught:
        _run(pool, "crash_loudly", on=1)
    printed, frames = caught.value.log.split("--- Python's fault handler")
    assert printed.startswith("--- Printed by libraries before the crash ---\nE: kernel gave up")
    assert "Fatal Python error" not in printed
    assert "Fatal Python error: Aborted" in frames and "crash_loudly" in frames
    assert last_words("only words") == "--- Printed by libraries before the crash ---\nonly words"
    assert last_words("") == ""
