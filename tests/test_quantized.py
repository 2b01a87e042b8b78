"""Quantized packages end to end: a trained net, real engines, real data. Slow: each test runs the whole pipeline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgesdk
from edgesdk.errors import GateError, InputError
from edgesdk.progress import Silent

pytestmark = pytest.mark.slow
CLASSES = 10


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CNN trained on scikit-learn's digits, its hostile twin, and data: ``cal.npz``, ``eval.npz``."""
    import torch
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("lab")
    digits = load_digits()
    images, labels = (digits.images / 16).astype(np.float32)[:, None], digits.target
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(512, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    x, y = torch.from_numpy(images[:1200]), torch.from_numpy(labels[:1200])
    for _ in range(12):
        for batch in torch.randperm(1200).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    net.eval()
    example = (torch.zeros(1, 1, 8, 8),)
    torch.export.save(torch.export.export(net, example), folder / "digits.pt2")
    with torch.no_grad():  # the same function: one channel a thousand times larger, and taken back by the next layer
        net[2].weight[0] *= 1000
        net[2].bias[0] *= 1000
        net[6].weight.view(64, 32, 16)[:, 0] /= 1000
    torch.export.save(torch.export.export(net, example), folder / "hostile.pt2")
    np.savez(folder / "cal.npz", input=images[:200])
    np.savez(folder / "eval.npz", input=images[1200:], label=labels[1200:])
    return folder


def made(lab: Path, out: Path, model: str = "digits.pt2", **options: Any) -> edgesdk.Package:
    data = {"calibration": lab / "cal.npz", "eval": str(lab / "eval.npz")}  # paths and texts are both taken
    return edgesdk.package(
        lab / model, "android", output=out, **{"runtime": "onnx", "quantize": "static-int8", **data, **options}
    )


def codes(package: edgesdk.Package) -> set[str]:
    return {warning["code"] for warning in package.document["warnings"]}


def guard(variant: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = variant["details"]["guard"]
    return found


@pytest.mark.parametrize("runtime", ["executorch", "torchscript", "onnx"])
def test_static_int8_is_small_right_and_measured(runtime: str, lab: Path, tmp_path: Path) -> None:
    package = made(lab, tmp_path / "out", runtime=runtime, quantize=("static-int8", "none"))
    small, full = package.variants
    assert (small["quantization"], full["quantization"]) == (
        "static-int8",
        "none",
    )  # exactly what was asked, in that order
    assert small["bytes"] < 0.4 * full["bytes"]
    assert small["metric"]["name"] == "top1" and small["metric"]["samples"] == 597
    assert small["metric"]["original"] - small["metric"]["value"] < 1.0
    assert small["top1_agreement"] > 0.97 and small["verified"] is True
    assert small["latency_ms"]["p50"] > 0 and "host" in small["latency_ms"]["where"]
    if runtime != "torchscript":  # the engines' arm64 builds, emulated: integer arithmetic has one right answer
        assert guard(small)["arm64"]["samples"] == 64 and guard(small)["arm64_equal"] > 0.99
    assert {error["name"] for error in guard(small)["errors"]} >= {"0", "2", "6", "8"}  # a picture for every file
    layers = {layer["name"]: layer["precision"] for layer in small["details"]["layers"] if layer["bytes"]}
    assert len(layers) == 4 and set(layers.values()) == {"int8"}
    with edgesdk.load(package.bundle, small["id"]) as session:  # the very bytes that ship
        pixels, labels = (np.load(lab / "eval.npz")[name] for name in ("input", "label"))
        found = [int(np.argmax(session.run({"input": one[None]})["output"])) for one in pixels[:100]]
        assert np.mean(found == labels[:100]) > 0.9
    assert edgesdk.verify(package.bundle).ok and edgesdk.verify(package.bundle, against=str(lab / "digits.pt2")).ok
    other = edgesdk.verify(package.bundle, against=str(lab / "hostile.pt2"))  # the same function, by other weights
    assert other.ok


def test_the_same_command_gives_the_same_bytes(lab: Path, tmp_path: Path) -> None:
    bundles = [made(lab, tmp_path / name, no_cache=True).bundle.read_bytes() for name in ("a", "b")]
    assert bundles[0] == bundles[1]


def test_pitfall_q_05_a_hostile_net_is_refused_without_a_limit(lab: Path, tmp_path: Path) -> None:
    with pytest.raises(GateError) as caught:
        made(lab, tmp_path / "out", "hostile.pt2")
    assert caught.value.code == "accuracy_collapsed" and "--max-drop" in caught.value.fix
    assert not (tmp_path / "out").exists()


def test_with_a_limit_the_guilty_layers_go_back_to_float(lab: Path, tmp_path: Path) -> None:
    package = made(lab, tmp_path / "out", "hostile.pt2", max_drop=0.5)
    (variant,) = package.variants
    assert variant["metric"]["original"] - variant["metric"]["value"] <= 0.5
    assert {"layers_restored", "hardly_smaller"} <= codes(package)  # the largest layer is among them
    floats = [
        layer["name"] for layer in variant["details"]["layers"] if layer["precision"] == "float32" and layer["bytes"]
    ]
    assert sorted(guard(variant)["restored"]) == sorted(floats) and len(floats) <= 3
    assert [probe["holds"] for probe in guard(variant)["probes"]].count(True) >= 1


def test_what_can_not_hold_the_gate_ships_nothing(lab: Path, tmp_path: Path) -> None:
    """Labels that only the float net's own answers match: every flip is a loss, and a limit of zero forbids it."""
    near = np.load(lab / "eval.npz")["input"]
    with edgesdk.load(made(lab, tmp_path / "float", quantize="none", calibration=None, eval=None).bundle) as session:
        scores = np.concatenate([session.run({"input": one[None]})["output"] for one in near])
    pairs = near[:-1] * 0.5 + near[1:] * 0.5
    with edgesdk.load(tmp_path / "float" / "digits.edge") as session:
        scores = np.concatenate([session.run({"input": one[None]})["output"] for one in pairs])
    margin = np.diff(np.sort(scores)[:, -2:])[:, 0]
    close = np.argsort(margin)[:60]
    np.savez(tmp_path / "near.npz", input=pairs[close], label=scores.argmax(1)[close])
    with pytest.raises(GateError) as caught:
        made(lab, tmp_path / "out", eval=str(tmp_path / "near.npz"), max_drop=0.0)
    assert caught.value.code == "gate_not_met" and not (tmp_path / "out").exists()


def test_auto_keeps_the_smallest_that_is_good_and_tells_of_the_others(lab: Path, tmp_path: Path) -> None:
    package = made(lab, tmp_path / "out", quantize="auto", max_drop=1.0, allow_slower=True)
    (variant,) = package.variants
    tried = guard(variant)["tried"]
    assert variant["quantization"] != "none" and len(tried) >= 3
    assert re.fullmatch(r"kept: [\d.]+ kB, top1 [\d.]+ -> [\d.]+, [\d.]+ of float32's time", tried[variant["id"]])
    assert "auto_choice" in codes(package)
    sizes = {
        made(lab, tmp_path / scheme, quantize=scheme, max_drop=1.0).variants[0]["bytes"]
        for scheme in ("fp16", "static-int8")
    }
    assert variant["bytes"] <= min(sizes)


def test_half_precision_is_timed_where_it_is_judged(lab: Path, tmp_path: Path) -> None:
    (judged,) = made(lab, tmp_path / "judged", quantize="fp16", calibration=None).variants
    assert guard(judged)["race"]["ratio"] > 0 and guard(judged)["float_bytes"] > judged["bytes"]
    (alone,) = made(lab, tmp_path / "alone", quantize="fp16", calibration=None, eval=None).variants
    assert alone["latency_ms"] is None, "nobody asked: no float32 twin is lowered for it"


@pytest.mark.parametrize("scheme", ["dynamic-int8", "weight-int8"])
def test_schemes_without_samples_need_none(scheme: str, lab: Path, tmp_path: Path) -> None:
    (variant,) = made(lab, tmp_path / "out", quantize=scheme, calibration=None, eval=None).variants
    assert variant["verified"] is True and guard(variant)["evaluation"]["data"] == "made up"
    assert variant["bytes"] < 0.6 * guard(variant)["float_bytes"]


def test_training_with_simulated_int8_is_shared_and_told_by_stages(lab: Path, tmp_path: Path) -> None:
    data = np.load(lab / "eval.npz")
    np.savez(tmp_path / "train.npz", input=data["input"][:128], label=data["label"][:128])
    package = made(
        lab,
        tmp_path / "out",
        quantize="qat-int8",
        runtime=("onnx", "torchscript"),
        calibration=str(tmp_path / "train.npz"),
    )
    for variant in package.variants:
        assert variant["metric"]["original"] - variant["metric"]["value"] < 2.0
        assert [stage["name"] for stage in guard(variant)["stages"]] == [
            "float",
            "fake_quantized",
            "converted",
            "lowered",
        ]
        assert all(80 < stage["value"] <= 100 for stage in guard(variant)["stages"])


def test_training_without_labels_is_refused(lab: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="label"):
        made(lab, tmp_path / "out", quantize="qat-int8")
    assert not (tmp_path / "out").exists()


def test_unreadable_data_leave_nothing(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes((lab / "cal.npz").read_bytes()[:100])
    with pytest.raises(InputError):
        made(lab, tmp_path / "out", calibration=str(tmp_path / "bad.npz"))
    assert not (tmp_path / "out").exists()


def test_a_bundle_alone_tells_how_its_files_did(lab: Path, tmp_path: Path) -> None:
    from edgesdk import report
    from edgesdk.bundle import EdgeBundle

    package = made(lab, tmp_path / "out", quantize=["none", "static-int8"])
    with EdgeBundle.open(package.bundle) as bundle:
        manifest = bundle.manifest
    for variant, part in zip(package.document["variants"], manifest.variants, strict=True):
        found = part.evaluation
        assert found is not None and found.score is not None
        shown = {"name": found.score.name, "original": found.score.original, "value": found.score.value}
        assert shown == {key: variant["metric"][key] for key in shown}
        assert (found.top1, found.data) == (variant["top1_agreement"], "evaluation")
    text = report.render(manifest.to_json(), "md")
    score = manifest.variants[1].evaluation.score  # type: ignore[union-attr]
    assert f"{score.original:.2f} → {score.value:.2f}" in text  # type: ignore[union-attr]
    sizes = package.document["bundle_parts"]
    assert sum(sizes.values()) == package.document["bundle_bytes"] == package.bundle.stat().st_size
    assert sizes["golden"] > 0
    table = (package.output / "README.md").read_text(encoding="utf-8")
    assert "of evaluation data" in table and "visible differences" not in table
    for warning in package.document["warnings"]:
        if "variants" in warning:
            assert any(id_ in warning["message"] for id_ in warning["variants"])


def test_a_metric_that_fails_is_told_before_anything_is_lowered(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def metric(outputs, label):\n    return outputs['wrong'].mean()\n")
    stages: list[str] = []

    class Told(Silent):
        def stage(self, name: str) -> None:
            stages.append(name)

    with pytest.raises(InputError) as caught:
        made(lab, tmp_path / "out", metric=f"{tmp_path}/mine.py:metric", progress=Told())
    assert caught.value.code == "metric_failed" and "line 2" in caught.value.message
    assert stages[-1] == "reading samples"


def test_half_precision_that_only_portable_kernels_hold_is_refused(tmp_path: Path) -> None:
    import torch

    class Alike(torch.nn.Module):
        """Sums of 4,096 products, as of long features: XNNPACK adds them up in float16, the portable kernels in float32."""

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return features @ features.transpose(1, 2)

    net, given = Alike(), ["features=float32[1,16,4096]"]
    asked: dict[str, Any] = {"runtime": "executorch", "quantize": "fp16", "inputs": given}
    with pytest.raises(GateError, match="answers differently") as caught:
        edgesdk.package(net, "linux", output=tmp_path / "refused", **asked)
    assert "Leave out --quantize fp16" in caught.value.fix and not (tmp_path / "refused").exists()
    made = edgesdk.package(net, "linux", output=tmp_path / "slow", backend="portable", **asked)
    assert made.variants[0]["verified"] is True


@pytest.mark.slow
def test_half_precision_that_other_runtimes_can_not_hold_is_no_fault_of_xnnpack(tmp_path: Path) -> None:
    import torch

    class Close(torch.nn.Module):
        """Weights that differ from 1,000 by less than half precision can tell."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(32, 32)
            self.layer.weight.data += 1000

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.layer(x) - 1000 * x.sum(1, keepdim=True)
            return found

    with pytest.raises(GateError) as caught:
        edgesdk.package(Close(), runtime="onnx", quantize="fp16", inputs=["x=float32[1,32]"], output=tmp_path / "out")
    assert caught.value.code == "not_faithful" and "XNNPACK" not in str(caught.value.why)
    assert "--runtime onnx" not in str(caught.value.fix)


def test_weights_that_half_precision_leaves_in_float32_are_told(lab: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"runtime": ("executorch", "onnx"), "quantize": "fp16", "calibration": None, "eval": None}
    package = made(lab, tmp_path / "out", **asked)
    (said,) = [w["message"] for w in package.document["warnings"] if w["code"] == "fp16_convolutions_float32"]
    assert "19 kB of 153 kB" in said  # 9 · (16 + 16 · 32) and 512 · 64 + 64 · 10 weights, 122 biases, four bytes each


@pytest.mark.slow
def test_what_half_precision_can_not_hold_is_told(tmp_path: Path) -> None:
    import torch

    class Faint(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 1e-5 * 1e-4

    package = edgesdk.package(
        Faint(), "linux", output=tmp_path / "out", runtime="onnx", quantize="fp16", inputs=["x=float32[1,8]"]
    )
    said = {w["code"]: w["message"] for w in package.document["warnings"]}
    assert "aten.mul" in said["fp16_kept_float32"] and "tiny_output" in said
    assert package.variants[0]["verified"] is True
