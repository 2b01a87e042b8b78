"""Step 4, the pixels: Pillow's convolution resampling of 8-bit samples, restated so that it can be ported.

For one axis from ``n`` to ``m`` samples (all in IEEE double precision, no fused operations)::

    scale = n / m;  width = max(scale, 1);  reach = support * width
    for each output x in 0…m-1:
        centre = (x + 0.5) * scale
        first  = max(0, int(centre - reach + 0.5));  last = min(n, int(centre + reach + 0.5))     # int() cuts
        w[i]   = filter((first + i - centre + 0.5) * (1 / width))   for i in 0 … last-first-1
        w[i]   = w[i] / sum(w)                                      # added in the order of i; left alone when 0
        k[i]   = int(w[i] * 2^22 + 0.5) if w[i] >= 0 else int(w[i] * 2^22 - 0.5)                  # 2^22: 32-8-2 bits
        out[x] = clamp((2^21 + sum(k[i] * in[first + i])) >> 22, 0, 255)      # 32-bit integers, arithmetic shift

Two passes, the result of the first rounded to 8 bits; an axis whose size stays is not touched. From (h, w) to (H, W)
the vertical pass comes first when ``H < h and h - H > 2 * (w - W)``, else the horizontal one. That is Pillow 13's rule
(python-pillow #9549); Pillow to 12 always goes horizontally first, which differs by the rounding between the passes.
So Pillow is asked for one axis at a time, and the result doesn't depend on its version.

Filters f(t), support: ``box`` 1 for -0.5 < t <= 0.5, 0.5 · ``bilinear`` 1-|t|, 1 · ``bicubic`` with a = -0.5:
``((a+2)|t| - (a+3))·t·t + 1`` for |t| < 1, ``(((|t|-5)·|t| + 8)·|t| - 4)·a`` for |t| < 2, support 2 · ``lanczos``
``sinc(t)·sinc(t/3)`` for -3 <= t < 3, sinc(t) = sin(πt)/(πt), support 3.

``nearest``: ``out[x] = in[int(p)]`` where p starts at ``scale / 2`` and grows by ``scale`` from output to output (a
running sum, whose rounding decides ties).

Source: libImaging/Resample.c and Geometry.c of Pillow 11–13; tests hold this text against Pillow bit for bit.
:func:`with_pillow` is what runs; :func:`window` takes over where Pillow would compute gigabytes that the crop throws
away (a strip of 1 × 5000 whose shorter side becomes 256).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

PRECISION_BITS = 32 - 8 - 2
_SUPPORT = {"box": 0.5, "bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}


def _sinc(t: float) -> float:
    return 1.0 if t == 0 else math.sin(t * math.pi) / (t * math.pi)


def _filter(name: str, t: float) -> float:
    near = abs(t)
    if name == "box":
        return 1.0 if -0.5 < t <= 0.5 else 0.0
    if name == "bilinear":
        return 1.0 - near if near < 1 else 0.0
    if name == "lanczos":
        return _sinc(t) * _sinc(t / 3) if -3 <= t < 3 else 0.0
    a = -0.5
    if near < 1:
        return ((a + 2.0) * near - (a + 3.0)) * near * near + 1
    return (((near - 5) * near + 8) * near - 4) * a if near < 2 else 0.0


def weights(name: str, n: int, m: int, x: int) -> tuple[int, list[int]]:
    """First input sample and the fixed-point weights of output ``x`` of an axis from ``n`` to ``m`` samples."""
    scale = n / m
    width = max(scale, 1.0)
    reach = _SUPPORT[name] * width
    centre = (x + 0.5) * scale
    first = max(0, int(centre - reach + 0.5))
    last = min(n, int(centre + reach + 0.5))
    raw = [_filter(name, (first + i - centre + 0.5) * (1.0 / width)) for i in range(last - first)]
    total = 0.0
    for w in raw:
        total += w
    unit = 1 << PRECISION_BITS
    fixed = (w / total if total != 0 else w for w in raw)
    return first, [int(w * unit + 0.5) if w >= 0 else int(w * unit - 0.5) for w in fixed]


def with_pillow(image: Image.Image, size: tuple[int, int], name: str) -> Image.Image:
    """``image`` (RGB or L) resized to ``size`` (height, width)."""
    from PIL import Image

    filter_ = Image.Resampling[name.upper()]
    first = (image.width, size[0]) if vertical_first((image.height, image.width), size) else (size[1], image.height)
    return image.resize(first, filter_).resize((size[1], size[0]), filter_)


def vertical_first(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Which pass comes first between two sizes (height, width)."""
    return after[0] < before[0] and before[0] - after[0] > 2 * (before[1] - after[1])


def window(
    pixels: np.ndarray, size: tuple[int, int], source: tuple[int, int], shape: tuple[int, int], name: str
) -> np.ndarray:
    """The window at ``source`` of ``shape`` (rows, columns) out of ``pixels`` resized to ``size``, and nothing more.

    Args:
        pixels: uint8 [H, W, C].

    Returns:
        uint8 [shape[0], shape[1], C], equal to cutting Pillow's result.
    """
    rows = range(source[0], source[0] + shape[0])
    columns = range(source[1], source[1] + shape[1])
    if vertical_first((pixels.shape[0], pixels.shape[1]), size):
        down = _axis(pixels, size[0], rows, name)
        return _axis(down.swapaxes(0, 1), size[1], columns, name).swapaxes(0, 1)
    across = _axis(pixels.swapaxes(0, 1), size[1], columns, name).swapaxes(0, 1)
    return _axis(across, size[0], rows, name)


def _axis(pixels: np.ndarray, m: int, wanted: range, name: str) -> np.ndarray:
    """The ``wanted`` outputs of the first axis resized to ``m``."""
    import numpy as np

    n = len(pixels)
    if n == m:
        return pixels[wanted.start : wanted.stop]
    out = np.empty((len(wanted), *pixels.shape[1:]), np.uint8)
    if name == "nearest":
        # cumsum adds one after the other, as the definition's running sum does.
        steps = np.full(m, n / m)
        steps[0] *= 0.5
        return np.asarray(pixels[np.cumsum(steps)[wanted.start : wanted.stop].astype(np.int64)])
    for i, x in enumerate(wanted):
        first, k = weights(name, n, m, x)
        total = np.tensordot(np.array(k, np.int64), pixels[first : first + len(k)].astype(np.int64), axes=1)
        out[i] = np.clip((total + (1 << (PRECISION_BITS - 1))) >> PRECISION_BITS, 0, 255)
    return out
