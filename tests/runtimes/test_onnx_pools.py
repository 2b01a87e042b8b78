"""Average pools with a divisor of their own, which torch's exporters leave out without a word."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgesdk.errors import UnsupportedError
from tests.runtimes import graphs


class Pools(torch.nn.Module):
    def __init__(self, ceil: bool) -> None:
        super().__init__()
        self.flat = torch.nn.AvgPool2d(2, ceil_mode=ceil, divisor_override=3)
        self.wide = torch.nn.AvgPool2d((2, 3), 1, 1, divisor_override=5)
        self.deep = torch.nn.AvgPool3d(2, 1, divisor_override=7)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.flat(x), self.wide(x), self.deep(x)


def test_they_divide_by_it(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 7, 7)
    model = graphs.model_of(Pools(False), (x,), [{0: graphs.BATCH}])
    _, runner = graphs.lowered("onnx", model, tmp_path)
    assert graphs.difference(runner, Pools(False), (torch.randn(3, 3, 7, 7),)) < 1e-5


def test_rounded_up_they_are_refused(tmp_path: Path) -> None:
    model = graphs.model_of(Pools(True), (torch.randn(2, 3, 7, 7),))
    with pytest.raises(UnsupportedError, match="divisor_override"):
        graphs.lowered("onnx", model, tmp_path)


@pytest.mark.parametrize("runtime", ["executorch", "torchscript"])
def test_the_other_runtimes_know_them(runtime: str, tmp_path: Path) -> None:
    x = torch.randn(1, 3, 7, 7)
    _, runner = graphs.lowered(runtime, graphs.model_of(Pools(True).eval().wide, (x,)), tmp_path)
    assert graphs.difference(runner, Pools(True).wide, (x,)) < 1e-5
