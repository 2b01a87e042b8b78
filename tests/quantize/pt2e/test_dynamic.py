"""dynamic-int8 for ExecuTorch: linear and recurrent layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from edgesdk.artifacts import Dim
from edgesdk.errors import UnsupportedError
from edgesdk.runtimes import LowerConfig
from tests.quantize.pt2e.helpers import lower, noise
from tests.runtimes.executorch_nets import RUNTIME, Recurrent, TinyCnn, model_of

# Weights and inputs are quantized, with the very range of each input; sums stay float.
GOOD = 38.0


class Twins(nn.Module):
    """Two linear layers on one activation."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(torch.cat([self.a(x).relu(), self.b(x)], -1))


def test_pitfall_q_15_two_linears_on_one_activation_with_a_dynamic_length_run(tmp_path: Path) -> None:
    torch.manual_seed(0)
    length = torch.export.Dim("length", min=1, max=16)
    case = lower(
        Twins(), (torch.randn(1, 5, 32),), tmp_path, "dynamic-int8", dynamic=({1: length},), dims=[(1, Dim(1, 16), 32)]
    )
    assert case.precisions == dict.fromkeys("abc", "int8") and case.lowered.delegated_fraction == 1.0
    for size in (1, 3, 16):
        assert case.snr(noise([(1, size, 32)], 4, seed=2)) > GOOD


@pytest.mark.slow
def test_pitfall_q_08_recurrent_layers_are_quantized_step_by_step(tmp_path: Path) -> None:
    torch.manual_seed(0)
    case = lower(Recurrent(), (torch.randn(1, 3, 4),), tmp_path, "dynamic-int8")
    names = {"lstm.weight_ih_l0": "int8", "lstm.weight_hh_l0": "int8", "head": "int8"}
    assert case.precisions == names and case.snr() > GOOD


class Cell(nn.Module):
    """State goes in and out by hand, as streaming speech models have it; large enough for its size to show."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True, num_layers=2)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h, c) = self.lstm(x, (h, c))
        return y, h, c


@pytest.mark.slow
def test_pitfall_q_08_an_lstm_with_its_state_passed_in_shrinks_fourfold(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(1, 2, 64), torch.randn(2, 1, 128), torch.randn(2, 1, 128))
    case = lower(Cell(), inputs, tmp_path, "dynamic-int8")
    assert case.snr() > GOOD
    weights = sum(layer.bytes for layer in case.lowered.layers)
    # Two steps share each weight: a quarter, plus scales, biases and the program.
    assert case.size < 0.33 * weights, "the weights of both steps are stored once"


def test_a_layer_kept_float(tmp_path: Path) -> None:
    torch.manual_seed(0)
    case = lower(Twins(), (torch.randn(1, 5, 32),), tmp_path, "dynamic-int8", keep_float=("b",))
    assert case.precisions == {"a": "int8", "b": "float32", "c": "int8"} and case.snr() > GOOD


@pytest.mark.slow
def test_it_needs_no_samples_and_gives_the_same_bytes_each_time(tmp_path: Path) -> None:
    model = model_of(Twins(), (torch.randn(1, 5, 32),))
    config = LowerConfig(quantization="dynamic-int8")
    first = RUNTIME.lower(model, config, tmp_path / "a.pte").path.read_bytes()
    assert RUNTIME.lower(model, config, tmp_path / "b.pte").path.read_bytes() == first


def test_a_net_of_convolutions_keeps_them_and_says_why(tmp_path: Path) -> None:
    case = lower(TinyCnn(), (torch.randn(1, 3, 12, 12),), tmp_path, "dynamic-int8")
    assert case.precisions == {"features.0": "float32", "features.4": "float32", "head": "int8"}
    assert all("static-int8" in str(layer.why) for layer in case.lowered.layers[:2])
    assert "large_float_weights" in case.codes


def test_without_linear_layers_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        lower(nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 6, 6),), tmp_path, "dynamic-int8")
    assert caught.value.code == "nothing_quantized" and "static-int8" in str(caught.value.fix)
