"""int8 after training with simulated int8, in TorchScript Lite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgesdk.data._store import Sample, StoreWriter
from tests.quantize.fx import nets


class Sign(torch.nn.Module):
    """Tells whether the first channel is brighter than the second."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        nn = torch.nn
        self.conv, self.norm, self.head = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Linear(16 * 16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.norm(self.conv(x)).relu().flatten(1))
        return found


@pytest.mark.slow
def test_trained_weights_go_into_an_int8_file(tmp_path: Path) -> None:
    model = nets.of(Sign(), torch.randn(2, 3, 6, 6))
    rng = np.random.default_rng(0)
    data = rng.standard_normal((256, 1, 3, 6, 6), dtype=np.float32)
    labels = (data[:, 0, 0].mean((1, 2)) > data[:, 0, 1].mean((1, 2))).astype(np.int64)
    data[:, 0, 0] += 0.5 * (2 * labels - 1)[:, None, None]
    with StoreWriter(tmp_path / "s") as writer:
        for i in range(192):
            writer.append(Sample({"in_0": data[i]}, labels[i : i + 1], str(i)))
    options = {"epochs": 4, "learning_rate": 3e-3, "distill": 0.0}
    made, runner = nets.quantized(model, "qat-int8", tmp_path, tmp_path / "s", options=options)
    right = np.mean([runner.run([data[i]])[0].argmax() == labels[i] for i in range(192, 256)])
    assert right > 0.85  # untrained: a coin
    assert {n: x.precision for n, x in nets.by_name(made).items()} == {"conv": "int8", "head": "int8"}
    assert "qat_stages" in {w.code for w in made.warnings}
    kept, _ = nets.quantized(model, "qat-int8", tmp_path, tmp_path / "s", "kept", options=options, keep_float=("head",))
    assert nets.by_name(kept)["head"].precision == "float32"
