"""Small seeded networks for ``make_lite.py``, as ``file.py:factory`` for the workers that export them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Kinds(nn.Module):
    """Outputs of every dtype that PyTorch Mobile's Java library has."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor, ids: Tensor) -> dict[str, Tensor]:
        y = self.head(x)
        return {
            "scores": y, "best": y.argmax(dim=1), "double": y.to(torch.float64),
            "byte": (y.sigmoid() * 255).to(torch.uint8), "next": ids + 1,
            "sign": (ids.clamp(-50, 50) * 2).to(torch.int8),
        }  # fmt: skip


class Turned(nn.Module):
    """Outputs whose memory is in channels-last order: of 4 and of 5 axes, and one that is the same in both."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        turned = x.permute(0, 3, 1, 2)
        deep = torch.stack([x, x * 2], dim=1).to(torch.int32).permute(0, 4, 1, 2, 3)
        return turned, deep, turned[:, :1]


def kinds() -> nn.Module:
    torch.manual_seed(11)
    return Kinds().eval()


def turned() -> nn.Module:
    return Turned()
