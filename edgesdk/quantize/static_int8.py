"""Static int8: weights and activations, with activation ranges measured on calibration samples.

Affine quantization as in Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference" (CVPR 2018): weights symmetric, one scale for each output channel; activations with one scale and zero point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from edgesdk.quantize._base import Scheme


@dataclass(frozen=True)
class StaticInt8(Scheme):
    """Settings of static int8.

    Attributes:
        per_channel: a scale for each output channel of a weight; one for the whole weight ruins depthwise convolutions.
        observer: ``histogram`` searches the range with the least squared error, ``minmax`` takes the extremes.
        samples: calibration samples to use at most; beyond some hundreds ranges hardly move.
    """

    name: ClassVar[str] = "static-int8"
    title: ClassVar[str] = "weights and activations in int8; ranges from calibration samples"
    calibrated: ClassVar[bool] = True
    cost: ClassVar[int] = 4

    per_channel: bool = True
    observer: Literal["histogram", "minmax"] = "histogram"
    samples: int = 256


SCHEME = StaticInt8()
