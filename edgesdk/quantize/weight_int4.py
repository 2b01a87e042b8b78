"""Weight-only int4 in groups: an eighth of the size of the linear layers.

ONNX Runtime computes in float (MatMulNBits); ExecuTorch's XNNPACK quantizes the activations to int8 on the fly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgesdk.quantize._base import Scheme


@dataclass(frozen=True)
class WeightInt4(Scheme):
    """Settings of grouped int4.

    Attributes:
        group_size: weights along the input that share a scale; a multiple of 32 (torchao's and ONNX Runtime's kernels).
    """

    name: ClassVar[str] = "weight-int4"
    title: ClassVar[str] = "int4 weights in groups; for large linear layers"
    weight_bits: ClassVar[int] = 4
    cost: ClassVar[int] = 3

    group_size: int = 32


SCHEME = WeightInt4()
