"""Small seeded networks for ``make_executorch.py``, as ``file.py:factory`` for the workers that export them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Counter(nn.Module):
    """Adds up what it is given, in a buffer that stays from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.sum.add_(x)
        return self.sum * 2


class Kinds(nn.Module):
    """Outputs of every dtype that has a reader in ExecuTorch's Java library."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor, ids: Tensor) -> dict[str, Tensor]:
        y = self.head(x)
        return {
            "scores": y, "best": y.argmax(dim=1), "half": y.to(torch.float16), "double": y.to(torch.float64),
            "byte": (y.sigmoid() * 255).to(torch.uint8), "next": ids + 1,
            "sign": (ids.clamp(-50, 50) * 2).to(torch.int8),
        }  # fmt: skip


class Flags(nn.Module):
    """An output of a dtype that has none."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 > 1


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids).mean(dim=1))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 4)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.head(torch.cat([a, b], dim=1)).relu()


class Sentence(nn.Module):
    """A BERT of 2 layers: words and a mask in, the mean over the mask out."""

    def __init__(self) -> None:
        from transformers import BertConfig, BertModel

        super().__init__()
        config = BertConfig(
            vocab_size=120, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=16, attn_implementation="eager",
        )  # fmt: skip
        self.body = BertModel(config, add_pooling_layer=False)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.body(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask[:, :, None].to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)


def _seeded(net: type[nn.Module]) -> nn.Module:
    torch.manual_seed(11)
    return net().eval()


def counter() -> nn.Module:
    return _seeded(Counter)


def kinds() -> nn.Module:
    return _seeded(Kinds)


def flags() -> nn.Module:
    return Flags()


def tokens() -> nn.Module:
    return _seeded(Tokens)


def pair() -> nn.Module:
    return _seeded(Pair)


def sentence() -> nn.Module:
    return _seeded(Sentence)


def picture() -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 6),
    ).eval()  # fmt: skip
