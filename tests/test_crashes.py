"""A worker that dies: chance shapes no file, and what always crashes is told as the fault of what ran there."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgesdk
from edgesdk._crashes import twice
from edgesdk.errors import InputError
from edgesdk.workers import Json, Pool, Report, Worker, WorkerCrashed
from tests.models import digits_data, digits_pt2

HERE = "tests.test_crashes"
ROOT = Path(__file__).parent.parent


def die(args: dict[str, Any], report: Any) -> dict[str, Any]:
    """End with a signal, as often as asked."""
    deaths = Path(args["deaths"])
    if deaths.exists() and len(deaths.read_text()) >= args["times"]:
        return {"lived": True}
    with deaths.open("a") as file:
        file.write("x")
    os.kill(os.getpid(), args["signal"])
    return {}


def attempt(folder: Path, number: int, times: int) -> tuple[Callable[[], Any], Pool]:
    pool = Pool(1, folder)
    args = {"deaths": str(folder / "deaths"), "times": times, "signal": number}
    return lambda: twice("x", lambda: pool.submit(f"{HERE}:die", args, lambda *_: None).result(timeout=60)[1]), pool


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
@pytest.mark.slow
def test_one_death_may_be_chance_so_the_work_is_done_again(tmp_path: Path, number: int) -> None:
    run, pool = attempt(tmp_path, number, 1)
    with pool:
        assert run() == {"lived": True}


@pytest.mark.slow
def test_killed_twice_is_an_error_that_says_so_and_no_crash_of_the_compiler(tmp_path: Path) -> None:
    run, pool = attempt(tmp_path, signal.SIGKILL, 9)
    with pool, pytest.raises(InputError, match="the system ended the worker") as caught:
        run()
    assert "memory" in caught.value.why and "--jobs 1" in caught.value.fix
    assert len((tmp_path / "deaths").read_text()) == 2


@pytest.mark.slow
def test_what_crashes_by_itself_twice_always_does(tmp_path: Path) -> None:
    run, pool = attempt(tmp_path, signal.SIGABRT, 9)
    with pool, pytest.raises(WorkerCrashed, match="SIGABRT"):
        run()


def killing(monkeypatch: pytest.MonkeyPatch, job: str, times: int, number: int = signal.SIGKILL) -> list[str]:
    """The first calls of a job meet with a death from outside, in the midst of it."""
    killed: list[str] = []
    call = Worker.call

    def called(self: Worker, function: str, args: Mapping[str, Any], report: Report) -> Json:
        if function == job and len(killed) < times:
            killed.append(function)
            threading.Timer(0.3, os.kill, (self._process.pid, number)).start()
        return call(self, function, args, report)

    monkeypatch.setattr(Worker, "call", called)
    return killed


def sha(package: edgesdk.Package) -> str:
    return hashlib.sha256(package.bundle.read_bytes()).hexdigest()


@pytest.mark.slow
def test_a_worker_killed_in_the_midst_of_lowering_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESDK_CACHE_DIR", str(tmp_path / "one"))
    wanted = edgesdk.package(digits_pt2(), "linux", output=tmp_path / "wanted")
    monkeypatch.setenv("EDGESDK_CACHE_DIR", str(tmp_path / "other"))
    killed = killing(monkeypatch, "edgesdk._jobs:lower", 1)
    found = edgesdk.package(digits_pt2(), "linux", output=tmp_path / "found")
    assert len(killed) == 1 and sha(found) == sha(wanted)
    assert [v["rung"] for v in found.variants] == ["full"]


@pytest.mark.slow
def test_killed_each_time_nothing_is_written_or_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESDK_CACHE_DIR", str(tmp_path / "cache"))
    with monkeypatch.context() as patch:
        killing(patch, "edgesdk._jobs:lower", 2)
        with pytest.raises(InputError, match="the system ended the worker"):
            edgesdk.package(digits_pt2(), "linux", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    again = edgesdk.package(digits_pt2(), "linux", output=tmp_path / "out")
    assert [v["rung"] for v in again.variants] == ["full"] and again.document["cache"]["hits"] == 0


@pytest.mark.slow
def test_a_compiler_that_always_crashes_steps_down_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESDK_CACHE_DIR", str(tmp_path / "cache"))
    killing(monkeypatch, "edgesdk._jobs:lower", 2, signal.SIGSEGV)
    made = edgesdk.package(digits_pt2(), "linux", runtime=("executorch",), output=tmp_path / "out")
    assert [v["rung"] for v in made.variants] == ["partial"]
    assert "rung_lowered" in [w["code"] for w in made.document["warnings"]]


DATA = """
import ctypes, os, signal
import numpy as np

def leaving():
    yield np.zeros((1, 1, 8, 8), np.float32)
    os._exit(3)

def crashing():
    ctypes.string_at(0)
    return [np.zeros((1, 1, 8, 8), np.float32)]

def metric(outputs, label):
    os._exit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("member", ["leaving", "crashing"])
def test_a_dataset_that_ends_the_process_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: str) -> None:
    monkeypatch.setenv("EDGESDK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "d.py").write_text(DATA)
    asked = f"{tmp_path}/d.py:{member}"
    with pytest.raises(InputError) as caught:
        edgesdk.package(
            digits_pt2(), "linux", runtime=("onnx",), quantize=("static-int8",), calibration=asked,
            output=tmp_path / "out",
        )  # fmt: skip
    assert caught.value.code == "user_code_crashed" and f"--calibration {asked}" in caught.value.message


@pytest.mark.slow
def test_a_metric_that_ends_the_process_is_named_also_when_it_does_so_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGESDK_CACHE_DIR", str(tmp_path / "cache"))
    pixels, labels = digits_data()
    np.savez(tmp_path / "eval.npz", input=pixels[:20], label=labels[:20])
    (tmp_path / "d.py").write_text(DATA)
    late = "import os, sys\n\ndef metric(outputs, label):\n    if 'onnxruntime' in sys.modules:\n        os._exit(3)\n    return 1.0\n"
    (tmp_path / "late.py").write_text(late)
    for file in ("d.py", "late.py"):
        with pytest.raises(InputError) as caught:
            edgesdk.package(
                digits_pt2(), "linux", runtime=("onnx",), eval=str(tmp_path / "eval.npz"), metric=f"{tmp_path}/{file}:metric",
                output=tmp_path / "out",
            )  # fmt: skip
        assert caught.value.code == "user_code_crashed"
        assert f"--metric {tmp_path}/{file}:metric" in caught.value.message
