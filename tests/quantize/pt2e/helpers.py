"""Small nets, samples on disk, and the way from both to figures of the lowered file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edgesdk.artifacts import Lowered, Model
from edgesdk.data import Sample, StoreWriter
from edgesdk.runtimes import LowerConfig
from tests.runtimes.executorch_nets import RUNTIME, flat, model_of


def store(folder: Path, feeds: Sequence[dict[str, np.ndarray]], labels: Sequence[Any] | None = None) -> Path:
    """Write samples; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with StoreWriter(folder) as writer:
        for i, feed in enumerate(feeds):
            writer.append(Sample(feed, None if labels is None else np.asarray(labels[i]), f"sample {i}"))
    return folder


def noise(shapes: Sequence[tuple[int, ...]], count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Feeds of normally distributed numbers for the inputs x0, x1…"""
    source = np.random.default_rng(seed)
    return [{f"x{k}": source.standard_normal(s).astype(np.float32) for k, s in enumerate(shapes)} for _ in range(count)]


def snr(got: np.ndarray, wanted: np.ndarray) -> float:
    """Signal-to-noise ratio in dB."""
    error = float(((got.astype(np.float64) - wanted) ** 2).sum())
    return float(10 * np.log10((wanted.astype(np.float64) ** 2).sum() / max(error, 1e-30)))


@dataclass(frozen=True)
class Case:
    """A net, lowered with a scheme from 16 samples of noise."""

    net: nn.Module
    model: Model
    lowered: Lowered
    shapes: tuple[tuple[int, ...], ...]

    def outputs(self, feeds: Sequence[dict[str, np.ndarray]] | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(of the file, of the net) for unseen samples."""
        runner = RUNTIME.load(self.lowered.path, self.model.signature)
        for feed in feeds or noise(self.shapes, 8, seed=1):
            with torch.no_grad():
                wanted = flat(self.net(*(torch.from_numpy(v) for v in feed.values())))[0].numpy()
            yield runner.run(list(feed.values()))[0], wanted

    def snr(self, feeds: Sequence[dict[str, np.ndarray]] | None = None) -> float:
        pairs = list(self.outputs(feeds))
        return snr(np.concatenate([g.ravel() for g, _ in pairs]), np.concatenate([w.ravel() for _, w in pairs]))

    @property
    def precisions(self) -> dict[str, str]:
        return {layer.name: layer.precision for layer in self.lowered.layers}

    @property
    def codes(self) -> list[str]:
        return [warn.code for warn in self.lowered.warnings]

    @property
    def size(self) -> int:
        return self.lowered.path.stat().st_size


def lower(
    net: nn.Module, inputs: Sequence[torch.Tensor], folder: Path, scheme: str, feeds: Any = None, **more: Any
) -> Case:
    """Export, calibrate on noise (or ``feeds``), lower. ``more`` goes into the LowerConfig, export options excepted."""
    export = {key: more.pop(key) for key in ("dynamic", "dims") if key in more}
    model = model_of(net, inputs, **export)
    shapes = tuple(tuple(t.shape) for t in inputs)
    data = store(folder / "calibration", noise(shapes, 16) if feeds is None else feeds)
    config = LowerConfig(quantization=scheme, calibration=data, **more)
    return Case(net, model, RUNTIME.lower(model, config, folder / f"{scheme}.pte"), shapes)
