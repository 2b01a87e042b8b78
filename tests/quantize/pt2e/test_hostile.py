"""Weights that aren't numbers, scales that XNNPACK refuses, layers that it leaves behind."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk import modelfile
from edgesdk.errors import UnsupportedError
from edgesdk.quantize._pt2e import _calibrate, quantize
from edgesdk.runtimes import LowerConfig
from tests.quantize.pt2e.helpers import Case, lower, noise, snr, store
from tests.runtimes.executorch_nets import RUNTIME, model_of

NAN, INF = float("nan"), float("inf")
SCHEMES = ("static-int8", "dynamic-int8", "weight-int8", "weight-int4")


class Broken(nn.Module):
    """Three linear layers, with one number that isn't one."""

    def __init__(self, layer: str, tensor: str, value: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.mid, self.head = nn.Linear(32, 32), nn.Linear(32, 64), nn.Linear(64, 32)
        with torch.no_grad():
            getattr(getattr(self, layer), tensor).view(-1)[3] = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.mid(self.first(x)).relu())
        return found


def _lower(net: nn.Module, folder: Path, scheme: str) -> Case:
    return lower(net, (torch.randn(4, 32),), folder, scheme)


def _why(case: Case, name: str) -> str:
    return next(str(layer.why) for layer in case.lowered.layers if layer.name == name)


@pytest.mark.parametrize(("tensor", "value"), [("weight", NAN), ("bias", NAN), ("bias", INF), ("weight", -INF)])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.slow
def test_what_is_no_number_in_the_last_layer_stays_in_the_answer(
    scheme: str, tensor: str, value: float, tmp_path: Path
) -> None:
    case = _lower(Broken("head", tensor, value), tmp_path, scheme)
    for got, wanted in case.outputs():
        assert not np.isfinite(wanted).all()
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))
    assert case.lowered.rung == "full"
    assert case.precisions["mid"] != "float32"
    if tensor == "weight" or not scheme.startswith("weight"):
        assert case.precisions["head"] == "float32"
        assert "infinite or not a number" in _why(case, "head")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_no_number_in_the_middle_reaches_the_end(scheme: str, tmp_path: Path) -> None:
    case = _lower(Broken("mid", "bias", NAN), tmp_path, scheme)
    for got, wanted in case.outputs():
        assert np.isnan(wanted).all() and np.isnan(got).all()
    assert case.precisions["first"] != "float32"
    if scheme != "weight-int8":
        assert case.precisions["head"] == "float32"


@pytest.mark.parametrize("scheme", ["static-int8", "dynamic-int8"])
def test_numbers_too_large_for_the_engines_scales_stay_float(scheme: str, tmp_path: Path) -> None:
    case = _lower(Broken("head", "bias", 1e38), tmp_path, scheme)
    assert case.precisions["head"] == "float32" and "1e+38" in _why(case, "head")
    assert case.lowered.rung == "full"
    for got, wanted in case.outputs():
        np.testing.assert_allclose(got[:, 3], wanted[:, 3])


def test_a_model_whose_first_layer_is_broken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        _lower(Broken("first", "weight", NAN), tmp_path, "static-int8")
    assert caught.value.code == "nothing_quantized"
    assert "not a number" in str(caught.value.why)


class Cancels(nn.Module):
    """``b`` answers with the small difference of large sums."""

    def __init__(self, factor: float = 1e4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(8, 32), nn.Linear(64, 16, bias=False), nn.Linear(16, 8)
        weight = torch.randn(16, 32) * factor
        with torch.no_grad():
            self.b.weight.copy_(torch.cat([weight, -weight + 0.1 * torch.randn(16, 32)], 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x).relu()
        found: torch.Tensor = self.c(self.b(torch.cat([y, y], 1)))
        return found


@pytest.mark.slow
def test_pitfall_q_15_a_layer_whose_scales_the_engine_refuses_stays_float_alone(tmp_path: Path) -> None:
    case = lower(Cancels(), (torch.randn(4, 8),), tmp_path, "static-int8")
    assert case.precisions["b"] == "float32" and "ratio of scales" in _why(case, "b")
    assert case.precisions["a"] == case.precisions["c"] == "int8"
    assert case.lowered.rung == "full" and "no_delegation" not in case.codes
    got, wanted = next(case.outputs())
    assert snr(got, wanted) > 15


@pytest.mark.slow
def test_pitfall_q_15_a_layer_that_fails_at_load_is_found_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the engine had a limit that nobody knows of: the search finds the layer, the others keep their delegate."""
    monkeypatch.setattr(_calibrate, "refused", lambda *_: {})
    case = lower(Cancels(), (torch.randn(4, 8),), tmp_path, "static-int8")
    assert case.precisions["b"] == "float32" and "unsupported_parameter" in _why(case, "b")
    assert case.precisions["a"] == case.precisions["c"] == "int8"
    assert case.lowered.rung == "full" and "no_delegation" not in case.codes


@pytest.mark.slow
def test_pitfall_q_15_a_layer_that_the_delegate_leaves_behind_is_named(tmp_path: Path) -> None:
    class Unbatched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.conv = nn.Linear(9, 9), nn.Conv2d(4, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.conv(self.a(x).relu())
            return found

    case = lower(Unbatched(), (torch.randn(4, 9, 9),), tmp_path, "static-int8")
    assert case.precisions == {"a": "int8", "conv": "float32"}
    assert "doesn't take this convolution" in _why(case, "conv")
    assert case.snr() > 25


def test_a_program_that_is_quantized_already_is_not_quantized_again(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    model = model_of(net, (torch.randn(4, 32),))
    config = LowerConfig(quantization="static-int8", calibration=store(tmp_path / "s", noise([(4, 32)], 8)))
    again = replace(model, program=quantize(model, config).program)
    for scheme in SCHEMES:
        with pytest.raises(UnsupportedError) as caught:
            RUNTIME.lower(again, replace(config, quantization=scheme), tmp_path / "again.pte")
        assert caught.value.code == "already_quantized" and "quantize_per_tensor" in caught.value.message
    RUNTIME.lower(again, LowerConfig(), tmp_path / "as_it_is.pte")


# -- state ------------------------------------------------------------------------------------------------------------


class Remembers(nn.Module):
    """Its answer depends on earlier calls, through a layer that reads nothing but the state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.out = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 8)
        self.state: torch.Tensor
        self.register_buffer("state", torch.zeros(1, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x) + self.b(self.state) * 0.9
        self.state.copy_(h)
        found: torch.Tensor = self.out(h)
        return found


class Cell(nn.Module):
    """A recurrent cell, one step for each call."""

    def __init__(self, kind: type[nn.LSTMCell] | type[nn.GRUCell]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.out = kind(32, 32), nn.Linear(32, 8)
        self.state: torch.Tensor
        self.register_buffer("state", torch.zeros(2, 1, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.cell, nn.LSTMCell):
            self.state.copy_(torch.stack(self.cell(x, (self.state[0], self.state[1]))))
        else:
            self.state.copy_(self.cell(x, self.state[0]).expand(2, 1, 32))
        found: torch.Tensor = self.out(self.state[0])
        return found


def _in_a_row(case: Case, net: nn.Module) -> float:
    """dB over calls that build on each other."""
    net.state.zero_()  # type: ignore[operator]
    runner = RUNTIME.load(case.lowered.path, case.model.signature)
    got, wanted = [], []
    for feed in noise([(1, 32)], 8, seed=5):
        got.append(runner.run(list(feed.values()))[0])
        with torch.no_grad():
            wanted.append(net(torch.from_numpy(feed["x0"])).numpy())
    return snr(np.concatenate(got), np.concatenate(wanted))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.slow
def test_what_is_computed_from_the_state_alone_is_no_constant(scheme: str, tmp_path: Path) -> None:
    net = Remembers().eval()
    case = lower(net, (torch.randn(1, 32),), tmp_path, scheme)
    assert {case.precisions[n] for n in ("a", "b", "out")} <= {"int8", "int4"}
    assert _in_a_row(case, net) > (15 if scheme == "weight-int4" else 25)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("scheme", ["static-int8", "dynamic-int8", "weight-int8"])
def test_cells_are_named_by_their_weights_and_quantized_where_they_can_be(
    scheme: str, kind: type[nn.LSTMCell] | type[nn.GRUCell], tmp_path: Path
) -> None:
    net = Cell(kind).eval()
    case = lower(net, (torch.randn(1, 32),), tmp_path, scheme)
    weighted = {layer.name: layer.precision for layer in case.lowered.layers if layer.bytes}
    if scheme == "static-int8":
        assert weighted == {"cell": "float32", "out": "int8"}
    else:
        assert weighted == {"cell.weight_ih": "int8", "cell.weight_hh": "int8", "out": "int8"}
    assert _in_a_row(case, net) > 20


@pytest.mark.slow
def test_a_quantized_program_is_read_by_a_fresh_process(tmp_path: Path) -> None:
    """Its operators exist only where torchao is imported, and nothing else in a worker would do that before."""
    net = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
    model = model_of(net, (torch.randn(4, 32),))
    config = LowerConfig(quantization="static-int8", calibration=store(tmp_path / "s", noise([(4, 32)], 8)))
    (tmp_path / "model").mkdir()
    modelfile.save(replace(model, program=quantize(model, config).program, module=None), tmp_path / "model")
    code = (
        "import sys, pathlib; from edgesdk import modelfile; print(modelfile.load(pathlib.Path(sys.argv[1])).program)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "model")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "quantize_per_tensor" in done.stdout


class Whisper(nn.Module):
    """A layer whose results are a hundred thousandth, as those behind a small gain are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.soft, self.b = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32, bias=False)
        with torch.no_grad():
            self.soft.weight *= 1e-5
            self.soft.bias *= 1e-5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.b(self.soft(self.a(x).relu()).relu())
        return y * 1e5


def test_values_below_the_least_scale_stay_float(tmp_path: Path) -> None:
    case = lower(Whisper().eval(), (torch.randn(4, 32),), tmp_path, "static-int8")
    assert case.precisions["a"] == "int8" and case.precisions["b"] == "float32" and case.snr() > 25
    assert "least scale" in str(next(layer.why for layer in case.lowered.layers if layer.name == "b"))
