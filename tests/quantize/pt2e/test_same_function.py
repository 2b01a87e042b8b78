"""Nets whose quantized form was another function: writes that were lost, weights that were taken for one another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.quantize.pt2e.helpers import lower

X = (torch.randn(4, 32, generator=torch.Generator().manual_seed(0)),)
FLOORS = {"static-int8": 25.0, "dynamic-int8": 30.0, "weight-int8": 35.0}
SCHEMES = pytest.mark.parametrize(
    "scheme", [pytest.param(scheme, marks=() if scheme == "weight-int8" else pytest.mark.slow) for scheme in FLOORS]
)


def draw(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) / shape[0] ** 0.5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.w, self.w_turned = nn.Linear(32, 32), nn.Linear(32, 32), draw(32, 32), draw(32, 32)
        self.shift = nn.Parameter(torch.randn(32))


class WritesThroughAView(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x) + x
        y[:, :16] += 2.0
        return self.b(y)


class WritesToTheSource(Net):
    """The product is taken before the write, and the bias added after it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x * 2
        product = h @ self.w
        h += 3.0
        return (product + self.shift) + torch.tanh(h)


class TakenName(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.w) @ self.w_turned + (x * self.w[0]).sum(-1, True)


class TransposesNothing(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(torch.tanh(x @ self.w.transpose(0, 0)) @ self.w_turned.transpose(-1, -2))


class SimilarNames(Net):
    """``block.0`` and ``block_0``."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.block_0 = nn.Sequential(nn.Linear(32, 32)), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block_0(torch.tanh(self.block(x)))


class Slices(Net):
    """Layers that read parts of one weight, as attention over three inputs does."""

    def __init__(self) -> None:
        super().__init__()
        self.packed = nn.Parameter(torch.randn(80, 32) / 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.packed[:32], self.packed[32:]
        return torch.cat([nn.functional.linear(x, first), nn.functional.linear(torch.tanh(x), second)], 1)


@SCHEMES
@pytest.mark.parametrize(
    "net", [WritesThroughAView, WritesToTheSource, TakenName, TransposesNothing, SimilarNames, Slices]
)
def test_the_file_computes_what_the_net_computes(net: type[Net], scheme: str, tmp_path: Path) -> None:
    assert lower(net().eval(), X, tmp_path, scheme).snr() > FLOORS[scheme]


@pytest.mark.slow
def test_attention_over_three_inputs(tmp_path: Path) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inner = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return self.inner(q, k, v, need_weights=False)[0]  # type: ignore[no-any-return]

    inputs = tuple(torch.randn(1, 5, 32) for _ in range(3))
    assert lower(Attention().eval(), inputs, tmp_path, "weight-int8").snr() > 35


@pytest.mark.slow
def test_a_decoder_layer_whose_weights_are_read_in_unequal_parts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True).eval()
    assert lower(net, (torch.randn(1, 5, 32), torch.randn(1, 7, 32)), tmp_path, "weight-int8").snr() > 30


@pytest.mark.parametrize("keep", [(), ("t",)])
@pytest.mark.slow
def test_a_convolution_of_one_dimension_that_is_called_twice(keep: tuple[str, ...], tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.c, self.t = nn.Conv1d(4, 4, 3, padding=1), nn.ConvTranspose1d(4, 4, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.t(torch.tanh(self.t(self.c(x))))

    case = lower(Twice().eval(), (torch.randn(1, 4, 32),), tmp_path, "static-int8", keep_float=keep)
    assert case.snr() > 20


class State(Net):
    """``way`` says when the state is read."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.register_buffer("kept", torch.randn(4, 32))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "counter":
            self.calls.add_(1)
            return self.a(x) * self.calls
        if self.way == "view read after the write":
            view = self.kept[:2]
            self.kept.mul_(0.5).add_(x)
            return self.b(self.a(view).relu())
        self.kept[:2] = x[:2]
        return self.b(self.a(self.kept).relu())


@SCHEMES
@pytest.mark.parametrize("way", ["counter", "view read after the write", "written through a view"])
def test_state_is_read_as_it_is_at_that_moment(way: str, scheme: str, tmp_path: Path) -> None:
    case = lower(State(way).eval(), X, tmp_path, scheme)
    case.net.load_state_dict(case.model.program.state_dict)  # type: ignore[union-attr]
    assert case.snr() > FLOORS[scheme]
