"""Weights that aren't numbers, names of small layers, files that are odd before anybody quantizes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgesdk.artifacts import Model, Source
from edgesdk.data import Sample, StoreWriter
from edgesdk.errors import UnsupportedError
from tests.quantize.onnx import nets
from tests.runtimes import graphs

NAN = float("nan")


class Broken(torch.nn.Module):
    """Two linear layers, large enough for every scheme."""

    def __init__(self, layer: str, tensor: str, value: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mid, self.head = torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)
        with torch.no_grad():
            getattr(getattr(self, layer), tensor).view(-1)[3] = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.mid(x).relu())
        return found


def _answers(net: torch.nn.Module, scheme: str, folder: Path) -> tuple[Any, np.ndarray, np.ndarray]:
    model = graphs.model_of(net, (torch.randn(4, 32),))
    made, runner = nets.quantized(model, scheme, folder)
    x = np.random.default_rng(5).standard_normal((4, 32)).astype(np.float32)
    with torch.no_grad():
        return made, runner.run([x])[0], net(torch.from_numpy(x)).numpy()


@pytest.mark.parametrize("value", [NAN, float("inf")])
@pytest.mark.parametrize("tensor", ["weight", "bias"])
@pytest.mark.parametrize("scheme", nets.ALL)
def test_what_is_no_number_in_the_last_layer_stays_in_the_answer(
    scheme: str, tensor: str, value: float, tmp_path: Path
) -> None:
    made, got, wanted = _answers(Broken("head", tensor, value), scheme, tmp_path)
    assert not np.isfinite(wanted).all()
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))
    head = nets.layer(made, "head")
    if tensor == "weight" or scheme in ("static-int8", "dynamic-int8"):
        assert head.precision == "float32"
        assert head.why is not None and "infinite or not a number" in head.why
    assert nets.layer(made, "mid").precision != "float32"


@pytest.mark.parametrize("scheme", ["static-int8", "weight-int8"])
def test_what_is_no_number_in_the_middle_reaches_the_end(scheme: str, tmp_path: Path) -> None:
    """A range that is measured, or found on the fly, turns NaN into an ordinary number."""
    if scheme == "static-int8":
        with pytest.raises(UnsupportedError) as caught:
            _answers(Broken("mid", "bias", NAN), scheme, tmp_path)
        assert caught.value.code == "nothing_quantized"
        return
    _, got, wanted = _answers(Broken("mid", "bias", NAN), scheme, tmp_path)
    assert np.isnan(wanted).all() and np.isnan(got).all()


def test_no_layer_behind_a_broken_one_finds_its_range_on_the_fly(tmp_path: Path) -> None:
    class Longer(Broken):
        def __init__(self) -> None:
            super().__init__("mid", "bias", NAN)
            self.first = torch.nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(self.first(x))

    made, got, wanted = _answers(Longer(), "dynamic-int8", tmp_path)
    assert np.isnan(wanted).all() and np.isnan(got).all()
    head = nets.layer(made, "head")
    assert head.precision == "float32" and "before it" in str(head.why)
    assert nets.layer(made, "first").precision == "int8"


def test_layers_of_a_few_weights_are_called_by_their_path(tmp_path: Path) -> None:
    linear = torch.nn.Linear
    net = torch.nn.Sequential(linear(1, 8), torch.nn.ReLU(), linear(8, 1), linear(1, 1), linear(1, 1))
    made, _ = nets.quantized(graphs.model_of(net, (torch.randn(4, 1),)), "static-int8", tmp_path)
    assert [x.name for x in made.layers if x.bytes] == ["0", "2", "3", "4"]


def test_a_bare_linear_layer_of_one_weight_is_not_called_by_its_node(tmp_path: Path) -> None:
    made, _ = nets.quantized(graphs.model_of(torch.nn.Linear(1, 1), (torch.randn(4, 1),)), "static-int8", tmp_path)
    assert [x.name for x in made.layers if x.bytes] == ["weight"]


# -- what can't be quantized, in words --------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", nets.ALL)
def test_a_model_in_float64_is_told_so(scheme: str, tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU()).double()
    model = graphs.model_of(net, (torch.randn(4, 32, dtype=torch.float64),))
    samples = tmp_path / "samples"
    with StoreWriter(samples) as writer:
        for number in range(4):
            writer.append(Sample({"in_0": np.random.default_rng(number).standard_normal((4, 32))}, None, ""))
    with pytest.raises(UnsupportedError) as caught:
        nets.quantized(model, scheme, tmp_path)
    assert caught.value.code == "nothing_quantized" and "float64" in caught.value.message
    assert "model.float()" in str(caught.value.fix)
    assert not (tmp_path / "net.onnx").exists()


def test_small_layers_are_sent_to_the_scheme_that_takes_them(tmp_path: Path) -> None:
    model = graphs.model_of(torch.nn.Linear(4, 4), (torch.randn(2, 4),))
    with pytest.raises(UnsupportedError) as caught:
        nets.quantized(model, "weight-int8", tmp_path)
    assert "1 linear" in caught.value.message and "16 weights" in str(caught.value.why)
    assert "static-int8" in str(caught.value.fix)


@pytest.mark.parametrize("scheme", nets.ALL)
def test_a_file_that_is_quantized_already_is_not_quantized_again(scheme: str, tmp_path: Path) -> None:
    made, _ = nets.quantized(nets.cnn(), "static-int8", tmp_path, "first")
    signature = nets.cnn().signature
    again = Model(Source("again", "onnx"), signature, onnx=made.path)
    with pytest.raises(UnsupportedError) as caught:
        nets.quantized(again, scheme, tmp_path, "second")
    assert caught.value.code == "already_quantized" and "QuantizeLinear" in caught.value.message


class Cells(torch.nn.Module):
    """A cell over three steps from a state of zeros, whose first product sees nothing else, whatever the data."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.last = torch.nn.GRUCell(16, 16), torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.shape[0], 16)
        for step in range(3):
            h = self.cell(x[:, step], h)
        found: torch.Tensor = self.last(h)
        return found


def test_a_layer_that_sees_a_constant_whatever_the_data_is_no_fault_of_theirs(tmp_path: Path) -> None:
    model = graphs.model_of(Cells(), (torch.randn(2, 3, 16),), [{0: graphs.BATCH}])
    lowered, runner = nets.quantized(model, "static-int8", tmp_path)
    assert nets.snr(model, runner) > 25
    assert any("the same for all data" in str(layer.why) for layer in lowered.layers)
