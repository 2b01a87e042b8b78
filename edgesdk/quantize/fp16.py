"""Half precision: weights and, where the runtime computes in it, activations in IEEE 754 binary16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgesdk.quantize._base import Scheme


@dataclass(frozen=True)
class Fp16(Scheme):
    """Half precision; ``edgesdk.runtimes._fp16`` and the runtimes carry it out."""

    name: ClassVar[str] = "fp16"
    title: ClassVar[str] = "half precision"
    weight_bits: ClassVar[int] = 16
    cost: ClassVar[int] = 0


SCHEME = Fp16()
