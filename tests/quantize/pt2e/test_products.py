"""Products with a constant matrix are quantized as linear layers are, whoever wrote them and however."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from edgesdk.quantize._pt2e import _graph as graphs
from tests.quantize.pt2e.helpers import lower
from tests.runtimes.executorch_nets import model_of


class Products(nn.Module):
    """``MatMul`` as ONNX has it, GPT-2's ``Conv1D``, a matrix read twice, and a table that also gives the scores."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        draw = lambda *shape: nn.Parameter(torch.randn(shape) / shape[0] ** 0.5)  # noqa: E731
        self.plain, self.biased, self.twice = draw(64, 96), draw(96, 128), draw(128, 128)
        self.conv1d, self.table = draw(128, 160), draw(200, 160)
        self.register_buffer("fixed", torch.randn(160, 160) / 12)
        self.bias, self.shift = nn.Parameter(torch.randn(128)), nn.Parameter(torch.randn(160))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x @ self.plain) @ self.biased + self.bias
        y = torch.relu(self.twice_of(y))
        y = torch.addmm(self.shift, y.reshape(-1, 128), self.conv1d)
        return (y @ self.fixed) @ self.table.t() + self.table.sum(1)

    def twice_of(self, y: torch.Tensor) -> torch.Tensor:
        return (y @ self.twice).relu() @ self.twice


LAYERS = {"plain", "biased", "twice", "conv1d", "fixed", "table"}


def test_the_rewritten_net_answers_as_before_and_the_model_is_left_alone() -> None:
    net = Products().eval()
    model = model_of(net, (torch.randn(3, 64),))
    x = torch.randn(3, 64)
    before = model.program.module()(x)  # type: ignore[union-attr]
    module = graphs.module_of(model.program)  # type: ignore[arg-type]
    with torch.no_grad():
        torch.testing.assert_close(module(x), net(x), rtol=1e-5, atol=1e-5)
    assert not any("matmul" in str(n.target) or "addmm" in str(n.target) for n in module.graph.nodes)
    assert torch.equal(model.program.module()(x), before)  # type: ignore[union-attr]


@pytest.mark.parametrize(("scheme", "precision", "floor"), [
    ("static-int8", "int8", 20.0), ("dynamic-int8", "int8", 30.0), ("weight-int8", "int8", 36.0), ("weight-int4", "int4", 14.0),
])  # fmt: skip
@pytest.mark.slow
def test_every_matrix_is_quantized_under_its_own_name(
    scheme: str, precision: str, floor: float, tmp_path: Path
) -> None:
    case = lower(Products().eval(), (torch.randn(3, 64),), tmp_path, scheme)
    found = {name: kind for name, kind in case.precisions.items() if name in LAYERS}
    assert found == dict.fromkeys(LAYERS, precision)
    assert case.snr() > floor


@pytest.mark.slow
def test_a_layer_that_is_restored_stays_float(tmp_path: Path) -> None:
    case = lower(Products().eval(), (torch.randn(3, 64),), tmp_path, "static-int8", keep_float=("conv1d",))
    assert case.precisions["conv1d"] == "float32" and case.precisions["plain"] == "int8"
    assert case.lowered.delegated_fraction == 1.0


def test_a_matrix_that_the_net_also_reads_as_it_is_keeps_its_value(tmp_path: Path) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.w = nn.Parameter(torch.randn(64, 64) / 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.w + (x * self.w[0])

    net = Both().eval()
    module = graphs.module_of(model_of(net, (torch.randn(3, 64),)).program)  # type: ignore[arg-type]
    x = torch.randn(3, 64)
    with torch.no_grad():
        torch.testing.assert_close(module(x), net(x), rtol=1e-5, atol=1e-5)
    assert any("linear" in str(n.target) for n in module.graph.nodes)
