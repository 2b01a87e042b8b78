"""Weight-only int8: a quarter of the size, float arithmetic; needs no samples and loses next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgesdk.quantize._base import Scheme


@dataclass(frozen=True)
class WeightInt8(Scheme):
    """Weight-only int8, symmetric, a scale for each output channel."""

    name: ClassVar[str] = "weight-int8"
    title: ClassVar[str] = "int8 weights, float arithmetic; small, not faster"
    cost: ClassVar[int] = 1


SCHEME = WeightInt8()
