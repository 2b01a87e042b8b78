"""The ranking of layers by the noise that int8 puts into them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from edgesdk.artifacts import LayerError
from edgesdk.runtimes import LowerConfig
from tests.quantize.pt2e.helpers import lower, noise, store
from tests.runtimes.executorch_nets import RUNTIME, Recurrent, model_of, nets


def errors(net: nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path, scheme: str) -> tuple[LayerError, ...]:
    data = store(folder / "c", noise([tuple(t.shape) for t in inputs], 16))
    return RUNTIME.layer_errors(model_of(net, inputs), LowerConfig(quantization=scheme, calibration=data), 8)


@pytest.mark.parametrize("scheme", ["static-int8", "dynamic-int8"])
@pytest.mark.slow
def test_each_quantized_layer_is_measured_and_named_as_in_the_report(scheme: str, tmp_path: Path) -> None:
    net, inputs = nets()["attention"]
    found = errors(net, inputs, tmp_path, scheme)
    case = lower(net, inputs, tmp_path, scheme)
    assert {e.name for e in found} == {name for name, kind in case.precisions.items() if kind == "int8"}
    ranks = [e.alone_db for e in found if e.alone_db is not None]
    assert len(ranks) == len(found) and ranks == sorted(ranks)
    assert all(e.snr_db is not None and 20 < e.snr_db < 80 for e in found)


class Hostile(nn.Module):
    """One channel a thousand times larger than the rest, and a second layer that evens it out: hopeless in int8."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.wide, self.even, self.last = (nn.Conv2d(8, 8, 1, bias=False) for _ in range(4))
        with torch.no_grad():
            self.wide.weight[0] *= 1000
            self.even.weight[:, 0] /= 1000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.even(self.wide(self.first(x))))


@pytest.mark.slow
def test_a_channel_that_drowns_the_others_is_found_by_its_effect_and_restoring_it_helps(tmp_path: Path) -> None:
    inputs = (torch.randn(1, 8, 4, 4),)
    worst = errors(Hostile(), inputs, tmp_path, "static-int8")[0]
    assert worst.name in ("wide", "even") and worst.alone_db is not None and worst.alone_db < 15
    spoilt = lower(Hostile(), inputs, tmp_path / "a", "static-int8")
    healed = lower(Hostile(), inputs, tmp_path / "b", "static-int8", keep_float=("wide", "even"))
    assert spoilt.snr() < 15 and healed.snr() > 28


@pytest.mark.slow
def test_the_simulation_is_what_the_engine_computes(tmp_path: Path) -> None:
    """The last layer's noise in the simulation is the file's noise on the same samples."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    inputs = (torch.randn(1, 3, 6, 6),)
    (only,) = errors(net, inputs, tmp_path, "static-int8")
    case = lower(net, inputs, tmp_path / "file", "static-int8")
    assert only.snr_db == only.alone_db == pytest.approx(case.snr(noise([(1, 3, 6, 6)], 16)[:8]), abs=0.1)


def test_an_unrolled_layer_is_one_entry_per_weight(tmp_path: Path) -> None:
    found = errors(Recurrent(), (torch.randn(1, 3, 4),), tmp_path, "dynamic-int8")
    assert sorted(e.name for e in found) == ["head", "lstm.weight_hh_l0", "lstm.weight_ih_l0"]


def test_float_files_have_no_such_errors(tmp_path: Path) -> None:
    net, inputs = nets()["cnn"]
    assert RUNTIME.layer_errors(model_of(net, inputs), LowerConfig(), 4) == ()
