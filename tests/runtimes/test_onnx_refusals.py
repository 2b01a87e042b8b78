"""Operators that ONNX has no form for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgesdk.errors import UnsupportedError
from tests.runtimes import graphs


def test_an_lstm_with_a_projection_is_refused_with_its_name(tmp_path: Path) -> None:
    """It used to be written as a plain LSTM, and ONNX Runtime then failed on every input."""

    class Projected(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 8, proj_size=3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]

    with pytest.raises(UnsupportedError, match=r"lstm\.input with proj_size") as caught:
        graphs.lowered("onnx", graphs.model_of(Projected().eval(), (torch.zeros(1, 5, 4),)), tmp_path)
    assert caught.value.exit == 4 and "no projection" in caught.value.why
