"""Step 4 and 5, the sizes: which size the picture gets, and which window of it is the result.

All in whole numbers, so that every language rounds alike. With a picture of h × w and ``size`` (H, W):

- ``shorter``: the picture covers (H, W). If ``h·W <= w·H`` the height decides: h' = H and w' = ⌊w·H/h⌋, else
  w' = W and h' = ⌊h·W/w⌋. With rounding ``half_even`` the quotient is rounded to nearest, halves to even.
- ``stretch``: (H, W).
- ``letterbox``: the picture fits inside. If ``h·W <= w·H`` the width decides: w' = W and h' = h·W/w, else h' = H and
  w' = w·H/h; rounded to nearest, halves to even, at least 1. The rest is filled: with ``align`` ``center`` the
  margin before is ⌊rest/2⌋, with ``top_left`` it is 0.
- crop of c out of n: n > c: starts at (n-c)/2, rounded as ``crop.rounding`` says. n < c: ⌊(c-n)/2⌋ of fill before,
  the rest after.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgesdk.preprocess._image import ImageSpec, Resize, Rounding


@dataclass(frozen=True)
class Plan:
    """Sizes are (height, width).

    The picture is resized to ``resized``; its window from ``source`` of size ``window`` is copied to ``target`` in a
    canvas of size ``canvas`` filled with the fill colour.
    """

    resized: tuple[int, int]
    source: tuple[int, int]
    window: tuple[int, int]
    target: tuple[int, int]
    canvas: tuple[int, int]


def plan(spec: ImageSpec, height: int, width: int) -> Plan:
    """The plan for a picture of that size, after orientation."""
    resized = resized_size(spec.resize, height, width)
    boxed = spec.resize.size if spec.resize and spec.resize.mode == "letterbox" else resized
    rows = _axis(spec, resized[0], boxed[0], 0)
    columns = _axis(spec, resized[1], boxed[1], 1)
    pairs = list(zip(rows, columns, strict=True))
    return Plan(resized, *pairs)


def resized_size(resize: Resize | None, height: int, width: int) -> tuple[int, int]:
    """The picture's own (height, width) after step 4, letterbox margins not included."""
    if resize is None:
        return height, width
    target_h, target_w = resize.size
    by_height = height * target_w <= width * target_h
    if resize.mode == "stretch":
        return resize.size
    if resize.mode == "shorter":
        if by_height:
            return target_h, divide(width * target_h, height, resize.rounding)
        return divide(height * target_w, width, resize.rounding), target_w
    if by_height:
        return max(1, divide(height * target_w, width, "half_even")), target_w
    return target_h, max(1, divide(width * target_h, height, "half_even"))


def divide(numerator: int, denominator: int, rounding: Rounding) -> int:
    """Whole-number division, cut or rounded to nearest with halves to even."""
    quotient, rest = divmod(numerator, denominator)
    if rounding == "floor" or 2 * rest < denominator:
        return quotient
    return quotient + (1 if 2 * rest > denominator else quotient % 2)


def _axis(spec: ImageSpec, size: int, boxed: int, axis: int) -> tuple[int, int, int, int]:
    """Start in the resized picture, length of the window, start on the canvas, length of the canvas."""
    before = (boxed - size) // 2 if spec.align == "center" else 0
    if spec.crop is None:
        return 0, size, before, boxed
    cropped = spec.crop.size[axis]
    rest = boxed - cropped
    shift = -rest // 2 if rest < 0 else -divide(rest, 2, spec.crop.rounding)
    # The picture lies at before + shift on the cropped canvas; what sticks out at either end is cut off.
    start = before + shift
    low, high = max(0, start), min(cropped, start + size)
    return low - start, max(0, high - low), low, cropped
