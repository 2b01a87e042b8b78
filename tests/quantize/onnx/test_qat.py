from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgesdk.artifacts import Model
from edgesdk.data import Sample, Store, StoreWriter
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.quantize._qat import fine_tune
from edgesdk.runtimes import LowerConfig
from tests.quantize.onnx import nets
from tests.quantize.onnx.test_static import paddle
from tests.runtimes import graphs


class Digits(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        self.head = torch.nn.Linear(8 * 36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).flatten(1))  # type: ignore[no-any-return]


def samples(folder: Path, count: int = 48) -> Path:
    """Three patterns in noise; the label says which."""
    source = np.random.default_rng(0)
    patterns = source.standard_normal((3, 1, 8, 8)).astype(np.float32)
    with StoreWriter(folder / "samples") as writer:
        for number in range(count):
            image = patterns[number % 3] + 0.5 * source.standard_normal((1, 8, 8)).astype(np.float32)
            writer.append(Sample({"in_0": image[None].astype(np.float32)}, np.array([number % 3]), str(number)))
    return folder


@pytest.fixture
def model() -> Model:
    return graphs.model_of(Digits(), (torch.randn(2, 1, 8, 8),), [{0: graphs.BATCH}])


@pytest.mark.slow
def test_trained_then_static(model: Model, tmp_path: Path) -> None:
    """The file holds the trained weights: it answers as the trained program does, not as the one before."""
    samples(tmp_path)
    options = {"epochs": 3, "learning_rate": 3e-3, "batch": 8}
    lowered, runner = nets.quantized(model, "qat-int8", tmp_path, options=options)
    assert [(x.name, x.precision) for x in lowered.layers if x.bytes] == [("conv.0", "int8"), ("head", "int8")]
    assert "qat_stages" in {w.code for w in lowered.warnings}
    config = LowerConfig(quantization="qat-int8", calibration=tmp_path / "samples", options=options)
    program = fine_tune(model, config).program
    assert program is not None and model.module is not None
    trained = program.module()
    figures = {}
    for name, net in (("trained", trained), ("before", model.module)):
        signal = noise = 0.0
        for sample in Store(tmp_path / "samples"):
            given = sample.feed["in_0"]
            with torch.no_grad():
                (wanted,) = torch.utils._pytree.tree_leaves(net(torch.from_numpy(given.copy())))
            found = runner.run([given])[0]
            signal += float((wanted**2).sum())
            noise += float(((wanted.numpy() - found) ** 2).sum())
        figures[name] = 10 * np.log10(signal / noise)
    assert figures["trained"] > 25 and figures["before"] < 15


def test_without_labels_there_is_nothing_to_learn(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        nets.quantized(model, "qat-int8", tmp_path)
    assert caught.value.code == "no_labels"


def test_an_onnx_file_can_not_be_trained(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        nets.quantized(paddle(tmp_path / "source.onnx"), "qat-int8", tmp_path)
    assert caught.value.code == "nothing_to_train" and "static-int8" in caught.value.fix
