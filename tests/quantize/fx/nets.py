"""Tiny networks, calibration samples on disk and what the quantized file answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgesdk.artifacts import Layer, Lowered, Model
from edgesdk.data._store import Sample, StoreWriter
from edgesdk.runtimes import LowerConfig, Runner, find
from tests.runtimes import graphs

torch.set_num_threads(1)
Feed = Sequence[np.ndarray]
RUNTIME = find("torchscript")


def samples(model: Model, make: Callable[[int], Feed], folder: Path, count: int = 32) -> Path:
    """A store of ``count`` samples; ``make`` gives the inputs of one."""
    with StoreWriter(folder) as writer:
        for i in range(count):
            feed = {s.name: a for s, a in zip(model.signature.inputs, make(i), strict=True)}
            writer.append(Sample(feed, None, f"sample {i}"))
    return folder


def noise(*shape: int) -> Callable[[int], Feed]:
    """Samples of normal noise, the same ones in every run."""
    return lambda i: [np.random.default_rng(i).standard_normal(shape, dtype=np.float32)]


def quantized(
    model: Model, scheme: str, folder: Path, calibration: Path | None = None, name: str = "small", **more: Any
) -> tuple[Lowered, Runner]:
    config = LowerConfig(quantization=scheme, calibration=calibration, **more)
    return graphs.lowered("torchscript", model, folder, config, name)


def snr(found: np.ndarray, exact: np.ndarray) -> float:
    """dB."""
    signal, error = np.square(exact, dtype=np.float64).sum(), np.square(found.astype(np.float64) - exact).sum()
    return float(10 * np.log10(signal / max(error, 1e-30)))


def worst(runner: Runner, model: Model, inputs: Feed) -> float:
    """dB of the worst output against the eager module."""
    assert model.module is not None
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(model.module(*(torch.from_numpy(a) for a in inputs)))
    found = runner.run(list(inputs))
    assert [f.shape for f in found] == [tuple(w.shape) for w in wanted]
    return min(snr(f, w.numpy()) for f, w in zip(found, wanted, strict=True))


def by_name(made: Lowered) -> dict[str, Layer]:
    return {layer.name: layer for layer in made.layers}


def operators(made: Lowered) -> dict[str, int]:
    from edgesdk.runtimes._ts_save import read_bytecode

    return dict(read_bytecode(made.path).operators)


class Small(torch.nn.Module):
    """Convolution, batch norm, ReLU6, a depthwise convolution with uneven channels, a residual, pooling, linear."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        nn = torch.nn
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.head = nn.Linear(16, 200)
        with torch.no_grad():
            self.depthwise.weight *= torch.logspace(-2, 1, 16).reshape(-1, 1, 1, 1)
            self.depthwise.bias.zero_()
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.relu6(self.norm(self.conv(x)))
        y = self.depthwise(y) + y
        return self.head(y.mean((2, 3)).relu())


class One(torch.nn.Module):
    """One layer."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x)
        return found


def small_model() -> Model:
    return graphs.model_of(Small(), (torch.randn(2, 3, 8, 8),), [{0: graphs.BATCH}])


def of(net: torch.nn.Module, *example: torch.Tensor) -> Model:
    """A model whose first dimension is dynamic in every input."""
    return graphs.model_of(net, example, [{0: graphs.BATCH}] * len(example))
