"""The spec as data: JSON, options, and whether it fits the model."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.errors import EdgeError, InputError, UnsupportedError, UsageError
from edgesdk.preprocess import AudioSpec, Crop, ImageSpec, Postprocess, PreprocessSpec, Resize

FULL = ImageSpec(
    input="pixels", color="bgr", background=(1, 2, 3), resize=Resize("letterbox", (20, 30), "lanczos", rounding="half_even"),
    crop=Crop((18, 22), "floor"), fill=(7, 8, 9), align="top_left", scale=1 / 127.5, mean=(0.1, 0.2, 1.3), std=(0.3, 1.0, 2.0),
    layout="nhwc", dtype="float16",
)  # fmt: skip


@pytest.mark.parametrize(
    "spec",
    [
        ImageSpec(),
        FULL,
        PreprocessSpec.from_options(224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        PreprocessSpec.from_options((28, 20), "stretch", channels=1, interpolation="nearest"),
        AudioSpec(sample_rate=8000, frame=256, hop=64, normalize="standard"),
        AudioSpec(input="wave", samples=4000),
    ],
)
def test_json_gives_the_same_spec_back(spec: PreprocessSpec) -> None:
    text = json.dumps(spec.to_json())
    assert PreprocessSpec.from_json(json.loads(text)) == spec
    assert json.loads(text) == spec.to_json()


def test_the_json_form_is_pinned() -> None:
    """Bundles and two other languages hold this text: changing it means a new version number."""
    assert FULL.to_json() == {
        "kind": "image", "version": 1, "input": "pixels", "color": "bgr", "background": [1, 2, 3],
        "resize": {"mode": "letterbox", "size": [20, 30], "interpolation": "lanczos", "antialias": True, "rounding": "half_even"},
        "crop": {"size": [18, 22], "rounding": "floor"}, "fill": [7, 8, 9], "align": "top_left",
        "scale": 1 / 127.5, "mean": [0.1, 0.2, 1.3], "std": [0.3, 1.0, 2.0], "layout": "nhwc", "dtype": "float16",
    }  # fmt: skip


def changed(**fields: Any) -> dict[str, Any]:
    return {**FULL.to_json(), **fields}


@pytest.mark.parametrize(
    ("document", "kind", "word"),
    [
        ({"kind": "text", "version": 1, "tokenizer": "t.json"}, UnsupportedError, "text"),
        ({"kind": "video"}, InputError, "video"),
        ({}, InputError, "None"),
        (changed(version=2), UnsupportedError, "version 2"),
        (changed(colour="rgb"), InputError, "Did you mean 'color'"),
        (changed(color="hsv"), InputError, "hsv"),
        (changed(std=[0, 1, 1]), InputError, "std"),
        (changed(mean=[0.5]), InputError, "1 numbers"),
        (changed(mean="abc"), InputError, "can't be read"),
        (changed(resize={"mode": "shorter"}), InputError, "size"),
        (changed(resize={**FULL.to_json()["resize"], "mode": "zoom"}), InputError, "zoom"),
        (changed(resize={**FULL.to_json()["resize"], "antialias": False}), UnsupportedError, "antialias"),
        (changed(crop={"size": [0, 5], "rounding": "floor"}), InputError, "0, 5"),
        ({k: v for k, v in FULL.to_json().items() if k != "crop"}, InputError, "crop"),
        ({"kind": "audio", "version": 1, "sample_rate": 16000, "mel": {"bins": 80}}, UnsupportedError, "mel"),
        ({"kind": "audio", "version": 1, "resample": 8000}, UnsupportedError, "resample"),
        ({"kind": "audio", "version": 1, "sample_rate": 0}, InputError, "sample_rate"),
        ({"kind": "audio", "version": 3}, InputError, "Version 3"),
    ],
)
def test_documents_that_cannot_be_followed_are_refused(
    document: dict[str, Any], kind: type[EdgeError], word: str
) -> None:
    with pytest.raises(kind) as caught:
        PreprocessSpec.from_json(document)
    assert word in str(caught.value) and caught.value.fix


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"mean": (123.7, 116.3, 103.5), "std": (58.4, 57.1, 57.4)}, "0.4851,0.4561,0.4059"),
        ({"std": (58.4, 57.1, 57.4)}, "scale"),
        ({"mean": (0.5, 0.5)}, "2 numbers"),
        ({"std": (0.0, 1.0, 1.0)}, "divided by std"),
        ({"mean": (float("nan"), 0.0, 0.0)}, "finite"),
        ({"mean": ("a", 0, 0)}, "no number"),
        ({"resize": "zoom"}, "stretch"),
        ({"interpolation": "cubic"}, "bicubic"),
        ({"channels": 4}, "4 channels"),
        ({"image": 0}, "whole numbers"),
        ({"image": (224, 99999)}, "16384"),
    ],
)
def test_options_are_checked_in_words(options: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError) as caught:
        PreprocessSpec.from_options(**{"image": 32, **options})
    assert word in str(caught.value) and caught.value.code == "bad_preprocess"


def test_one_number_stands_for_all_channels() -> None:
    spec = PreprocessSpec.from_options(32, mean=(0.5,), std=(0.25,))
    assert spec.mean == (0.5,) * 3 and spec.std == (0.25,) * 3
    grey = PreprocessSpec.from_options(28, mean=(0.13,), std=(0.31,), channels=1)
    assert grey.color == "gray" and grey.channels == 1


SPEC = PreprocessSpec.from_options(32)


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (TensorSpec("x", "float32", (1, 3, 32, 32)), None),
        (TensorSpec("x", "float32", (Dim(1, 8), 3, Dim(32, 64), 32)), None),
        (TensorSpec("x", "float32", None), None),
        (TensorSpec("x", "float32", (1, 32, 32, 3)), "layout nhwc"),
        (TensorSpec("x", "float32", (2, 3, 32, 32)), "batch of 1"),
        (TensorSpec("x", "float32", (1, 1, 32, 32)), "channel count of 3"),
        (TensorSpec("x", "float32", (1, 3, 30, 32)), "height of 32"),
        (TensorSpec("x", "float32", (1, 3, 32, Dim(33, 64))), "width of 32"),
        (TensorSpec("x", "float16", (1, 3, 32, 32)), "float16"),
        (TensorSpec("x", "int64", (1, 7)), "int64"),
        (TensorSpec("x", "float32", (1, 7)), "4 dimensions"),
    ],
)
def test_pitfall_n_08_a_spec_that_does_not_fit_says_why(tensor: TensorSpec, word: str | None) -> None:
    reason = SPEC.fits(tensor)
    assert (reason is None) if word is None else (reason is not None and word in reason)


def test_a_size_of_its_own_fits_only_a_dynamic_input() -> None:
    free = ImageSpec()
    assert free.fits(TensorSpec("x", "float32", (1, 3, Dim(32, 512), Dim(32, 512)))) is None
    assert "varies" in str(free.fits(TensorSpec("x", "float32", (1, 3, 64, 64))))


def test_the_picture_among_several_inputs_is_found() -> None:
    inputs = [TensorSpec("ids", "int64", (1, 77)), TensorSpec("pixels", "float32", (1, 3, 32, 32))]
    assert SPEC.bind(inputs).input == "pixels"
    with pytest.raises(InputError, match="doesn't fit") as caught:
        SPEC.bind(inputs[:1])
    assert caught.value.code == "preprocess_mismatch"
    with pytest.raises(InputError, match="pixel"):
        PreprocessSpec.from_json({**SPEC.to_json(), "input": "pixel"}).bind(inputs)


@pytest.mark.parametrize("kind", ["raw", "classify", "boxes", "segment", "embed"])
def test_postprocess_json(kind: Any) -> None:
    post = Postprocess(kind)
    assert Postprocess.from_json(json.loads(json.dumps(post.to_json()))) == post


@pytest.mark.parametrize("document", [{"kind": "dance", "version": 1}, {"kind": "raw", "version": 2}, {"kind": "classify", "topk": 3, "version": 1}])  # fmt: skip
def test_unknown_postprocess_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        Postprocess.from_json(document)
    assert caught.value.code == "postprocess_invalid"


def test_the_module_imports_neither_torch_nor_pillow() -> None:
    code = "import sys, edgesdk.preprocess; print([m for m in ('torch', 'PIL', 'torchvision') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
