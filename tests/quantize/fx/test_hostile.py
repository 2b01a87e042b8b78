"""Weights that aren't numbers, or hardly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgesdk.artifacts import Lowered
from edgesdk.errors import UnsupportedError
from tests.quantize.fx import nets
from tests.runtimes import graphs

NAN, INF = float("nan"), float("inf")
SCHEMES = ("static-int8", "dynamic-int8", "weight-int8")


class Broken(torch.nn.Module):
    """A convolution and three linear layers, with one number that isn't one."""

    def __init__(self, layer: str, tensor: str, value: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.first = torch.nn.Conv2d(4, 32, 3), torch.nn.Linear(32, 32)
        self.mid, self.head = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        with torch.no_grad():
            getattr(getattr(self, layer), tensor).view(-1)[3] = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).relu().mean((2, 3))
        found: torch.Tensor = self.head(self.mid(self.first(y)).relu())
        return found


def _answers(net: torch.nn.Module, scheme: str, folder: Path) -> tuple[Lowered, np.ndarray, np.ndarray]:
    model = nets.of(net.eval(), torch.randn(2, 4, 6, 6))
    calibration = nets.samples(model, nets.noise(2, 4, 6, 6), folder / "samples", 8)
    made, runner = nets.quantized(model, scheme, folder, calibration)
    x = nets.noise(2, 4, 6, 6)(99)[0]
    with torch.no_grad():
        return made, runner.run([x])[0], net(torch.from_numpy(x)).numpy()


@pytest.mark.parametrize(("tensor", "value"), [("weight", NAN), ("bias", NAN), ("bias", INF), ("weight", -INF)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_no_number_in_the_last_layer_stays_in_the_answer(
    scheme: str, tensor: str, value: float, tmp_path: Path
) -> None:
    made, got, wanted = _answers(Broken("head", tensor, value), scheme, tmp_path)
    assert not np.isfinite(wanted).all()
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))
    head = nets.by_name(made)["head"]
    if tensor == "weight" or scheme != "weight-int8":
        assert head.precision == "float32" and "not a number" in str(head.why)
    assert nets.by_name(made)["mid"].precision == "int8"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_no_number_in_the_middle_reaches_the_end(scheme: str, tmp_path: Path) -> None:
    """Dynamic int8 used to fail at the first call: it looks for the least and the largest value."""
    made, got, wanted = _answers(Broken("mid", "bias", NAN), scheme, tmp_path)
    assert np.isnan(wanted).all() and np.isnan(got).all()
    assert nets.by_name(made)["first"].precision == "int8"
    if scheme != "weight-int8":
        assert nets.by_name(made)["head"].precision == "float32"


def test_a_channel_is_not_silenced_by_a_huge_neighbour(tmp_path: Path) -> None:
    """QNNPACK refuses its scale; with one scale for all, every other channel would become zero."""
    made, got, wanted = _answers(Broken("head", "weight", 1e15), "static-int8", tmp_path)
    others = [c for c in range(32) if c != 0]  # weight 3 of the head belongs to output 0
    assert nets.snr(got[:, others], wanted[:, others]) > 20
    assert np.isfinite(got).all()
    assert "head" in nets.by_name(made)


@pytest.mark.parametrize("scheme", ["static-int8", "dynamic-int8"])
def test_a_model_that_overflows_is_refused_or_faithful(scheme: str, tmp_path: Path) -> None:
    try:
        _, got, wanted = _answers(Broken("conv", "weight", 1e38), scheme, tmp_path)
    except UnsupportedError as error:
        assert error.code == "nothing_quantized"
        return
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))


class Beside(torch.nn.Module):
    """One branch sees zeros, whatever the data."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = (torch.nn.Conv2d(n, 4, 3, padding=1) for n in (3, 4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        found: torch.Tensor = self.c(torch.cat([y, self.b(torch.zeros_like(y))], 1))
        return found


def test_a_layer_that_sees_a_constant_whatever_the_data_is_no_fault_of_theirs(tmp_path: Path) -> None:
    model = graphs.model_of(Beside(), (torch.randn(1, 3, 8, 8),))
    calibration = nets.samples(model, nets.noise(1, 3, 8, 8), tmp_path / "samples")
    made, runner = nets.quantized(model, "static-int8", tmp_path, calibration)
    assert nets.worst(runner, model, nets.noise(1, 3, 8, 8)(99)) > 25
    assert nets.by_name(made)["b"].precision == "float32" and nets.by_name(made)["c"].precision == "int8"


class Half(torch.nn.Module):
    """Half precision inside, float32 at the rim."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dtype = dtype
        self.a, self.b = (torch.nn.Conv2d(n, 4, 3).to(dtype) for n in (3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.b(torch.relu(self.a(x.to(self.dtype)))).float()
        return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_inside_is_calibrated_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    model = graphs.model_of(Half(dtype), (torch.randn(1, 3, 8, 8),))
    calibration = nets.samples(model, nets.noise(1, 3, 8, 8), tmp_path / "samples")
    _, runner = nets.quantized(model, "static-int8", tmp_path, calibration)
    assert nets.worst(runner, model, nets.noise(1, 3, 8, 8)(99)) > 25


class Unbiased(torch.nn.Module):
    def __init__(self, kind: type[torch.nn.LSTM] | type[torch.nn.GRU]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = kind(12, 16, 2, bias=False, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.net(x)[0]
        return found


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_layers_without_biases(kind: type[torch.nn.LSTM] | type[torch.nn.GRU], tmp_path: Path) -> None:
    model = graphs.model_of(Unbiased(kind), (torch.randn(5, 2, 12),))
    made, runner = nets.quantized(model, "dynamic-int8", tmp_path)
    assert nets.worst(runner, model, nets.noise(5, 2, 12)(99)) > 25
    assert {layer.precision for layer in made.layers} == {"int8"}
