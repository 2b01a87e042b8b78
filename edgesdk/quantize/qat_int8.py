"""Quantization-aware training: some epochs with simulated int8 arithmetic before static int8.

The straight-through estimator of Bengio et al., "Estimating or Propagating Gradients Through Stochastic Neurons" (2013), as
in Jacob et al. (CVPR 2018). Ranges of activations are calibrated, not averaged, and the rate is a hundredth of what training
from scratch takes, as Wu et al. advise ("Integer Quantization for Deep Learning Inference", 2020). Batch normalization keeps
its statistics: a few epochs on a small set would spoil them. Labels alone would let the net learn that set by heart, so most
of the loss is the distance to the float net's own answers (Hinton et al., "Distilling the Knowledge in a Neural Network", 2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from edgesdk.quantize._base import Scheme


@dataclass(frozen=True)
class QatInt8(Scheme):
    """Settings of quantization-aware training.

    Attributes:
        epochs: passes over the calibration samples.
        learning_rate: of Adam at the start; it falls to zero along a half cosine.
        distill: share of the loss that is the distance to the float net's answers, 0…1; the labels have the rest.
        batch: samples of one step.
        per_channel, observer, samples: as in :class:`edgesdk.quantize.static_int8.StaticInt8`.
    """

    name: ClassVar[str] = "qat-int8"
    title: ClassVar[str] = "fine-tuned with simulated int8 on labelled samples, then static int8"
    calibrated: ClassVar[bool] = True
    labelled: ClassVar[bool] = True
    cost: ClassVar[int] = 5

    epochs: int = 3
    learning_rate: float = 1e-5
    distill: float = 0.9
    batch: int = 32
    per_channel: bool = True
    observer: Literal["histogram", "minmax"] = "histogram"
    samples: int = 20_000


SCHEME = QatInt8()
