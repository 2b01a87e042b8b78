"""What a run says of its files: each warning names them, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgesdk.artifacts import Lowered, OutputFidelity, Verification, Warn
from edgesdk.assembly import _evaluation
from edgesdk.building import Variant
from edgesdk.bundle import Manifest
from edgesdk.evaluation import Evaluation, Flip, Guarded, Score
from edgesdk.making import _about_files
from tests.bundle import hostile

BIG = Warn("large_float_weights", "Large weights stay float32 and keep the file large: embedding.")
SHOWN = OutputFidelity("y", 0.3, 0.02, 14.0, 24.0, 0.999, 0.99)


def variant(quantization: str, *warnings: Warn, verified: bool = True) -> Variant:
    lowered = Lowered("onnx", None, quantization, Path("x.onnx"), "full")
    checked = Verification(True) if verified else Verification("not_run", why="Its engine isn't here.")
    return Variant(lowered, checked, "x.onnx", "0" * 64, warnings)


def test_a_warning_of_two_files_names_both_and_comes_once() -> None:
    own = Warn("slower_than_float", "onnx-static-int8 is slower than float32.")
    found = _about_files(
        [variant("none"), variant("static-int8", BIG, own), variant("dynamic-int8", BIG, verified=False)]
    )
    assert [w["code"] for w in found] == ["large_float_weights", "slower_than_float", "not_verified"]
    assert found[0]["message"] == f"onnx-static-int8, onnx-dynamic-int8: {BIG.message}"
    assert found[0]["variants"] == ["onnx-static-int8", "onnx-dynamic-int8"]
    assert found[1]["message"] == own.message, "it names its file already"
    assert found[2] == {
        "code": "not_verified", "message": "onnx-dynamic-int8: Its engine isn't here.", "variants": ["onnx-dynamic-int8"],
    }  # fmt: skip


def test_the_manifest_keeps_what_data_showed_and_nothing_else_changes() -> None:
    score = Score("top1", 90.56, 90.45, 0.11, 2000)
    found = Evaluation(
        2000, "evaluation", "x86_64 host", score, 0.991, 1.0, 2000, 18, (Flip("a.png", "1", "7"),), (SHOWN,)
    )
    told = _evaluation(replace(variant("static-int8"), guarded=Guarded(found)))
    plain = hostile.plain_manifest()
    before = Manifest.from_json(plain).to_bytes()
    assert b"evaluation" not in before, "files that were not judged keep their bytes"
    plain["variants"][0]["evaluation"] = told
    manifest = Manifest.from_json(plain)
    part = manifest.variants[0].evaluation
    assert part is not None and part.score is not None
    assert (part.score.name, part.score.original, part.score.value) == ("top1", 90.56, 90.45)
    assert (part.top1, part.samples, part.where, part.outputs[0].snr_db) == (0.991, 2000, "x86_64 host", 24.0)
    assert b"a.png" not in manifest.to_bytes(), "names of the user's files stay at home"
    assert Manifest.from_json(manifest.to_json()).to_bytes() == manifest.to_bytes()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_metric_without_a_number_leaves_no_metric_in_the_manifest(value: float) -> None:
    found = Evaluation(4, "evaluation", "here", Score("mine", 1.0, value, value, 4))
    told = _evaluation(replace(variant("static-int8"), guarded=Guarded(found)))
    assert told is not None and told["score"] is None
    assert _evaluation(replace(variant("static-int8"), guarded=Guarded(Evaluation(0, "none", "")))) is None
