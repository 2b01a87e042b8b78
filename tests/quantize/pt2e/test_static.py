"""static-int8 for ExecuTorch: files that run, near the original, with an account of every layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.artifacts import Dim
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.runtimes import LowerConfig
from tests.quantize.pt2e.helpers import Case, lower, noise, store
from tests.runtimes.executorch_nets import RUNTIME, Attention, Recurrent, TinyCnn, model_of, nets

# Eight bits give 6.02 × 8 + 1.76 = 50 dB for a full-range sine; a layer's input, weights and output add up, and a normal
# distribution fills a quarter of its range: 30 dB for nets of a few layers is what one can expect.
GOOD = 30.0


@pytest.fixture(scope="module")
def depthwise(tmp_path_factory: pytest.TempPathFactory) -> Case:
    net, inputs = nets()["depthwise"]
    return lower(net, inputs, tmp_path_factory.mktemp("depthwise"), "static-int8")


def test_pitfall_q_05_a_depthwise_net_keeps_its_accuracy_and_runs_in_the_delegate(depthwise: Case) -> None:
    assert depthwise.snr() > GOOD
    assert depthwise.lowered.delegated_fraction == 1.0 and depthwise.lowered.leftovers == {}
    assert depthwise.lowered.id == "executorch-xnnpack-static-int8"


def test_every_layer_is_accounted_for(depthwise: Case) -> None:
    names = ["expand.0", "depth.0", "project.0", "gate.1", "mul", "add", "cat"]
    assert [layer.name for layer in depthwise.lowered.layers] == names
    assert set(depthwise.precisions.values()) == {"int8"}
    assert {layer.name: layer.bytes for layer in depthwise.lowered.layers}["depth.0"] == 16 * 9 * 4


@pytest.mark.slow
def test_the_same_samples_give_the_same_bytes_and_the_model_stays_as_it_was(depthwise: Case, tmp_path: Path) -> None:
    program = depthwise.model.program
    assert program is not None
    before = {name: value.clone() for name, value in program.state_dict.items()}
    graph = str(program.graph)
    data = store(tmp_path / "c", noise(depthwise.shapes, 16))
    again = RUNTIME.lower(
        depthwise.model, LowerConfig(quantization="static-int8", calibration=data), tmp_path / "b.pte"
    )
    assert again.path.read_bytes() == depthwise.lowered.path.read_bytes()
    assert str(program.graph) == graph
    assert all(torch.equal(before[name], value) for name, value in program.state_dict.items())


@pytest.mark.slow
def test_layers_named_in_keep_float_stay_float(depthwise: Case, tmp_path: Path) -> None:
    net, inputs = nets()["depthwise"]
    kept = lower(net, inputs, tmp_path, "static-int8", keep_float=("depth.0", "add", "cat"))
    floats = {name for name, precision in kept.precisions.items() if precision == "float32"}
    assert floats == {"depth.0", "add", "cat"}
    assert all(layer.why for layer in kept.lowered.layers if layer.name in floats)
    assert kept.snr() > depthwise.snr() + 3
    assert list(kept.precisions) == list(depthwise.precisions)


def test_batch_norm_is_folded(depthwise: Case) -> None:
    assert not any("batch_norm" in name for name in depthwise.lowered.leftovers)


@pytest.mark.slow
def test_dynamic_sizes_stay_dynamic(tmp_path: Path) -> None:
    inputs = (torch.randn(2, 3, 12, 12),)
    batch = torch.export.Dim("batch", min=1, max=4)
    dims = [(Dim(1, 4), 3, 12, 12)]
    case = lower(TinyCnn(), inputs, tmp_path, "static-int8", dynamic=({0: batch},), dims=dims)
    for size in (1, 2, 4):
        assert case.snr(noise([(size, 3, 12, 12)], 2, seed=3)) > GOOD


class Counter(nn.Module):
    """Adds up what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("total", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += self.linear(x)
        return self.total * 1.0


def test_state_begins_anew_and_is_carried_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Counter()
    case = lower(net, (torch.randn(1, 8),), tmp_path, "static-int8", feeds=noise([(1, 8)], 64))
    assert case.model.program is not None
    assert torch.equal(case.model.program.state_dict["total"], torch.zeros(1, 8))
    runner = RUNTIME.load(case.lowered.path, case.model.signature)
    x = 0.1 * torch.ones(1, 8)
    first, second = (runner.run([x.numpy()])[0] for _ in range(2))
    step = net.linear(x).detach().numpy()
    # The total is measured in 255 parts of what 64 steps of noise add up to, a random walk that spans about 8 × 4 = 32: one
    # part is 0.13, and each addition may be off by one.
    assert np.abs(first - step).max() < 0.13 and np.abs(second - 2 * step).max() < 0.26


def test_portable_kernels_run_the_int8_file(tmp_path: Path) -> None:
    net, inputs = nets()["cnn"]
    case = lower(net, inputs, tmp_path, "static-int8", backend="portable")
    assert case.snr() > GOOD and case.lowered.delegates == 0


@pytest.mark.slow
def test_attention_keeps_its_float_islands_and_says_so(tmp_path: Path) -> None:
    case = lower(Attention(), (torch.randn(1, 6, 16),), tmp_path, "static-int8")
    assert case.snr() > 25
    islands = next(w.message for w in case.lowered.warnings if w.code == "float_islands")
    assert "scaled_dot_product_attention" in islands and "gelu" in islands


@pytest.mark.slow
def test_pitfall_q_08_a_recurrent_layer_stays_float_and_the_report_says_why(tmp_path: Path) -> None:
    torch.manual_seed(0)
    feeds = noise([(1, 3, 4)], 200)  # with a tenth of them, unseen samples leave the ranges: 18 dB
    case = lower(Recurrent(), (torch.randn(1, 3, 4),), tmp_path, "static-int8", feeds=feeds)
    layers = {layer.name: layer for layer in case.lowered.layers}
    assert layers["lstm"].precision == "float32" and "dynamic-int8" in (layers["lstm"].why or "")
    assert layers["head"].precision == "int8" and case.snr() > GOOD
    assert "large_float_weights" in case.codes  # pitfall Q-16: the file is hardly smaller


def test_a_model_without_int8_layers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        lower(nn.LSTM(4, 8, batch_first=True), (torch.randn(1, 3, 4),), tmp_path, "static-int8")
    assert caught.value.code == "nothing_quantized" and "lstm" in str(caught.value.why)
    assert not list(tmp_path.glob("*.pte*"))


def test_pitfall_q_09_blank_samples_are_refused_and_the_layer_is_named(tmp_path: Path) -> None:
    blank = [{"x0": np.zeros((1, 3, 12, 12), np.float32)} for _ in range(4)]
    with pytest.raises(InputError) as caught:
        lower(TinyCnn(), (torch.randn(1, 3, 12, 12),), tmp_path, "static-int8", feeds=blank)
    assert caught.value.code == "observer_untouched" and "features.0" in caught.value.message


def test_pitfall_q_09_an_empty_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        lower(TinyCnn(), (torch.randn(1, 3, 12, 12),), tmp_path, "static-int8", feeds=[])
    assert caught.value.code == "no_calibration"


def test_other_back_ends_refuse(tmp_path: Path) -> None:
    model = model_of(TinyCnn(), (torch.randn(1, 3, 12, 12),))
    with pytest.raises(UnsupportedError) as caught:
        RUNTIME.lower(model, LowerConfig(backend="vulkan", quantization="static-int8"), tmp_path / "v.pte")
    assert caught.value.code == "quantization_unsupported"


class Masked(nn.Module):
    """Attention weights over places that a mask allows, as BERT computes them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.score, self.value = nn.Linear(16, 6), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.score(x) + (1.0 - mask) * -1e9
        return scores.softmax(-1) @ self.value(x)


@pytest.mark.slow
def test_operators_that_work_with_masks_stay_float(tmp_path: Path) -> None:
    feeds = noise([(1, 6, 16)], 16)
    for i, feed in enumerate(feeds):
        feed["x1"] = (np.arange(6) <= i % 6).astype(np.float32).reshape(1, 1, 6)
    case = lower(Masked(), (torch.randn(1, 6, 16), torch.ones(1, 1, 6)), tmp_path, "static-int8", feeds)
    assert case.precisions["score"] == case.precisions["value"] == "int8" and case.snr(feeds) > GOOD
    why = [layer.why for layer in case.lowered.layers if layer.precision == "float32"]
    assert any("mask" in str(reason) for reason in why)
    assert all("mask" in str(reason) or "computes in float" in str(reason) for reason in why)


class Encoder(nn.Module):
    """Sums that only layer norms read, as in a transformer; and one that a convolution reads, as in a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.norm = nn.Linear(32, 32), nn.Linear(32, 32), nn.LayerNorm(32)
        self.conv, self.last = nn.Conv1d(6, 6, 3, padding=1), nn.Conv1d(6, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.second(torch.relu(self.first(x)))
        y = self.norm(y)
        y = torch.relu(self.conv(y) + y)
        return self.last(y)


@pytest.mark.slow
def test_only_sums_that_are_read_as_integers_are_rounded(tmp_path: Path) -> None:
    case = lower(Encoder().eval(), (torch.randn(1, 6, 32),), tmp_path, "static-int8")
    sums = [layer for layer in case.lowered.layers if layer.op == "add"]
    assert sorted(layer.precision for layer in sums) == ["float32", "int8"]
    assert "computes in float" in str(next(layer.why for layer in sums if layer.precision == "float32"))
    assert case.snr() > GOOD


@pytest.mark.slow
def test_the_shortcuts_of_lowering_give_the_same_bytes(
    depthwise: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgesdk.runtimes import _et_fast

    monkeypatch.setattr(_et_fast, "trusted", lambda: False)
    data = store(tmp_path / "c", noise(depthwise.shapes, 16))
    plain = RUNTIME.lower(
        depthwise.model, LowerConfig(quantization="static-int8", calibration=data), tmp_path / "p.pte"
    )
    assert plain.path.read_bytes() == depthwise.lowered.path.read_bytes()


class Twice(nn.Module):
    """One linear layer called on inputs of very different ranges."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.relu(self.layer(x)))


def test_a_layer_called_twice_adds_its_bias_in_the_units_of_each_call(tmp_path: Path) -> None:
    case = lower(Twice().eval(), (torch.randn(2, 64),), tmp_path, "static-int8")
    assert case.precisions == {"layer": "int8"}
    assert case.snr() > 25  # 14 dB while XNNPACK got one int32 bias for both


class Positions(nn.Module):
    """Counts positions from an offset, as text encoders do, and reads a table and a mask by them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(24, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1]) + 2
        mask = (x[..., 0] > 0)[:, places - 2]
        return self.linear((x + self.table(places)) * 0.5 + 1.0) * mask[..., None]


@pytest.mark.slow
def test_integers_that_count_positions_stay_integers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    case = lower(Positions().eval(), (torch.randn(1, 8, 16),), tmp_path, "static-int8")
    assert case.snr() > GOOD
    assert case.precisions["linear"] == "int8"
