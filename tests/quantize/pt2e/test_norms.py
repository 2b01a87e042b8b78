"""Batch norms that torchao would fold into a layer although that changes what the net computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.quantize.pt2e.helpers import lower

Forward = Callable[["Net", torch.Tensor], torch.Tensor]
PICTURE = (torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0)),)


class Net(nn.Module):
    """Layers with and without bias, and batch norms with statistics as training leaves them."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.way = forward
        self.conv, self.plain = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.up = nn.ConvTranspose2d(4, 4, 3, groups=2)
        self.first, self.second, self.scale = nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.Parameter(torch.rand(4, 1, 1, 1))
        self.linear, self.rows = nn.Linear(8, 8), nn.BatchNorm1d(8)
        for norm in (self.first, self.second, self.rows):
            assert norm.running_mean is not None and norm.running_var is not None
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.3, 3)
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.way(self, x)


def two_readers(net: Net, x: torch.Tensor) -> torch.Tensor:
    y = net.conv(x)
    return net.first(y) + y


def one_layer_two_norms(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.first(net.conv(x)) + net.second(net.conv(2 * x))


def called_twice(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.first(net.plain(net.first(net.plain(x)).relu())).relu()


def norm_behind_norm(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.second(net.first(net.conv(x)))


def shared_bias(net: Net, x: torch.Tensor) -> torch.Tensor:
    other = nn.functional.conv2d(x, net.plain.weight, net.conv.bias, padding=1)
    return net.first(net.conv(x)) + other


def computed_weight(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.first(nn.functional.conv2d(net.conv(x), net.plain.weight * net.scale))


def grouped_transposed(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.first(net.up(net.conv(x)))


def linear_two_readers(net: Net, x: torch.Tensor) -> torch.Tensor:
    y = net.linear(x[0, 0])
    return net.rows(y) + y


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        two_readers, one_layer_two_norms, called_twice, norm_behind_norm, shared_bias, computed_weight,
        grouped_transposed, linear_two_readers,
    ],
)  # fmt: skip
def test_a_batch_norm_goes_only_where_it_belongs(way: Forward, tmp_path: Path) -> None:
    # Eight bits for weights and activations of two or three layers leave 35 to 50 dB; a wrong fold leaves less than 10.
    assert lower(Net(way).eval(), PICTURE, tmp_path, "static-int8").snr() > 25


@pytest.mark.slow
def test_dynamic_int8_folds_as_carefully(tmp_path: Path) -> None:
    assert lower(Net(linear_two_readers).eval(), PICTURE, tmp_path, "dynamic-int8").snr() > 25


def test_a_layer_with_its_batch_norm_is_one_int8_layer(tmp_path: Path) -> None:
    case = lower(Net(lambda net, x: net.first(net.conv(x)).relu()).eval(), PICTURE, tmp_path, "static-int8")
    assert case.precisions == {"conv": "int8"} and case.snr() > 25
