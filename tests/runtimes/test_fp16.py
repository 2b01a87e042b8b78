from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgesdk.artifacts import Model
from edgesdk.runtimes import LowerConfig
from edgesdk.runtimes._fp16 import half_overflow, is_half, to_half
from tests.runtimes import graphs

ELEVEN_BITS = 5e-3  # binary16 through a few layers, relative to the output's largest value


class Masked(torch.nn.Module):
    """A -1e9 mask, a big sum, a tiny epsilon, angles, positions: each beyond half's range or precision."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.embed = torch.nn.Linear(16, 16), torch.nn.Embedding(50, 16)

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        x = x + self.embed(tokens)
        scores = self.query(x) @ x.transpose(1, 2) + (1.0 - (tokens > 10).float())[:, None] * -1e9
        y = scores.softmax(-1) @ x
        angle = torch.arange(x.size(1), dtype=torch.float32) * 1000.0
        unit = torch.nn.functional.normalize(y + torch.sin(angle)[None, :, None], dim=-1, eps=1e-12)
        return {"unit": unit, "energy": (x * 1000).pow(2).sum(), "best": unit.argmax(-1)}


def given(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, 50, (batch, length))
    tokens[:, 0] = 40  # at least one that isn't masked
    return torch.randn(batch, length, 16), tokens


@pytest.fixture(scope="module")
def masked() -> Model:
    return graphs.model_of(Masked(), given(2, 6), [{0: graphs.BATCH, 1: graphs.LENGTH}] * 2)


def feed(model: Model) -> dict[str, np.ndarray]:
    return dict(zip([s.name for s in model.signature.inputs], [t.numpy() for t in given(2, 6)], strict=True))


def test_pitfall_n_02_values_beyond_half_are_found_and_named_with_their_line(masked: Model) -> None:
    found = half_overflow(masked, [feed(masked)])
    for operator in ("aten.pow", "aten.sum", "aten.mul", "aten.clamp_min"):
        assert any(name.startswith(operator) and "test_fp16.py:" in name for name in found), (operator, found)
    assert not any("linear" in name or "softmax" in name for name in found)


def test_pitfall_n_02_they_stay_float32_and_the_rest_is_half(masked: Model) -> None:
    half = to_half(masked, [feed(masked)])
    kinds = {str(n.meta["val"].dtype) for n in half.program.graph.nodes if "linear" in str(n.target)}
    assert kinds == {"torch.float16"} and is_half(half.program)
    assert [w.code for w in half.warnings] == ["fp16_kept_float32"] and "aten.pow" in half.warnings[0].message
    assert half.signature == masked.signature


@pytest.mark.parametrize("runtime", ["onnx", "torchscript"])
@pytest.mark.slow
def test_pitfall_n_02_no_runtime_overflows(masked: Model, tmp_path: Path, runtime: str) -> None:
    half = to_half(masked, [feed(masked)])
    _, runner = graphs.lowered(runtime, half, tmp_path, LowerConfig(quantization="fp16"))
    for batch, length in ((2, 6), (1, 2), (8, 12)):
        inputs = given(batch, length)
        with torch.no_grad():
            wanted = masked.module(*inputs)
        unit, energy, _ = runner.run([t.numpy() for t in inputs])
        assert np.isfinite(energy).all() and np.isfinite(unit).all()
        assert np.abs(unit - wanted["unit"].numpy()).max() < 2e-2  # scores up to 30 in 11 bits, then a softmax
        assert abs(float(energy) / float(wanted["energy"]) - 1) < ELEVEN_BITS


@pytest.mark.slow
def test_inputs_and_outputs_stay_float32_and_the_file_halves(tmp_path: Path) -> None:
    model = graphs.picture_model()
    whole, _ = graphs.lowered("onnx", model, tmp_path)
    half = to_half(model)
    made, runner = graphs.lowered("onnx", half, tmp_path, LowerConfig(quantization="fp16"), "half")
    for batch in (1, 3, 8):
        assert graphs.difference(runner, model.module, (torch.randn(batch, 1, 8, 8),)) < ELEVEN_BITS
    assert made.path.stat().st_size < 0.7 * whole.path.stat().st_size
    assert half.warnings == ()


def test_a_model_that_is_half_already_is_left_alone() -> None:
    model = graphs.model_of(torch.nn.Linear(3, 3).half(), (torch.ones(1, 3).half(),))
    assert to_half(model) is model


def test_scanning_a_model_with_state_leaves_its_state() -> None:
    model = graphs.model_of(graphs.Counter(), (torch.ones(1, 3),), stateful=True)
    before = {k: v.clone() for k, v in model.program.state_dict.items()}
    half_overflow(model, [{"in_0": np.full((1, 3), 1e6, np.float32)}])
    assert all(torch.equal(before[k], v) for k, v in model.program.state_dict.items())


class InPlace(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.relu(self.conv(x), inplace=True)
        y[:, 0] += 1
        return torch.nn.functional.hardswish(y, inplace=True)


def test_operators_in_place_and_on_views_keep_their_meaning(tmp_path: Path) -> None:
    model = graphs.model_of(InPlace(), (torch.randn(1, 1, 6, 6),))
    _, runner = graphs.lowered("onnx", to_half(model), tmp_path, LowerConfig(quantization="fp16"))
    assert graphs.difference(runner, model.module, (torch.randn(1, 1, 6, 6),)) < ELEVEN_BITS


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["xnnpack", "portable"])
def test_pitfall_n_02_a_layer_norm_is_right_on_executorch(backend: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(384, 384), torch.nn.LayerNorm(384), torch.nn.Linear(384, 8))
    model = graphs.model_of(net, (torch.randn(1, 32, 384),))
    _, runner = graphs.lowered("executorch", model, tmp_path, LowerConfig(quantization="fp16", backend=backend))
    x = np.random.default_rng(1).standard_normal((1, 32, 384), dtype=np.float32)
    with torch.no_grad():
        wanted = net(torch.from_numpy(x)).numpy()
    # Portable kernels add up 384 products in half precision.
    assert np.abs(runner.run([x])[0] - wanted).max() < 2 * ELEVEN_BITS * np.abs(wanted).max()


class Faint(torch.nn.Module):
    """Answers around 1e-7 (a physical quantity, say), from a matrix as small; and inputs of raw sound, so small weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32, bias=False)
        self.first.weight.data *= 1e-4
        self.last.weight.data *= 1e-7

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x * 10_000)))


@pytest.mark.parametrize("runtime", ["onnx", "torchscript"])
def test_pitfall_n_02_values_below_half_stay_float32(runtime: str, tmp_path: Path) -> None:
    model = graphs.model_of(Faint(), (torch.randn(2, 32),))
    half = to_half(model) if runtime == "onnx" else model  # TorchScript only stores in half precision
    made, runner = graphs.lowered(runtime, half, tmp_path, LowerConfig(quantization="fp16"))
    x = torch.randn(2, 32)
    found, wanted = runner.run([x.numpy()])[0], model.module(x).detach().numpy()
    assert np.abs(found - wanted).max() < ELEVEN_BITS * np.abs(wanted).max()
    if runtime == "onnx":
        assert [w.code for w in half.warnings] == ["fp16_kept_float32"]
    else:
        assert "2 constants" in next(w.message for w in made.warnings if w.code == "fp16_storage")


def test_pitfall_n_02_small_values_of_one_input_among_larger_ones_are_half() -> None:
    model = graphs.model_of(torch.nn.Linear(4, 4, bias=False), (torch.randn(1, 4),))
    feeds = [{"in_0": np.full((1, 4), size, np.float32)} for size in (1e-7, 1.0)]
    assert half_overflow(model, feeds) == () and half_overflow(model, feeds[:1]) != ()
