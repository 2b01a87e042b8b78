"""The cache: whole or not at all, safe against two processes and against being killed, bounded."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgesdk import cache as caching
from edgesdk.cache import Cache
from edgesdk.errors import InputError, UsageError


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_a_result_comes_back_whole(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("aa11", {"n": 1}, {"x.pte": _file(tmp_path, "x", b"weights")})
    entry = cache.get("aa11", tmp_path / "got")
    assert entry and entry.document == {"n": 1} and entry.files["x.pte"].read_bytes() == b"weights"
    assert (cache.hits, cache.misses) == (1, 0)


def test_a_damaged_entry_is_a_miss_and_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("aa11", {}, {"x.pte": _file(tmp_path, "x", b"weights")})
    next((tmp_path / "cache" / "objects").rglob("x.pte")).write_bytes(b"weighty")
    assert cache.get("aa11", tmp_path / "got") is None
    assert cache.stats().entries == 0


@pytest.mark.parametrize("damage", ["cut", "figure", "empty", "gone", "payload gone", "deep"])
def test_any_damage_is_a_miss_and_the_next_result_takes_its_place(tmp_path: Path, damage: str) -> None:
    """An entry that stays damaged for ever would cost its time in every run; a changed figure would be believed."""
    cache = Cache(tmp_path / "cache")
    source = {"x.pte": _file(tmp_path, "x", b"weights")}
    cache.put("aa11", {"error": 0.125}, source)
    index = next((tmp_path / "cache" / "objects").rglob("entry.json"))
    change: dict[str, Callable[[], object]] = {
        "cut": lambda: index.write_bytes(index.read_bytes()[:-9]),
        "figure": lambda: index.write_bytes(index.read_bytes().replace(b"0.125", b"0.025")),
        "empty": lambda: index.write_bytes(b""),
        "gone": index.unlink,
        "payload gone": index.with_name("x.pte").unlink,
        "deep": lambda: index.write_text("[" * 100_000),
    }
    change[damage]()
    assert cache.get("aa11", tmp_path / "got") is None
    cache.put("aa11", {"error": 0.125}, source)
    entry = cache.get("aa11", tmp_path / "got")
    assert entry and entry.document == {"error": 0.125} and entry.files["x.pte"].read_bytes() == b"weights"


def test_an_entry_that_was_handed_out_outlives_the_cache(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("aa11", {}, {"x.pte": _file(tmp_path, "x", b"weights")})
    entry = cache.get("aa11", tmp_path / "got")
    assert Cache(tmp_path / "cache").clean() > 0
    assert entry and entry.files["x.pte"].read_bytes() == b"weights"


def test_what_a_killed_clean_left_is_no_entry_and_goes_with_the_next(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("aa11", {}, {})
    entry = tmp_path / "cache" / "objects" / "aa" / "aa11"
    entry.rename(entry.with_name("aa11-0.trash"))
    assert cache.stats().entries == 0
    cache.clean()
    assert list(entry.parent.iterdir()) == []


@pytest.mark.parametrize("text", ["abc", "2GB", "-5", "1.5", "9" * 30])
def test_a_limit_that_is_no_number_names_its_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESDK_CACHE_MAX_BYTES", text)
    with pytest.raises(UsageError, match="EDGESDK_CACHE_MAX_BYTES"):
        Cache()


def test_an_empty_limit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESDK_CACHE_MAX_BYTES", "")
    assert Cache().max_bytes == caching.DEFAULT_MAX_BYTES


def test_without_a_place_for_the_cache_the_work_is_done_elsewhere_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with Cache(_file(tmp_path, "file", b"") / "cache").work_folder() as work:
        assert work.parent == temporary
    assert list(temporary.iterdir()) == []


def test_a_cache_that_is_deleted_under_a_run_is_said(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    with pytest.raises(InputError, match="was removed during the run"), cache.work_folder() as work:
        shutil.rmtree(tmp_path / "cache")
        (work / "x").write_text("y")


def test_disabled_neither_reads_nor_writes(tmp_path: Path) -> None:
    Cache(tmp_path / "cache").put("aa11", {}, {})
    off = Cache(tmp_path / "cache", enabled=False)
    off.put("bb22", {}, {})
    assert off.get("aa11", tmp_path / "got") is None
    assert off.stats().entries == 1


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    for age, name in enumerate(("old1", "new2", "mid3")):
        cache.put(name, {}, {"f": _file(tmp_path, name, bytes(1000))})
        folder = tmp_path / "cache" / "objects" / name[:2] / name
        os.utime(folder, (1000 + age, 1000 + age))
    assert cache.get("old1", tmp_path / "got1")  # now it is the youngest
    cache.clean(2500)
    assert [cache.get(name, tmp_path / "got2") is not None for name in ("old1", "new2", "mid3")] == [True, False, True]


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
        entry = cache.get(f"key{i:02}", tmp_path / f"got{i}")
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
    assert cache.get("aa11", tmp_path / "got") is None
    with cache.lock("aa11"):
        pass
