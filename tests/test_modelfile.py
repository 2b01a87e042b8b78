"""A model on its way between workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from edgesdk import modelfile
from tests.runtimes.executorch_nets import model_of


class Unused(torch.nn.Module):
    """Holds a tensor without elements, as ONNX's Resize does with its region of interest."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.roi = torch.nn.Parameter(torch.from_numpy(np.zeros(3, np.float32)[:0]), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + self.roi.sum()


def test_a_tensor_without_elements_travels_with_its_model(tmp_path: Path) -> None:
    x = torch.randn(1, 4)
    model = model_of(Unused().eval(), (x,))
    assert model.program is not None
    wanted = model.program.module()(x)
    modelfile.save(model, tmp_path)
    again = modelfile.load(tmp_path).program
    assert again is not None and torch.equal(again.module()(x), wanted)
