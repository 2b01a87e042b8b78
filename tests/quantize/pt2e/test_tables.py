"""Embeddings within static and dynamic int8: in a language model the table of words is most of the file (pitfall Q-16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.artifacts import Lowered, Model
from edgesdk.runtimes import LowerConfig
from tests.quantize.pt2e.helpers import snr, store
from tests.runtimes.executorch_nets import RUNTIME, model_of

TOKENS = torch.tensor([[1, 5, 599, 0, 17, 300]])


class Words(nn.Module):
    """A table that outweighs the rest."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.inner, self.head = nn.Embedding(600, 64), nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(self.words(tokens)).relu())


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of(Words().eval(), (TOKENS,))


@pytest.fixture(scope="module")
def data(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = np.random.default_rng(0)
    name = model.signature.inputs[0].name
    feeds = [{name: source.integers(0, 600, TOKENS.shape)} for _ in range(16)]
    return store(tmp_path_factory.mktemp("words") / "calibration", feeds)


def lowered(model: Model, data: Path, out: Path, scheme: str, **more: Any) -> Lowered:
    return RUNTIME.lower(model, LowerConfig(quantization=scheme, calibration=data, **more), out)


@pytest.mark.parametrize(("scheme", "floor"), [("static-int8", 25.0), ("dynamic-int8", 30.0)])
@pytest.mark.slow
def test_the_table_becomes_int8_with_the_rest(
    scheme: str, floor: float, model: Model, data: Path, tmp_path: Path
) -> None:
    found = lowered(model, data, tmp_path / "q.pte", scheme)
    plain = RUNTIME.lower(model, LowerConfig(), tmp_path / "f.pte")
    precisions = {layer.name: layer.precision for layer in found.layers}
    assert precisions["words"] == precisions["inner"] == precisions["head"] == "int8"
    assert not any(warn.code == "large_float_weights" for warn in found.warnings)
    assert found.path.stat().st_size < 0.33 * plain.path.stat().st_size
    (got,) = RUNTIME.load(found.path, model.signature).run([TOKENS.numpy()])
    (wanted,) = RUNTIME.load(plain.path, model.signature).run([TOKENS.numpy()])
    assert snr(got, wanted) > floor


@pytest.mark.slow
def test_a_tied_head_is_listed_as_what_it_is(tmp_path: Path) -> None:
    net = Words()
    net.head = nn.Linear(64, 600, bias=False)
    net.head.weight = net.words.weight
    tied = model_of(net.eval(), (TOKENS,))
    name = tied.signature.inputs[0].name
    feeds = [{name: np.random.default_rng(i).integers(0, 600, TOKENS.shape)} for i in range(16)]
    data = store(tmp_path / "calibration", feeds)
    made = lowered(tied, data, tmp_path / "q.pte", "static-int8")
    (name,) = {layer.name for layer in made.layers} - {"inner"}
    assert {layer.name: layer.precision for layer in made.layers}[name] == "int8"
    kept = lowered(tied, data, tmp_path / "k.pte", "static-int8", keep_float=(name,))
    assert {layer.name: layer.precision for layer in kept.layers} == {name: "float32", "inner": "int8"}


@pytest.mark.slow
def test_the_table_can_be_restored_and_its_noise_is_measured(model: Model, data: Path, tmp_path: Path) -> None:
    kept = lowered(model, data, tmp_path / "k.pte", "static-int8", keep_float=("words",))
    assert {layer.name: layer.precision for layer in kept.layers}["words"] == "float32"
    config = LowerConfig(quantization="static-int8", calibration=data)
    errors = {error.name: error for error in RUNTIME.layer_errors(model, config, 8)}
    assert errors["words"].snr_db is not None and errors["words"].snr_db > 35  # 127 steps of each row
    assert errors["words"].alone_db is not None
