"""Which files a run makes, and what is refused before any work."""

from __future__ import annotations

from typing import Any

import pytest

from edgesdk import targets
from edgesdk.errors import UsageError
from edgesdk.planning import plan_variants
from edgesdk.recipe import PackageConfig


def _ids(**given: Any) -> list[str]:
    config = PackageConfig(model="m.pt2", target=given.pop("target", "android"), **given)
    return [plan.id for plan in plan_variants(config, targets.find(config.target))]


@pytest.mark.parametrize("target", ["android", "ios", "linux"])
def test_the_default_is_one_float_file_for_executorch(target: str) -> None:
    assert _ids(target=target) == ["executorch-xnnpack-none"]


def test_exactly_what_is_asked_is_made() -> None:
    assert _ids(runtimes=("onnx", "executorch"), quantize=("fp16",)) == ["onnx-fp16", "executorch-xnnpack-fp16"]
    assert _ids(quantize=("none", "fp16")) == ["executorch-xnnpack-none", "executorch-xnnpack-fp16"]


def test_repetitions_count_once() -> None:
    assert _ids(runtimes=("onnx", "onnx"), quantize=("none", "none")) == ["onnx-none"]


def test_a_back_end_belongs_to_its_runtime() -> None:
    assert _ids(runtimes=("executorch", "onnx"), backends=("portable", "xnnpack")) == [
        "executorch-portable-none", "executorch-xnnpack-none", "onnx-none",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="executorch"):
        _ids(runtimes=("onnx",), backends=("xnnpack",))


def test_a_back_end_alone_means_its_runtime() -> None:
    assert _ids(backends=("coreml",), target="ios") == ["executorch-coreml-none"]


def test_auto_has_alternatives_in_order() -> None:
    config = PackageConfig(model="m.pt2", target="linux", runtimes=("auto",))
    (plan,) = plan_variants(config, targets.find("linux"))
    assert [plan.runtime, *(p.runtime for p in plan.alternatives)] == ["executorch", "onnx", "torchscript"]
