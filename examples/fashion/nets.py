"""Two classifiers of ``[n, 1, 28, 28]``: a plain CNN, and one in the manner of MobileNetV3, which int8 finds harder.

Reference: Howard et al., "Searching for MobileNetV3", 2019 (inverted residuals, hard swish, squeeze and excitation).
"""

from __future__ import annotations

from torch import Tensor, nn


class Plain(nn.Sequential):
    """Two convolutions and two linear layers, 464,362 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(2352, 192), nn.ReLU(), nn.Linear(192, 10),
        )  # fmt: skip


def _conv(inner: int, outer: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outer),
    ]


class SqueezeExcite(nn.Module):
    """Scales each channel by what the mean of all channels says."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pool, self.act, self.gate = nn.AdaptiveAvgPool2d(1), nn.ReLU(), nn.Hardsigmoid()
        self.squeeze, self.excite = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.excite(self.act(self.squeeze(self.pool(x)))))


class InvertedResidual(nn.Module):
    """Widen, filter each channel by itself, excite, narrow; added to the input where the shapes agree."""

    def __init__(self, inner: int, wide: int, outer: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_conv(inner, wide), nn.Hardswish(),
            *_conv(wide, wide, kernel, stride, groups=wide), nn.Hardswish(),
            SqueezeExcite(wide), *_conv(wide, outer),
        )  # fmt: skip
        self.same = inner == outer and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.same else self.body(x)


class Depthwise(nn.Module):
    """A stem, four inverted residual blocks and a head, 55,268 parameters; every filter behind the stem is depthwise or 1 x 1."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_conv(1, 16, 3, 2), nn.Hardswish())
        self.blocks = nn.Sequential(
            InvertedResidual(16, 48, 24, 3, 2),
            InvertedResidual(24, 96, 24, 5, 1),
            InvertedResidual(24, 96, 40, 3, 1),
            InvertedResidual(40, 120, 40, 3, 1),
        )
        self.head = nn.Sequential(*_conv(40, 160), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classes = nn.Sequential(nn.Dropout(0.1), nn.Linear(160, 10))

    def forward(self, image: Tensor) -> Tensor:
        return self.classes(self.head(self.blocks(self.stem(image))))
