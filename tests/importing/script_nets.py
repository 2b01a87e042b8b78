"""Networks for torch.jit.script, which reads annotations itself and doesn't take them as strings."""
# ruff: noqa: UP006, UP035, UP045

from typing import Dict, List, Optional, Tuple

import torch
from torch import nn
from torch.nn import functional


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 4)


class Named(Linear):
    def forward(self, x: torch.Tensor) -> Dict[str, torch.Tensor]:
        y = self.layer(x)
        return {"zeta": y, "alpha": y + 1}


class Loops(Linear):
    def forward(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        y = x
        for i in range(x.shape[1]):
            y = y + x[:, i : i + 1]
        parts: List[torch.Tensor] = []
        for i in range(3):
            parts.append(y * i if i != 1 else y.relu())
        return torch.stack(parts), self.layer(y)


class ListInput(Linear):
    def forward(self, xs: List[torch.Tensor], twice: bool = True, times: int = 2) -> torch.Tensor:
        y = self.layer(xs[0]) + self.layer(xs[1]) * times
        return y * 2 if twice else y


class Text(Linear):
    def forward(self, words: List[str]) -> torch.Tensor:
        return self.layer(torch.full((len(words), 3), 1.0))


class OnData(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if bool(x.sum() > 0) else self.layer(x) * 2


class OnSize(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.shape[0] > 3 else self.layer(x) * 2


class Remembers(nn.Module):
    hidden: Optional[torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.GRUCell(3, 4)
        self.hidden = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.hidden
        if hidden is None:
            hidden = torch.zeros(x.shape[0], 4)
        hidden = self.cell(x, hidden)
        self.hidden = hidden
        return hidden


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.layer = nn.Embedding(9, 3), nn.LSTM(3, 4, batch_first=True, bidirectional=True)

    def forward(self, ids: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        y, (h, _) = self.layer(self.words(ids))
        return y, functional.dropout(h, 0.5, self.training)


class Dropping(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(self.layer(x), 0.5, True)


class Reckons(nn.Module):
    """Sizes multiplied, divided and turned back into numbers, as attention does; a trace keeps them in tensors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y, _ = self.attention(x, x, x)
        parts = x.reshape(x.shape[0] * x.shape[1], x.shape[2] // 2, 2)
        bigger = functional.interpolate(x[:, None], size=(x.shape[1] * 2, 5), mode="nearest")
        return y * x.shape[0], parts, bigger
