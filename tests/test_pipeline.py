"""The whole run on a real trained net and real engines: from the file to answers, twice, at once, killed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgesdk
from tests.models import digits_data, digits_pt2, trained_digits

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of its own for this module."""
    folder = tmp_path_factory.mktemp("cache")
    patch = pytest.MonkeyPatch()
    patch.setenv("EDGESDK_CACHE_DIR", str(folder))
    yield folder
    patch.undo()


@pytest.fixture(scope="module")
def all_three(home: Path, tmp_path_factory: pytest.TempPathFactory) -> edgesdk.Package:
    out = tmp_path_factory.mktemp("all") / "out"
    return edgesdk.package(digits_pt2(), "linux", runtime=("executorch", "torchscript", "onnx"), output=out)


def _command(*words: object, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "edgesdk", *map(str, words)], cwd=cwd, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )  # fmt: skip


def _json(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_runtime_answers_unseen_digits_as_torch_does(all_three: edgesdk.Package) -> None:
    pixels, labels = digits_data()
    with torch.no_grad():
        wanted = np.concatenate([trained_digits()(torch.from_numpy(p[None])).numpy() for p in pixels[-60:]])
    for variant in all_three.variants:
        with edgesdk.load(all_three.bundle, variant["id"]) as session:
            found = np.concatenate([session.run({"input": p[None]})["output"] for p in pixels[-60:]])
        assert np.abs(found - wanted).max() < 1e-4
        assert (found.argmax(1) == labels[-60:]).mean() > 0.9


def test_files_of_the_current_folder_hide_no_library(home: Path, tmp_path: Path) -> None:
    """A project's own ``random.py`` or a folder ``z3`` (which torch asks for) was imported in place of the library."""
    for name in ("random", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the library')\n")
    (tmp_path / "z3").mkdir()
    shutil.copy(digits_pt2(), tmp_path / "digits.pt2")
    root = str(Path(__file__).parent.parent)
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "edgesdk", "package", "digits.pt2", "--target", "linux", "--no-cache", "-o", "out"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_the_bundle_verifies_and_another_model_does_not_pass_for_it(all_three: edgesdk.Package, tmp_path: Path) -> None:
    assert edgesdk.verify(all_three.bundle).ok
    assert edgesdk.verify(all_three.bundle, against=str(digits_pt2())).ok
    other = trained_digits()
    changed = torch.nn.Sequential(other, torch.nn.Tanh())
    torch.export.save(torch.export.export(changed, (torch.zeros(1, 1, 8, 8),)), tmp_path / "other.pt2")
    verdict = edgesdk.verify(all_three.bundle, against=str(tmp_path / "other.pt2"))
    assert not verdict.ok and verdict.exit == 5


def test_a_second_run_lowers_nothing_and_gives_the_same_bytes(all_three: edgesdk.Package, tmp_path: Path) -> None:
    again = edgesdk.package(
        digits_pt2(), "linux", runtime=("executorch", "torchscript", "onnx"), output=tmp_path / "again"
    )
    assert (again.document["cache"]["hits"], again.document["cache"]["misses"]) == (3, 0)
    names = sorted(p.name for p in all_three.output.iterdir())
    assert names == sorted(p.name for p in again.output.iterdir())
    assert all(_sha(all_three.output / n) == _sha(again.output / n) for n in names)


def test_another_target_reuses_the_lowered_file(all_three: edgesdk.Package, tmp_path: Path) -> None:
    package = edgesdk.package(digits_pt2(), "android", output=tmp_path / "android")
    assert (package.document["cache"]["hits"], package.document["cache"]["misses"]) == (1, 0)


def test_two_at_once_both_get_it_right(home: Path, tmp_path: Path) -> None:
    words = (
        "package",
        digits_pt2(),
        "--target",
        "linux",
        "--runtime",
        "onnx",
        "--json",
        "-o",
        "out",
        "--version",
        "7.0",
    )
    with ThreadPoolExecutor(2) as threads:
        documents = list(threads.map(_json, [_command(*words, cwd=tmp_path) for _ in range(2)]))
    assert documents[0]["bundle_sha256"] == documents[1]["bundle_sha256"] == _sha(tmp_path / "out" / "digits.edge")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert edgesdk.verify(tmp_path / "out" / "digits.edge").ok


@pytest.mark.parametrize("after", ["importing", "lowering", "bundling"])
def test_killed_half_way_and_run_again(home: Path, tmp_path: Path, after: str) -> None:
    words = ("package", digits_pt2(), "--target", "linux", "--runtime", "onnx", "-o", "out", "--version", f"9-{after}")
    process = _command(*words, cwd=tmp_path)
    assert process.stderr
    for line in process.stderr:
        if after in line:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _wait_until_alone(process.pid)
    assert not (tmp_path / "out").exists()
    assert _command(*words, cwd=tmp_path).wait(timeout=300) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert not list((home / "work").iterdir())
    assert edgesdk.verify(tmp_path / "out" / "digits.edge").ok


def _wait_until_alone(group: int) -> None:
    """Workers end with their parent; a second is plenty."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("a worker outlived its parent")


def test_a_full_disk_leaves_nothing(home: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=False).returncode == 0
    )
    if not mounted:  # needs root: a file size limit gives the same kind of failure to everybody else
        pytest.skip("mounting a small file system needs root")
    try:
        process = _command("package", digits_pt2(), "--target", "linux", "-o", small / "out", "--json", cwd=tmp_path)
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 3 and json.loads(out)["code"] == "disk_full"
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_module_in_memory_is_packaged_and_left_as_it_was(home: Path, tmp_path: Path) -> None:
    net = trained_digits().train()
    package = edgesdk.package(
        net, "linux", inputs=["input=float32[1..4,1,8,8]"], runtime="onnx", output=tmp_path / "out"
    )
    assert net.training
    net.eval()
    pixels, _ = digits_data()
    with edgesdk.load(package.bundle) as session, torch.no_grad():
        found = session.run({"input": pixels[:3]})["output"]
        assert np.abs(found - net(torch.from_numpy(pixels[:3])).numpy()).max() < 1e-4


def test_signing_changes_the_bundle_and_verifies_with_the_key(home: Path, tmp_path: Path) -> None:
    from edgesdk.bundle import signing

    key, public = signing.new_key(tmp_path / "release.key")
    package = edgesdk.package(digits_pt2(), "linux", runtime="onnx", output=tmp_path / "out", sign=key)
    assert edgesdk.verify(package.bundle, key=public).signature == "valid"
    shutil.copy(package.bundle, tmp_path / "x.edge")
    data = bytearray((tmp_path / "x.edge").read_bytes())
    data[-30] ^= 4
    (tmp_path / "x.edge").write_bytes(data)
    with pytest.raises(edgesdk.EdgeError):
        edgesdk.load(tmp_path / "x.edge", key=public)


@pytest.mark.parametrize("caching", ["cached", "--no-cache"])
def test_two_targets_of_one_command_import_and_lower_once(tmp_path: Path, home: Path, caching: str) -> None:
    """The factory of the user's own file leaves a line each time it is called."""
    (tmp_path / "own.py").write_text(
        "import pathlib\nfrom torch import nn\n\ndef make():\n"
        "    with (pathlib.Path(__file__).parent / 'calls').open('a') as file:\n        file.write('x')\n"
        f"    return nn.Sequential(nn.Linear(3, {2 if caching == 'cached' else 4}), nn.Tanh())\n"
    )
    words = ["own.py:make", "--input", "input=float32[1,3]", "--json", *([caching] if caching == "--no-cache" else [])]
    targets = ["--target", "android", "--target", "ios"]
    both = _json(_command("package", *words, *targets, cwd=tmp_path))["packages"]
    assert (tmp_path / "calls").read_text() == "x"
    alone = _json(_command("package", *words, "--target", "ios", "-o", "alone", cwd=tmp_path))
    assert [p["target"] for p in both] == ["android", "ios"]
    assert both[1]["bundle_sha256"] == alone["bundle_sha256"] != both[0]["bundle_sha256"]
    for package in both:
        assert (tmp_path / package["bundle"]).is_file() and package["variants"][0]["verified"] is True
    assert not list((home / "work").iterdir())
