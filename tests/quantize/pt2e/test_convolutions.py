"""Convolutions that int8 has trouble with: transposed, grouped, one-dimensional, dead channels (pitfall Q-04)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.quantize.pt2e.helpers import lower

# int8 inputs, weights and outputs over two layers of noise: 6 dB below one layer's 37.
GOOD = 28.0


class UpNet(nn.Module):
    def __init__(self, dims: int, groups: int) -> None:
        super().__init__()
        conv: Any = nn.Conv1d if dims == 1 else nn.Conv2d
        transposed: Any = nn.ConvTranspose1d if dims == 1 else nn.ConvTranspose2d
        self.conv = conv(4, 8, 3, padding="same")
        self.up = transposed(8, 8, 4, stride=2, padding=1, groups=groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.conv(x).relu())


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.slow
def test_pitfall_q_04_transposed_convolutions_are_quantized(dims: int, groups: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    case = lower(UpNet(dims, groups), (torch.randn(1, 4, *[6] * dims),), tmp_path, "static-int8")
    assert case.precisions == {"conv": "int8", "up": "int8"} and case.snr() > GOOD
    assert (case.lowered.rung, case.lowered.delegated_fraction, case.lowered.delegates) == ("full", 1.0, 1)
    why = {layer.name: layer.why for layer in case.lowered.layers}["up"]
    assert (why is None) if groups == 1 else "one scale" in str(why)


@pytest.mark.slow
def test_a_one_dimensional_convolution_kept_float_does_not_drag_the_others_along(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 4, 3))
    case = lower(net, (torch.randn(1, 4, 9),), tmp_path, "static-int8", keep_float=("2",))
    assert case.precisions == {"0": "int8", "2": "float32"} and case.lowered.rung == "full"
    assert case.lowered.delegated_fraction == 1.0 and case.snr() > GOOD


@pytest.mark.slow
def test_a_dead_channel_keeps_its_bias(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1))
    with torch.no_grad():
        net[0].weight[1] = 0.0  # type: ignore[index]
        net[0].bias[1] = 2.0  # type: ignore[index]
    case = lower(net, (torch.randn(1, 3, 6, 6),), tmp_path, "static-int8")
    assert case.snr() > GOOD


def test_small_weights_keep_their_precision(tmp_path: Path) -> None:
    """Upstream's least scale of 2^-12 leaves weights of 0.002 eight steps."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))
    with torch.no_grad():
        net[0].weight.mul_(0.01)  # type: ignore[operator]
        net[0].bias.zero_()  # type: ignore[operator]
        net[2].weight.mul_(100.0)  # type: ignore[operator]
    assert lower(net, (torch.randn(1, 3, 6, 6),), tmp_path, "static-int8").snr() > GOOD


@pytest.mark.slow
def test_relu6_is_computed_within_the_convolution(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Conv2d(8, 4, 1))
    with torch.no_grad():
        net[0].weight.mul_(20.0)  # type: ignore[operator]
    # What ReLU6 cuts off reaches ±40: quantized before it, 0…6 would have 20 steps and 25 dB.
    case = lower(net, (torch.randn(1, 3, 6, 6),), tmp_path, "static-int8")
    assert case.snr() > GOOD and case.lowered.delegates == 1


class Heat(nn.Module):
    """A softmax along the rows of maps, as for the places of key points."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last((8 * self.first(x)).softmax(-1))


@pytest.mark.parametrize("scheme", ["none", pytest.param("static-int8", marks=pytest.mark.slow)])
def test_a_softmax_of_a_convolution_goes_along_the_dimension_asked_for(scheme: str, tmp_path: Path) -> None:
    """XNNPACK keeps the convolution's result in channels-last order, where channels come last."""
    torch.manual_seed(0)
    case = lower(Heat(), (torch.randn(1, 3, 6, 8),), tmp_path, scheme)
    assert (case.lowered.rung, case.lowered.delegates) == ("full", 1)
    assert case.snr() > (GOOD if scheme == "static-int8" else 100.0)
