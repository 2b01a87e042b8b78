"""Real architectures through both runtimes, float32 and float16; lowering the same way that upstream's users do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from edgesdk.artifacts import Model
from edgesdk.runtimes import LowerConfig
from edgesdk.runtimes._fp16 import to_half
from tests.runtimes import graphs

Made = tuple[Model, Callable[[int], tuple[torch.Tensor, ...]]]


def pictures(net: torch.nn.Module, size: int) -> Made:
    """Batch norms get statistics of their own: with the initial ones folding them would prove nothing."""
    torch.manual_seed(0)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)

    def inputs(batch: int) -> tuple[torch.Tensor, ...]:
        return (torch.randn(batch, 3, size, size),)

    return graphs.model_of(net, inputs(2), [{0: graphs.BATCH}]), inputs


def mobilenet() -> Made:
    import torchvision

    return pictures(torchvision.models.mobilenet_v2(weights=None), 64)


def vision_transformer() -> Made:
    import timm

    return pictures(timm.create_model("vit_tiny_patch16_224"), 224)


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
        self.gru = torch.nn.GRU(32, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.gru(self.lstm(x)[0])


def recurrent() -> Made:
    def inputs(batch: int) -> tuple[torch.Tensor, ...]:
        return (torch.randn(2, 7, 8),)

    return graphs.model_of(Recurrent(), inputs(2)), inputs


class Bert(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        self.bert = BertModel(BertConfig(vocab_size=99, **sizes))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.bert(input_ids=tokens, attention_mask=mask).last_hidden_state


def bert() -> Made:
    def inputs(batch: int) -> tuple[torch.Tensor, ...]:
        tokens, mask = graphs.sentence(batch, batch + 3)
        return tokens, mask

    return graphs.model_of(Bert(), inputs(2), [{0: graphs.BATCH, 1: graphs.LENGTH}] * 2), inputs


@pytest.fixture(scope="module", params=[mobilenet, vision_transformer, recurrent, bert])
def made(request: pytest.FixtureRequest) -> Made:
    found: Made = request.param()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["onnx", "torchscript"])
def test_float32(made: Made, tmp_path: Path, runtime: str) -> None:
    model, inputs = made
    _, runner = graphs.lowered(runtime, model, tmp_path)
    for batch in (1, 3, 8):
        assert graphs.difference(runner, model.module, inputs(batch)) < 1e-4  # float32 through a deep net


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["onnx", "torchscript"])
def test_float16(made: Made, tmp_path: Path, runtime: str) -> None:
    model, inputs = made
    whole, _ = graphs.lowered(runtime, model, tmp_path, name="whole")
    half, runner = graphs.lowered(runtime, to_half(model), tmp_path, LowerConfig(quantization="fp16"))
    assert half.path.stat().st_size < 0.75 * whole.path.stat().st_size
    for batch in (1, 3):
        assert graphs.difference(runner, model.module, inputs(batch)) < 3e-2  # eleven bits through a deep net
