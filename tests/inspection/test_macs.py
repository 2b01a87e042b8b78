"""Multiply-accumulates against counts by hand and against torch's own counter of floating-point operations."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from edgesdk.inspection.macs import count, macs_by_node


class Call(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)  # type: ignore[operator,no-any-return]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.LSTM(6, 10, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)[0]  # type: ignore[no-any-return]


def r(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes)


CASES = {
    "conv2d": (nn.Conv2d(3, 8, 3, padding=1), (r(2, 3, 10, 12),), 2 * 10 * 12 * 8 * 27),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8), (r(1, 8, 10, 10),), 8 * 8 * 8 * 9),
    "strided": (nn.Conv2d(4, 6, 5, stride=2), (r(1, 4, 11, 11),), 4 * 4 * 6 * 100),
    "dilated_text_padding": (nn.Conv2d(4, 6, 3, padding="same", dilation=2), (r(1, 4, 9, 9),), 81 * 6 * 36),
    "conv1d": (nn.Conv1d(4, 6, 3), (r(1, 4, 10),), 8 * 6 * 12),
    "conv3d": (nn.Conv3d(2, 3, 2), (r(1, 2, 4, 4, 4),), 27 * 3 * 16),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2), (r(1, 4, 5, 5),), 25 * 4 * 6 * 9),
    "linear": (nn.Linear(7, 5), (r(2, 3, 7),), 6 * 35),
    "matmul": (Call(torch.matmul), (r(2, 3, 4), r(2, 4, 5)), 2 * 3 * 4 * 5),
    "matmul_broadcast": (Call(torch.matmul), (r(6, 3, 4), r(4, 5)), 6 * 3 * 4 * 5),
    "addmm": (Call(torch.addmm), (r(5), r(3, 4), r(4, 5)), 3 * 4 * 5),
    "mv": (Call(torch.mv), (r(3, 4), r(4)), 12),
    "einsum": (Call(lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b)), (r(2, 3, 4, 5), r(2, 3, 6, 5)), 6 * 4 * 6 * 5),
    "einsum_dots": (Call(lambda a, b: torch.einsum("...id,dj->...ij", a, b)), (r(2, 3, 4, 5), r(5, 6)), 6 * 4 * 5 * 6),
    "lstm": (Recurrent(), (r(3, 5, 6),), 3 * 5 * (40 * 6 + 40 * 10 + 40 * 10 + 40 * 10)),
    "nothing": (nn.ReLU(), (r(3),), 0),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("name", CASES)
def test_counts_by_hand(name: str) -> None:
    module, inputs, wanted = CASES[name]
    assert count(torch.export.export(module.eval(), inputs)) == wanted


def test_attention_counts_both_products() -> None:
    attend = Call(lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v))
    program = torch.export.export(attend, (r(1, 2, 5, 8), r(1, 2, 7, 8), r(1, 2, 7, 8)))
    assert count(program) == 2 * 5 * 7 * 8 * 2


def test_a_whole_network_equals_torchs_counter() -> None:
    from torchvision.models import mobilenet_v3_small

    net, x = mobilenet_v3_small(weights=None).eval(), r(1, 3, 64, 64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(x)
    assert 2 * count(torch.export.export(net, (x,))) == counter.get_total_flops()


def test_by_node_adds_up_and_survives_decomposition() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()
    program = torch.export.export(net, (r(1, 1, 8, 8),))
    found = macs_by_node(program)
    assert sum(found.values()) == count(program) == 36 * 4 * 9 + 4 * 36 * 3
    assert count(program.run_decompositions()) == count(program)


def test_a_dynamic_batch_counts_with_its_example() -> None:
    shapes = {"input": {0: torch.export.Dim("n", min=1, max=8)}}
    program = torch.export.export(nn.Linear(3, 2), (r(4, 3),), dynamic_shapes=shapes)
    assert count(program) == 4 * 6


def test_both_branches_count() -> None:
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, self.a, self.b, (x,))  # type: ignore[no-any-return]

    program = torch.export.export(Choice(), (r(2, 4),))
    assert count(program) == 2 * 2 * 16
    assert set(macs_by_node(program)) == {"true_graph_0.linear", "false_graph_0.linear"}
