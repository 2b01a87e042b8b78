"""weight-int8 and weight-int4 for ExecuTorch: files that are really smaller, run by XNNPACK from the small weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.errors import UnsupportedError
from edgesdk.runtimes import LowerConfig
from tests.quantize.pt2e.helpers import lower, noise, snr
from tests.runtimes.executorch_nets import RUNTIME, Recurrent, TinyCnn, model_of


class Mlp(nn.Module):
    """Large enough for weights to outweigh the program's overhead of some kilobytes."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.last = nn.Linear(width, 256), nn.Linear(256, 256), nn.Linear(256, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(x).relu()).relu())


# A uniform error of half a step over a normal distribution's 3.5 sigma: 127 steps give 39 dB or more, 7 steps 18 dB.
@pytest.mark.parametrize(("scheme", "precision", "floor", "share"), [
    ("weight-int8", "int8", 39.0, 0.275), ("weight-int4", "int4", 17.0, 0.17),
])  # fmt: skip
@pytest.mark.slow
def test_pitfall_q_16_the_file_shrinks_as_promised(
    scheme: str, precision: str, floor: float, share: float, tmp_path: Path
) -> None:
    case = lower(Mlp(), (torch.randn(2, 256),), tmp_path, scheme)
    assert set(case.precisions.values()) == {precision} and case.snr() > floor
    assert case.lowered.delegated_fraction == 1.0 and case.lowered.delegates == 1
    plain = RUNTIME.lower(case.model, LowerConfig(), tmp_path / "float.pte").path.stat().st_size
    assert case.size < share * plain  # an eighth, and two bytes of scale for 32 weights make 0.14


def test_int4_says_what_it_does_to_the_inputs(tmp_path: Path) -> None:
    case = lower(Mlp(), (torch.randn(2, 256),), tmp_path, "weight-int4")
    assert "inputs are quantized to int8" in str(case.lowered.layers[0].why)


def test_int8_arithmetic_is_float(tmp_path: Path) -> None:
    """Inputs of any range pass unharmed: outputs scale with them."""
    case = lower(Mlp(), (torch.randn(1, 256),), tmp_path, "weight-int8")
    feed = {"x0": noise([(1, 256)], 1)[0]["x0"] * np.linspace(1e-3, 1e3, 256, dtype=np.float32)}
    assert case.snr([feed]) > 35


class Language(nn.Module):
    """The table of words is read by the first layer and by the last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.inner, self.head = nn.Embedding(600, 64), nn.Linear(64, 64), nn.Linear(64, 600)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(self.words(tokens)).relu())


def test_pitfall_q_16_embeddings_shrink_too(tmp_path: Path) -> None:
    net = Language().eval()
    tokens = torch.tensor([[1, 5, 599, 0]])
    model = model_of(net, (tokens,))
    lowered = RUNTIME.lower(model, LowerConfig(quantization="weight-int8"), tmp_path / "w.pte")
    plain = RUNTIME.lower(model, LowerConfig(), tmp_path / "f.pte")
    (got,) = RUNTIME.load(lowered.path, model.signature).run([tokens.numpy()])
    assert snr(got, net(tokens).detach().numpy()) > 36
    assert lowered.path.stat().st_size < 0.3 * plain.path.stat().st_size
    assert lowered.leftovers.get("quantized_decomposed::embedding_byte") == 1


def test_odd_sizes_get_int8_in_an_int4_file(tmp_path: Path) -> None:
    case = lower(Mlp(250), (torch.randn(2, 250),), tmp_path, "weight-int4")
    assert case.precisions == {"first": "int8", "second": "int4", "last": "int4"}
    assert "groups of 32" in str(case.lowered.layers[0].why)


@pytest.mark.slow
def test_recurrent_layers_shrink(tmp_path: Path) -> None:
    case = lower(Recurrent(), (torch.randn(1, 3, 4),), tmp_path, "weight-int8")
    assert set(case.precisions.values()) == {"int8"} and case.snr() > 40


def test_a_layer_kept_float(tmp_path: Path) -> None:
    case = lower(Mlp(), (torch.randn(2, 256),), tmp_path, "weight-int8", keep_float=("second",))
    assert case.precisions == {"first": "int8", "second": "float32", "last": "int8"}
    assert "large_float_weights" in case.codes


def test_convolutions_stay_float_and_say_so(tmp_path: Path) -> None:
    case = lower(TinyCnn(), (torch.randn(1, 3, 12, 12),), tmp_path, "weight-int8")
    assert case.precisions["features.0"] == "float32" and case.precisions["head"] == "int8"
    with pytest.raises(UnsupportedError) as caught:
        lower(nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 6, 6),), tmp_path, "weight-int8")
    assert caught.value.code == "nothing_quantized" and "static-int8" in str(caught.value.fix)


def test_portable_kernels_read_int8_weights_but_not_int4(tmp_path: Path) -> None:
    case = lower(Mlp(), (torch.randn(2, 256),), tmp_path, "weight-int8", backend="portable")
    assert case.snr() > 39 and case.lowered.delegates == 0
    with pytest.raises(UnsupportedError) as caught:
        lower(Mlp(), (torch.randn(2, 256),), tmp_path / "4", "weight-int4", backend="portable")
    assert caught.value.code == "quantization_unsupported"


def test_the_worst_layer_of_int4_is_named(tmp_path: Path) -> None:
    case = lower(Mlp(), (torch.randn(2, 256),), tmp_path, "weight-int4")
    config = LowerConfig(quantization="weight-int4", calibration=tmp_path / "calibration")
    found = RUNTIME.layer_errors(case.model, config, 4)
    assert {e.name for e in found} == {"first", "second", "last"}
    assert all(e.alone_db is not None and 15 < e.alone_db < 35 for e in found)
