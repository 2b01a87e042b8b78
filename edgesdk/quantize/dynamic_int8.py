"""Dynamic int8: int8 weights; activations are quantized on the fly, with the range of the tensor at hand.

For linear and recurrent layers, whose time is spent on reading weights. Convolutions stay float: runtimes lack kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgesdk.quantize._base import Scheme


@dataclass(frozen=True)
class DynamicInt8(Scheme):
    """Settings of dynamic int8.

    Attributes:
        per_channel: a scale for each output channel of a weight.
    """

    name: ClassVar[str] = "dynamic-int8"
    title: ClassVar[str] = "int8 weights, activations quantized on the fly; for linear and recurrent layers"
    cost: ClassVar[int] = 2

    per_channel: bool = True


SCHEME = DynamicInt8()
