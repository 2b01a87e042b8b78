"""The Fashion-MNIST example and the quantization table's tool: what they promise, on scikit-learn's digits.

The example's own code runs from end to end; only the pictures are others, since Debian's data package is not everywhere.
"""

from __future__ import annotations

import gzip
import importlib.machinery
import importlib.util
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
FASHION, QUANT = ROOT / "examples" / "fashion", ROOT / "examples" / "quant"


def load(path: Path) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(path.stem + "_under_test", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look their module up
    try:
        loader.exec_module(module)
    finally:
        del sys.modules[loader.name]
    return module


def write_idx(path: Path, array: np.ndarray) -> None:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes(), mtime=0))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits of 8 x 8 pixels, three times as large on a black ground: four files as Debian's package has them."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("idx")
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    large = np.pad(np.kron(found.images[order] * 255 / 16, np.ones((3, 3))), ((0, 0), (2, 2), (2, 2)))
    for part, chosen in (("train", slice(0, 1397)), ("t10k", slice(1397, None))):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", large[chosen])
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", found.target[order][chosen])
    return folder


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=os.environ | {"XDG_CACHE_HOME": str(cwd / "cache")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    said = run(
        str(FASHION / "train.py"), "cnn", ".", "--steps", "120", "--data", str(pictures), "--threads", "1", cwd=out
    )
    assert "464,362 parameters" in said
    return out


def test_pictures_are_read_as_they_are_stored(pictures: Path) -> None:
    data = load(FASHION / "data.py")
    images, labels = data.fashion("t10k", pictures)
    assert images.shape == (400, 1, 28, 28) and images.dtype == np.float32
    assert np.isclose(images.min(), -data.MEAN / data.STD) and np.isclose(images.max(), (1 - data.MEAN) / data.STD)
    assert labels.dtype == np.int64 and set(labels) == set(range(10))


def test_calibration_has_equally_many_of_each_class() -> None:
    labels = np.array([0] * 500 + [1] * 40 + [2] * 60)
    chosen = load(FASHION / "data.py").balanced(labels, 90)
    assert np.bincount(labels[chosen]).tolist() == [30, 30, 30] and len(set(chosen)) == 90


def test_a_folder_that_is_not_there_is_told_with_the_package_that_has_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="apt-get install dataset-fashion-mnist"):
        load(FASHION / "data.py").fashion("train", tmp_path / "none")


def test_metrics_of_the_table() -> None:
    metrics = load(QUANT / "metrics.py")
    scores = np.eye(4, dtype=np.float32)[[0, 2, 2, 0, 3, 3]][None]  # reads 2, 3
    assert metrics.characters({"y": scores}, np.array([[2, 3, -1, -1, -1, -1]])) == 100
    assert metrics.characters({"y": scores}, np.array([[2, 1, -1, -1, -1, -1]])) == 50
    true = np.array([[[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]]])  # the last token is masked
    same = np.array([[[2.0, 0.0], [2.0, 4.0], [9.0, -9.0]]])
    assert metrics.cosine({"h": same}, true) == pytest.approx(100)
    assert metrics.cosine({"h": np.array([[[1.0, -1.0], [1.0, -1.0], [0.0, 0.0]]])}, true) == pytest.approx(0, abs=1e-6)
    mask = np.array([[[[0.9, 0.9, 0.1, 0.1]]]])
    assert metrics.mask_iou({"m": mask}, np.array([[[[0, 1, 1, 0]]]])) == pytest.approx(100 / 3)
    assert metrics.speech({"p": np.array([[0.7]]), "state": np.zeros((2, 1, 8))}, np.array([1])) == 100


@pytest.mark.slow
def test_the_hostile_net_is_the_same_function(trained: Path, tmp_path: Path) -> None:
    said = run(str(QUANT / "hostile.py"), "cnn", str(trained / "cnn.pt"), "hostile.pt2", cwd=tmp_path)
    assert float(said.split("differ by ")[1].split()[0]) < 1e-3
    assert (tmp_path / "hostile.pt2").is_file()


def test_files_that_one_command_makes_go_together() -> None:
    tool = load(ROOT / "tools" / "quant_zoo")
    both = [(runtime, scheme) for runtime in ("executorch", "onnx") for scheme in ("weight-int8", "weight-int4")]
    lite = [("torchscript", "weight-int8")]
    lacking = ("torchscript", "weight-int4")
    assert tool.groups([*both, *lite, lacking]) == [both, lite, [lacking]]
    assert tool.groups([]) == []


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["executorch", "onnx"])
def test_the_example_is_small_and_as_right_as_before(runtime: str, trained: Path, tmp_path: Path) -> None:
    """The row that the table's tool writes of the very command that the example's README gives."""
    tool = load(ROOT / "tools" / "quant_zoo")
    entry = next(e for e in tool.ENTRIES if e.name == "Fashion CNN")
    (tmp_path / "fashion").symlink_to(trained)
    file = (runtime, "static-int8")
    command = tool.command_of(entry, [file], None, tmp_path, tmp_path, False)
    row: dict[str, Any] = {"model": entry.name, "runtime": runtime, "scheme": "static-int8", "limit": None}
    row |= tool.measure([sys.executable, "-m", "edgesdk", *command[1:]], [file], tmp_path, 900)[file]
    assert row["ok"], row
    score = row["metric"]
    assert score["name"] == "top1" and score["samples"] == 400
    assert score["original"] > 93 and score["drop"] <= 2
    assert row["bytes"] <= 0.27 * row["float_bytes"]
    assert row["float_layers"] == [] and row["latency"]["ratio"] > 0
    tool.write(row, tmp_path)
    tool.write(row, tmp_path)  # measured again: no second row
    assert json.loads((tmp_path / "quant.json").read_text()) == [row]
    assert f"{score['original']:.2f} → {score['value']:.2f}" in (tmp_path / "quant.md").read_text()


@pytest.mark.slow
def test_a_refusal_and_a_timeout_are_rows_too(trained: Path, tmp_path: Path) -> None:
    tool = load(ROOT / "tools" / "quant_zoo")
    entry = next(e for e in tool.ENTRIES if e.name == "Fashion CNN")
    (tmp_path / "fashion").mkdir()
    files = [("onnx", "static-int8"), ("onnx", "fp16")]
    command = [
        sys.executable, "-m", "edgesdk", *tool.command_of(entry, files, None, tmp_path, tmp_path, False)[1:]
    ]  # fmt: skip
    key = {"model": entry.name, "runtime": "onnx", "scheme": "static-int8", "limit": None}
    refused = key | tool.measure(command, files, tmp_path, 300)[files[0]]
    assert refused["exit"] == 3 and "exit 3" in tool.cells(refused)[-1]
    late = key | tool.measure(command, files, tmp_path, 0.01)[files[1]]
    assert late["code"] == "timeout" and "not finished" in tool.cells(late)[-1]
