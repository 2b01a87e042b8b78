"""The output folder: never half-written, never somebody else's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edgesdk import output
from edgesdk.errors import InputError, UsageError

DOCUMENT: dict[str, Any] = {"schema": "edgesdk.package/1", "name": "net", "target": "linux"}


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the content, which other tests look at, by one report file."""
    monkeypatch.setattr(
        output,
        "_write",
        lambda document, bundle, work: (work / "report.json").write_text('{"schema": "edgesdk.package/1"}'),
    )


def test_an_earlier_package_is_replaced_as_a_whole(tmp_path: Path, writes: None) -> None:
    out = tmp_path / "out"
    output.emit(DOCUMENT, tmp_path, out, force=False)
    (out / "stale").touch()
    output.emit(DOCUMENT, tmp_path, out, force=False)
    assert [p.name for p in out.iterdir()] == ["report.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_edgesdk_did_not_write_stays(tmp_path: Path, writes: None, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "folder":
        out.mkdir()
        (out / "thesis.tex").touch()
    elif kind == "file":
        out.write_text("mine")
    else:
        out.symlink_to("nowhere")
    with pytest.raises(UsageError, match="--force"):
        output.emit(DOCUMENT, tmp_path, out, force=False)
    assert out.is_symlink() or out.exists()
    output.emit(DOCUMENT, tmp_path, out, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("holds", ["packages", "model", "repository", "cwd", "home"])
def test_force_does_not_delete_what_nobody_means_to_delete(
    tmp_path: Path, writes: None, monkeypatch: pytest.MonkeyPatch, holds: str
) -> None:
    dist = tmp_path / "dist"
    (dist / "inner").mkdir(parents=True)
    precious = dist / "inner" / "report.json"
    precious.write_text('{"schema": "edgesdk.package/1"}' if holds == "packages" else "mine")
    if holds == "repository":
        (dist / ".git").mkdir()
    if holds == "cwd":
        monkeypatch.chdir(dist / "inner")
    if holds == "home":
        monkeypatch.setenv("HOME", str(dist))
    needed = [precious] if holds == "model" else []
    with pytest.raises(UsageError, match="holds") as caught:
        output.check_output(dist, force=True, needed=needed)
    assert f"-o {dist / 'NAME'}" in caught.value.fix and "--force does not" in caught.value.why
    assert precious.exists()


def test_the_model_is_kept_even_inside_an_earlier_package(tmp_path: Path, writes: None) -> None:
    out = tmp_path / "out"
    output.emit(DOCUMENT, tmp_path, out, force=False)
    (out / "model.pt2").touch()
    with pytest.raises(UsageError, match="which this run reads"):
        output.check_output(out, force=False, needed=[out / "model.pt2"])


def test_the_advice_names_what_force_would_delete(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"thesis\.tex") as caught:
        output.check_output(tmp_path, force=False)
    assert "--force deletes everything" in caught.value.fix and f"-o {tmp_path / 'NAME'}" in caught.value.fix


def test_a_failure_takes_back_everything_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(document: Any, bundle: Path, work: Path) -> None:
        (work / "half").touch()
        raise OSError(28, "No space left on device", str(work / "half"))

    monkeypatch.setattr(output, "_write", fail)
    with pytest.raises(InputError) as caught:
        output.emit(DOCUMENT, tmp_path, tmp_path / "a" / "b" / "out", force=False)
    assert caught.value.code == "disk_full"
    assert not list(tmp_path.iterdir())


def test_left_overs_of_killed_runs_are_removed_and_those_of_living_ones_stay(tmp_path: Path, writes: None) -> None:
    dead, alive = tmp_path / ".edgesdk-out-999999999", tmp_path / f".edgesdk-other-{os.getppid()}"
    dead.mkdir()
    alive.mkdir()
    output.emit(DOCUMENT, tmp_path, tmp_path / "out", force=False)
    assert not dead.exists() and alive.exists()


def test_a_parent_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        output.check_output(tmp_path / "file" / "out", force=False)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "loop/out"], ids=["long", "deep", "loop"])
def test_a_path_that_no_file_system_takes_is_an_error_in_words(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises((InputError, UsageError), match="can't be"):
        output.check_output(tmp_path / name, force=False)


def test_a_folder_that_may_not_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so what the system would say to others is put in its mouth."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(InputError, match=str(tmp_path)) as caught:
        output.check_output(tmp_path / "new" / "out", force=False)
    assert caught.value.code == "no_permission"
