"""Half precision that ONNX Runtime can load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgesdk.runtimes import LowerConfig, find
from edgesdk.runtimes._fp16 import to_half
from tests.runtimes import graphs


class Turned(torch.nn.Module):
    """A plain recurrent layer; transpositions of three and four dimensions before products, one weight twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.mix = torch.nn.RNN(16, 32, batch_first=True), torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.mix(self.mix(self.net(x)[0]).transpose(0, 1))
        return self.mix(y.reshape(2, 3, -1, 32).permute(1, 2, 0, 3)).mean((0, 2))


def test_a_transposition_before_a_half_precision_product_does_not_crash_the_engine(tmp_path: Path) -> None:
    example = torch.randn(2, 6, 16)
    model = graphs.model_of(Turned(), (example,), [{0: graphs.BATCH}])
    half = to_half(model, [{"in_0": example.numpy()}], find("onnx").never_half)
    made, runner = graphs.lowered("onnx", half, tmp_path, LowerConfig(quantization="fp16"))
    assert graphs.difference(runner, Turned().eval(), (torch.randn(3, 6, 16),)) < 5e-3
    assert (
        made.path.stat().st_size < 0.75 * graphs.lowered("onnx", model, tmp_path, name="whole")[0].path.stat().st_size
    )


class Headless(torch.nn.Module):
    """Attention of three dimensions, with a mask for each sample and without."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(x, 2 * x, x.flip(1), attn_mask=mask) + attend(x, x, x, is_causal=True)


def test_attention_without_heads(tmp_path: Path) -> None:
    example = (torch.randn(2, 6, 16), torch.randn(2, 6, 6))
    model = graphs.model_of(Headless(), example, [{0: graphs.BATCH}, {0: graphs.BATCH}])
    half = to_half(model, [{"in_0": example[0].numpy(), "in_1": example[1].numpy()}])
    _, runner = graphs.lowered("onnx", half, tmp_path, LowerConfig(quantization="fp16"))
    assert graphs.difference(runner, Headless(), (torch.randn(3, 6, 16), torch.randn(3, 6, 6))) < 1e-2


class Blind(torch.nn.Module):
    """Attention of five dimensions, over windows; queries that may look at nothing answer zeros, by either kind of mask."""

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        attend = torch.nn.functional.scaled_dot_product_attention
        allowed = (seen > 0)[:, None]
        shift = torch.zeros_like(seen).masked_fill(seen <= 0, float("-inf"))[:, None]
        windows = x.reshape(x.shape[0], 2, 3, 2, 8).transpose(2, 3)
        found = attend(windows, windows, windows).transpose(2, 3).reshape(x.shape)
        return found + attend(x, x, x, attn_mask=allowed) + attend(x, x, 2 * x, attn_mask=shift)


@pytest.mark.parametrize("scheme", ["none", "fp16"])
def test_attention_that_sees_nothing_and_attention_over_windows(scheme: str, tmp_path: Path) -> None:
    example = (torch.randn(2, 6, 16), torch.randn(2, 6))
    model = graphs.model_of(Blind(), example, [{0: graphs.BATCH}, {0: graphs.BATCH}])
    chosen = to_half(model, [{"in_0": example[0].numpy(), "in_1": example[1].numpy()}]) if scheme == "fp16" else model
    _, runner = graphs.lowered("onnx", chosen, tmp_path, LowerConfig(quantization=scheme))
    seen = torch.randn(3, 6)
    seen[1] = -1
    limit = 1e-2 if scheme == "fp16" else 1e-5
    assert graphs.difference(runner, Blind(), (torch.randn(3, 6, 16), seen)) < limit
