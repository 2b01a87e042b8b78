"""Half precision that ONNX Runtime can load."""

from __future__ import annotations

import zipfile
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


class Counted(torch.nn.Module):
    """Attention over windows goes the slow way; a whole and a broken number make a range of floats."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        windows = x[:, None].expand(-1, 3, -1, -1, -1) * torch.arange(1, 4.0)[:, None, None, None]
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(windows, windows[:, :, :2], windows[:, :, :2], is_causal=True, enable_gqa=True)


def test_a_range_of_floats_stays_one(tmp_path: Path) -> None:
    model = graphs.model_of(Counted(), (torch.randn(2, 4, 6, 8),), [{0: graphs.BATCH}])
    _, runner = graphs.lowered("onnx", model, tmp_path)
    assert graphs.difference(runner, Counted(), (torch.randn(3, 4, 6, 8),)) < 1e-5


def test_torchscript_shows_old_attention_no_row_without_anything_to_look_at(tmp_path: Path) -> None:
    """PyTorch Mobile is 2.1, whose attention answers NaN there; this machine's gives zeros, so the graph is asked."""
    example = (torch.randn(2, 6, 16), torch.randn(2, 6))
    model = graphs.model_of(Blind(), example, [{0: graphs.BATCH}, {0: graphs.BATCH}])
    made, runner = graphs.lowered("torchscript", model, tmp_path)
    seen = torch.randn(3, 6)
    seen[1] = -1
    assert graphs.difference(runner, Blind(), (torch.randn(3, 6, 16), seen)) < 1e-6
    with zipfile.ZipFile(made.path) as archive:
        (code,) = (archive.read(name) for name in archive.namelist() if name.endswith("/bytecode.pkl"))
    assert b"aten::masked_fill" in code
