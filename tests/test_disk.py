"""Full disks: what PyTorch writes fails in words, and a cache that can't be written costs time only."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from edgesdk import _disk, modelfile
from edgesdk._worker import _run
from edgesdk.quantize import _kept
from tests.runtimes.executorch_nets import model_of

BIG = {"a": torch.zeros(1 << 18)}
ROOT = Path(__file__).parent.parent


@contextlib.contextmanager
def no_room(size: int = 1 << 16) -> Iterator[None]:
    """Files may not grow beyond that: to PyTorch's writer the same as a full disk, and needs no root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def write_plainly(args: dict[str, Any], report: Any) -> dict[str, Any]:
    torch.save(BIG, args["path"])
    return {}


def save_model(args: dict[str, Any], report: Any) -> dict[str, Any]:
    model = model_of(torch.nn.Linear(300, 300), (torch.zeros(1, 300),))
    with no_room():
        modelfile.save(model, Path(args["folder"]))
    return {}


def test_a_model_that_does_not_fit_leaves_no_half_file_and_says_why(tmp_path: Path) -> None:
    found = _run({"call": "tests.test_disk:save_model", "args": {"folder": str(tmp_path)}}, None)
    assert found["error"]["code"] == "file_too_large" and "model.pt2" in found["error"]["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


@pytest.mark.slow
def test_a_script_that_does_not_fit_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    """torch.jit.save by name ends the process there: its writer throws while it is destroyed."""
    code = (
        "import torch, sys\nfrom pathlib import Path\nfrom tests.test_disk import no_room, _disk\n"
        "net = torch.jit.trace(torch.nn.Linear(300, 300), torch.zeros(1, 300))\npath = Path(sys.argv[1])\n"
        "try:\n  with no_room(), _disk.writing(path) as file: torch.jit.save(net, file)\n"
        "except OSError as e: print(e.filename == str(path), path.exists())"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "x.pt")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.strip()) == (0, "True False"), ran.stderr


def test_what_fits_is_read_back(tmp_path: Path) -> None:
    with _disk.writing(tmp_path / "x.pt") as file:
        torch.save(BIG, file)
    assert torch.equal(torch.load(tmp_path / "x.pt")["a"], BIG["a"])


def test_a_training_that_can_t_be_kept_is_not_lost(tmp_path: Path) -> None:
    place = tmp_path / "qat.pt"
    with no_room():
        _kept.write(place, BIG)
    assert not list(tmp_path.iterdir()) and _kept.read(place) is None
    _kept.write(place, BIG)
    found = _kept.read(place)
    assert found is not None and torch.equal(found["a"], BIG["a"])


def test_other_writers_of_pytorch_on_a_full_disk_are_no_bug_of_ours(tmp_path: Path) -> None:
    job = {"call": "tests.test_disk:write_plainly", "args": {"path": str(tmp_path / "x.pt")}}
    with no_room():
        found = _run(job, None)
    assert found["error"]["code"] == "disk_full" and found["error"]["exit"] == 3


def fill(args: dict[str, Any], report: Any) -> dict[str, Any]:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("cached", "variable"), [(True, "EDGESDK_CACHE_DIR"), (False, "TMPDIR")])
def test_a_full_work_folder_is_called_that_with_what_moves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool, variable: str
) -> None:
    monkeypatch.setenv("EDGESDK_CACHE_DIR", str(tmp_path if cached else tmp_path / "other"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work"))
    said = _run({"call": "tests.test_disk:fill", "args": {}}, None)["error"]
    assert said["code"] == "disk_full" and f"the work folder {tmp_path}/work" in said["message"]
    assert variable in said["fix"] and "-o" not in said["fix"].split()


def test_a_copy_that_does_not_fit_names_the_new_file(tmp_path: Path) -> None:
    source, target = tmp_path / "in the cache", tmp_path / "where it was asked for"
    source.write_bytes(bytes(1 << 18))
    with no_room(), pytest.raises(OSError) as caught:
        shutil.copyfile(source, target)
    told = _disk.disk_error(caught.value)
    assert told is not None and str(target) in told.message and str(source) not in told.message
