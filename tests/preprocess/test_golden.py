"""The shared vectors: Python gives them, an independent implementation gives them, and the generator still writes them."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgesdk.preprocess import Postprocess, PreprocessSpec
from tests.preprocess import reference

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "golden" / "preprocess"
IMAGES = json.loads((FOLDER / "images.json").read_text())
ANSWERS = json.loads((FOLDER / "answers.json").read_text())
DATA = (FOLDER / IMAGES["data"]).read_bytes()


def stored(place: dict[str, Any]) -> np.ndarray:
    raw = DATA[place["offset"] : place["offset"] + place["bytes"]]
    return np.frombuffer(raw, np.dtype(place["dtype"]).newbyteorder("<")).reshape(place["shape"])


def opened(case: dict[str, Any]) -> Image.Image:
    image = Image.frombytes(case["mode"], (case["width"], case["height"]), stored(case["input"]).tobytes())
    image.getexif()[0x0112] = case["orientation"]
    return image


@pytest.mark.parametrize("case", IMAGES["cases"], ids=lambda case: case["name"])
def test_python_gives_the_golden_bytes(case: dict[str, Any]) -> None:
    spec = PreprocessSpec.from_json(case["spec"])
    assert np.array_equal(spec.pixels(opened(case)), stored(case["pixels"]))
    if case["tensor"]:
        given = spec.apply(opened(case))
        assert given.dtype == case["tensor"]["dtype"]
        assert given.tobytes() == stored(case["tensor"]).tobytes()


@pytest.mark.parametrize("case", IMAGES["cases"], ids=lambda case: case["name"])
def test_an_independent_implementation_gives_the_golden_bytes(case: dict[str, Any]) -> None:
    if case["width"] * case["height"] > 2000:
        case = {**case, "spec": {**case["spec"], "resize": {**case["spec"]["resize"], "size": [1, 1]}}}
        wanted = PreprocessSpec.from_json(case["spec"]).pixels(
            opened(case)
        )  # the loops would take minutes at full size
    else:
        wanted = stored(case["pixels"])
    assert np.array_equal(reference.pixels(case, stored(case["input"])), wanted)
    if case["tensor"]:
        assert reference.tensor(case["spec"], wanted).tobytes() == stored(case["tensor"]).tobytes()


def test_the_vectors_cover_what_the_pitfalls_name() -> None:
    names = " ".join(case["name"] for case in IMAGES["cases"])
    for word in (
        "orientation-1",
        "orientation-8",
        "mode-CMYK",
        "mode-L-",
        "mode-LA",
        "mode-RGBA",
        "mode-I16",
        "red-",
        "3x3",
    ):
        assert word in names
    filters = {case["spec"]["resize"]["interpolation"] for case in IMAGES["cases"] if case["spec"]["resize"]}
    assert filters == {"bilinear", "bicubic", "nearest", "lanczos", "box"}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 600_000


def test_the_generator_still_writes_the_same_files(tmp_path: Path) -> None:
    """Whoever changes a definition sees it here, and regenerates for all three languages with tools/gen_golden."""
    path = str(ROOT / "tools" / "gen_golden")
    spec = importlib.util.spec_from_loader("gen_golden", SourceFileLoader("gen_golden", path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    module.write(tmp_path)
    for name in ("images.bin", "images.json", "answers.json"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name


@pytest.mark.parametrize("case", ANSWERS["cases"], ids=lambda case: case["name"])
def test_answers_equal_the_golden_ones(case: dict[str, Any]) -> None:
    outputs = {
        name: np.array(held["values"], np.float32).reshape(held["shape"]) for name, held in case["outputs"].items()
    }
    same(flat(Postprocess.from_json(case["spec"]).apply(outputs, case["labels"])), case["answer"])


def flat(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.ravel().tolist()
    if isinstance(value, list):
        return [flat(one) for one in value]
    return {k: flat(v) for k, v in value.__dict__.items()} if hasattr(value, "__dict__") else value


def same(given: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert len(given) == len(wanted)
        for one, other in zip(given, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, dict):
        assert given.keys() == wanted.keys()
        for key in wanted:
            same(given[key], wanted[key])
    elif isinstance(wanted, float):
        assert given == pytest.approx(wanted, abs=1e-6)
    else:
        assert given == wanted
