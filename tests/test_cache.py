"""The cache: whole or not at all, safe against two processes and against being killed, bounded."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgesdk import cache as caching
from edgesdk.cache import Cache


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_result_comes_back_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("aa11", {"n": 1}, {"x.pte": _file(tmp_path, "x", b"weights")})
    entry = cache.get("aa11")
    assert entry and entry.document == {"n": 1} and entry.files["x.pte"].read_bytes() == b"weights"
    assert (cache.hits, cache.misses) == (1, 0)


def test_a_damaged_entry_is_a_miss_and_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("aa11", {}, {"x.pte": _file(tmp_path, "x", b"weights")})
    next((tmp_path / "cache" / "objects").rglob("x.pte")).write_bytes(b"weighty")
    assert cache.get("aa11") is None
    assert cache.stats().entries == 0


def test_disabled_neither_reads_nor_writes(tmp_path: Path) -> None:
    Cache(tmp_path / "cache").put("aa11", {}, {})
    off = Cache(tmp_path / "cache", enabled=False)
    off.put("bb22", {}, {})
    assert off.get("aa11") is None
    assert off.stats().entries == 1


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    for age, name in enumerate(("old1", "new2", "mid3")):
        cache.put(name, {}, {"f": _file(tmp_path, name, bytes(1000))})
        folder = tmp_path / "cache" / "objects" / name[:2] / name
        os.utime(folder, (1000 + age, 1000 + age))
    assert cache.get("old1")  # now it is the youngest
    cache.clean(2500)
    assert [cache.get(name) is not None for name in ("old1", "new2", "mid3")] == [True, False, True]


def test_the_key_sees_every_part() -> None:
    base = caching.key("package", [("m.pt2", "abc")], None, {"target": "android"})
    assert base == caching.key("package", [("m.pt2", "abc")], None, {"target": "android"})
    assert base != caching.key("package", [("m.pt2", "abd")], None, {"target": "android"})
    assert base != caching.key("package", [("m.pt2", "abc")], None, {"target": "ios"})


def _put_many(folder: str, number: int) -> None:
    cache = Cache(Path(folder))
    for i in range(20):
        source = Path(folder).parent / f"source-{number}"
        source.write_bytes(bytes([i]) * 5000)
        cache.put(f"key{i:02}", {"i": i}, {"f": source})


def test_two_processes_write_the_same_keys(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_put_many, args=(str(tmp_path / "cache"), n)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    cache = Cache(tmp_path / "cache")
    for i in range(20):
        entry = cache.get(f"key{i:02}")
        assert entry and entry.files["f"].read_bytes() == bytes([i]) * 5000
    assert not list((tmp_path / "cache" / "work").iterdir())


_HANG = """
import sys, time
from pathlib import Path
from edgesdk.cache import Cache
with Cache(Path(sys.argv[1])).work_folder() as work:
    (work / "half").write_bytes(b"x")
    print(work, flush=True)
    time.sleep(60)
"""


def test_a_killed_process_leaves_nothing_for_long(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _HANG, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    left = Path(process.stdout.readline().strip())
    with Cache(tmp_path).work_folder():
        assert left.exists()  # its owner still runs
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    time.sleep(0.05)
    with Cache(tmp_path).work_folder():
        assert not left.exists()


def test_a_cache_that_can_not_be_written_costs_only_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = _file(tmp_path, "file", b"")
    cache = Cache(blocked / "cache")
    cache.put("aa11", {}, {})
    assert cache.get("aa11") is None
    with cache.lock("aa11"):
        pass
