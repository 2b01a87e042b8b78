"""int8 for Core ML, judged by the quantized program in PyTorch: no engine on Linux runs the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.artifacts import Layer, Lowered, Model
from edgesdk.errors import UnsupportedError
from edgesdk.runtimes import LowerConfig
from tests.quantize.pt2e.helpers import noise, snr, store
from tests.runtimes.executorch_nets import RUNTIME, model_of

SHAPE = (1, 3, 16, 16)


class Net(nn.Module):
    """Batch norm, a layer without bias, a depthwise one, pooling without a stride, one that Core ML's quantizer doesn't know."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.depthwise, self.point = nn.Conv2d(16, 16, 3, stride=2, groups=16), nn.Conv2d(16, 16, 1, bias=False)
        self.up, self.head = nn.ConvTranspose2d(16, 8, 2), nn.Linear(8, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.relu6(self.depthwise(self.norm(self.first(x)).relu()))
        y = nn.functional.max_pool2d(y + self.point(y), 2)
        found: torch.Tensor = self.head(self.up(y).mean((2, 3)))
        return found


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return Net().eval()


@pytest.fixture(scope="module")
def model(net: nn.Module) -> Model:
    return model_of(net, (torch.randn(SHAPE),))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> LowerConfig:
    samples = store(tmp_path_factory.mktemp("coreml") / "samples", noise([SHAPE], 16))
    return LowerConfig(backend="coreml", quantization="static-int8", calibration=samples)


@pytest.mark.parametrize("scheme", ["dynamic-int8", "weight-int4"])
def test_other_schemes_are_refused_with_those_that_fit(
    scheme: str, model: Model, config: LowerConfig, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        RUNTIME.lower(model, replace(config, quantization=scheme), tmp_path / "net.pte")
    assert caught.value.code == "quantization_unsupported" and "static-int8" in str(caught.value.fix)


def _snr(made: Lowered, model: Model, net: nn.Module) -> float:
    runner = RUNTIME.load(made.path, model.signature)
    got, wanted = [], []
    for feed in noise([SHAPE], 8, seed=3):
        with torch.no_grad():
            wanted.append(net(torch.from_numpy(feed["x0"])).numpy())
        got.append(runner.run(list(feed.values()))[0])
    return snr(np.concatenate(got), np.concatenate(wanted))


def _by_name(made: Lowered) -> dict[str, Layer]:
    return {layer.name: layer for layer in made.layers}


@pytest.mark.slow
def test_static_int8_is_in_the_delegate_and_close_to_float(
    model: Model, net: nn.Module, config: LowerConfig, tmp_path: Path
) -> None:
    made = RUNTIME.lower(model, config, tmp_path / "net.pte")
    assert made.delegated_fraction == 1.0 and made.delegates == 1
    layers = _by_name(made)
    assert {n for n, x in layers.items() if x.precision == "int8" and x.bytes} == {
        "first",
        "depthwise",
        "point",
        "head",
    }
    assert layers["up"].precision == "float32" and "Core ML's quantizer" in str(layers["up"].why)
    assert {"coreml_ios17", "coreml_stand_in"} <= {w.code for w in made.warnings}
    assert _snr(made, model, net) > 25

    again = RUNTIME.lower(model, replace(config, keep_float=("head", "first")), tmp_path / "kept.pte")
    layers = _by_name(again)
    assert layers["head"].precision == layers["first"].precision == "float32"
    assert layers["point"].precision == "int8"
    assert _snr(again, model, net) > _snr(made, model, net)


@pytest.mark.slow
def test_weight_int8_needs_no_samples_and_makes_the_file_smaller(
    model: Model, net: nn.Module, config: LowerConfig, tmp_path: Path
) -> None:
    made = RUNTIME.lower(model, replace(config, quantization="weight-int8", calibration=None), tmp_path / "net.pte")
    assert _by_name(made)["point"].precision == "int8"
    assert _snr(made, model, net) > 40
