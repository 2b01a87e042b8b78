"""Small nets for the ExecuTorch tests, and the shortest way from one to a running file."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edgesdk.artifacts import Dim, Lowered, Model, Signature, Size, Source, TensorSpec
from edgesdk.runtimes import LowerConfig, Runner, find

RUNTIME = find("executorch")


class Calls(nn.Module):
    """A module that is one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class TinyCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1),
            nn.Hardswish(),
        )  # fmt: skip
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean((2, 3)))


class DepthwiseCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(4, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        self.depth = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        self.project = nn.Sequential(nn.Conv2d(16, 4, 1, bias=False), nn.BatchNorm2d(4))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project(self.depth(self.expand(x)))
        return torch.cat([x + y * self.gate(y), x], 1)


class Attention(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, t, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(nn.functional.gelu(y.transpose(1, 2).reshape(b, t, c)))


class MaskedAttention(nn.Module):
    """The one form of attention that XNNPACK's own search finds: a float mask of rank two."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.triu(torch.full((6, 6), -1e4), 1))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)


class Upsample(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.interpolate(self.conv(x), scale_factor=2.0, mode="bilinear", align_corners=False)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def nets() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """By name: a net in eval mode with seeded weights, and inputs for it."""
    torch.manual_seed(1)
    found: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
        "cnn": (TinyCnn(), (torch.randn(1, 3, 12, 12),)),
        "depthwise": (DepthwiseCnn(), (torch.randn(1, 4, 8, 8),)),
        "attention": (Attention(), (torch.randn(1, 6, 16),)),
        "masked_attention": (MaskedAttention(), tuple(torch.randn(1, 2, 6, 8) for _ in range(3))),
        "upsample": (Upsample(), (torch.randn(1, 3, 6, 6),)),
        "lstm": (Recurrent(), (torch.randn(1, 3, 4),)),
    }
    for net, _ in found.values():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):  # as after training, so that folding it is a real calculation
                nn.init.uniform_(module.running_var, 0.5, 2.0)
                nn.init.normal_(module.running_mean)
        net.eval()
    return found


@dataclass(frozen=True)
class Built:
    """A net that went through the runtime."""

    net: nn.Module
    inputs: tuple[torch.Tensor, ...]
    model: Model
    lowered: Lowered

    def runner(self) -> Runner:
        return RUNTIME.load(self.lowered.path, self.model.signature)

    def run(self, *inputs: torch.Tensor) -> list[np.ndarray]:
        return self.runner().run([t.numpy() for t in inputs or self.inputs])

    def error(self, *inputs: torch.Tensor) -> float:
        """Largest absolute difference from the net over all outputs; infinite when shapes or dtypes differ."""
        with torch.no_grad():
            wanted = flat(copy.deepcopy(self.net)(*(inputs or self.inputs)))
        return max(difference(got, want) for got, want in zip(self.run(*inputs), wanted, strict=True))


def difference(got: np.ndarray, wanted: torch.Tensor) -> float:
    expected = wanted.detach().numpy()
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return float("inf")
    return float(np.abs(got.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0))


def flat(value: Any) -> list[torch.Tensor]:
    return [t for v in value for t in flat(v)] if isinstance(value, list | tuple) else [value]


def model_of(
    net: nn.Module, inputs: Sequence[Any], dynamic: Any = None, dims: Sequence[tuple[Size, ...]] | None = None
) -> Model:
    """Export the net as an importer would; ``dims`` gives the signature's sizes where they are dynamic."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net.eval(), tuple(inputs), dynamic_shapes=dynamic)
        outputs = flat(copy.deepcopy(net)(*inputs))  # a run would change the state that the program shares
    shapes = dims or [tuple(getattr(t, "shape", ())) for t in inputs]
    return Model(
        source=Source("net", "exported_program"),
        signature=Signature(
            tuple(TensorSpec(f"x{i}", kind(t), tuple(s)) for i, (t, s) in enumerate(zip(inputs, shapes, strict=True))),
            tuple(TensorSpec(f"y{i}", kind(t), tuple(getattr(t, "shape", ()))) for i, t in enumerate(outputs)),
        ),
        program=program,
    )


def kind(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else "float32"


def build(
    net: nn.Module | Callable[..., Any],
    inputs: Sequence[Any],
    folder: Path,
    config: LowerConfig | None = None,
    **more: Any,
) -> Built:
    """Export, lower and wrap up."""
    module = net if isinstance(net, nn.Module) else Calls(net)
    model = model_of(module, inputs, **more)
    return Built(module, tuple(inputs), model, RUNTIME.lower(model, config or LowerConfig(), folder / "net.pte"))


__all__ = [
    "RUNTIME",
    "Attention",
    "Built",
    "Calls",
    "Dim",
    "TinyCnn",
    "build",
    "difference",
    "flat",
    "model_of",
    "nets",
]
