"""Affine quantization of arrays: scales, zero points, integers. Jacob et al., CVPR 2018."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

LOW, HIGH = 0, 255
"""Activations are uint8 …"""
WEIGHT = 127
"""… and weights int8 in ±127."""
_BIAS_LIMIT = 2**30
"""Biases are added to sums in 32 bits; half of the range is left to the sums."""


@dataclass(frozen=True)
class Params:
    """``real = scale * (integer - zero)`` with a uint8 integer."""

    scale: float
    zero: int

    @property
    def low(self) -> float:
        return self.scale * (LOW - self.zero)

    @property
    def high(self) -> float:
        return self.scale * (HIGH - self.zero)


def affine(low: float, high: float) -> Params:
    """For values from ``low`` to ``high``; zero is always representable (padding is zero, and so are dead units)."""
    import numpy as np

    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32(max((high - low) / (HIGH - LOW), 1e-30)))
    return Params(scale, int(np.clip(round(LOW - low / scale), LOW, HIGH)))


def symmetric(weight: Array, axes: tuple[int, ...], least: Array | None = None) -> tuple[Array, Array]:
    """Weights as int8 in ±127 with one scale for each index along ``axes``.

    Args:
        least: smallest scales to take, of the shape of the scales.

    Returns:
        the integers, and the scales with the weight's rank (size 1 along the other axes).
    """
    import numpy as np

    others = tuple(a for a in range(weight.ndim) if a not in axes)
    largest = np.abs(weight).max(axis=others, keepdims=True) if others else np.abs(weight)
    scale = (largest / WEIGHT).astype(np.float32)
    if least is not None:
        scale = np.maximum(scale, least.reshape(scale.shape).astype(np.float32))
    alive = scale[scale > np.finfo(np.float32).tiny]
    scale = np.where(scale > np.finfo(np.float32).tiny, scale, alive.min() if alive.size else 1.0).astype(np.float32)
    return np.clip(np.round(weight / scale), -WEIGHT, WEIGHT).astype(np.int8), scale


def least_for_bias(bias: Array, input_scale: float) -> Array:
    """Weight scales below which a bias in units of (input scale × weight scale) would leave 32 bits."""
    import numpy as np

    least: Array = (np.abs(bias) / (input_scale * _BIAS_LIMIT)).astype(np.float32)
    return least


def bias_integers(bias: Array, scale: Array) -> Array:
    import numpy as np

    whole = np.round(bias.astype(np.float64) / scale.astype(np.float64))
    return np.clip(whole, -(2**31 - 1), 2**31 - 1).astype(np.int32)
