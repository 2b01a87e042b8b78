"""Preprocessing written a second time, from the text of the specification alone: whole numbers, loops, no Pillow.

It shares no line with ``edgesdk.preprocess``: what both give is what Java and Swift must give.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

Document = dict[str, Any]


def rounded(value: Fraction, how: str) -> int:
    return math.floor(value) if how == "floor" else round(value)  # Python rounds halves of fractions to even


def div255(x: int) -> int:
    return (x + 128 + ((x + 128) >> 8)) >> 8


def to_rgb(mode: str, samples: np.ndarray, background: list[int]) -> np.ndarray:
    out = np.zeros((*samples.shape[:2], 3), np.int64)
    for y in range(samples.shape[0]):
        for x in range(samples.shape[1]):
            s = [int(v) for v in np.atleast_1d(samples[y, x])]
            if mode in ("L", "LA", "I;16"):
                color = [s[0] >> 8 if mode == "I;16" else s[0]] * 3
            elif mode == "CMYK":
                key = 255 - s[3]
                color = [max(0, key - div255(ink * key)) for ink in s[:3]]
            else:
                color = s[:3]
            if mode in ("LA", "RGBA"):
                color = [div255(c * s[-1] + b * (255 - s[-1])) for c, b in zip(color, background, strict=True)]
            out[y, x] = color
    return out


def upright(pixels: np.ndarray, tag: int) -> np.ndarray:
    if tag >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if tag in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if tag in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def ordered(pixels: np.ndarray, color: str) -> np.ndarray:
    if color == "gray":
        return (19595 * pixels[..., :1] + 38470 * pixels[..., 1:2] + 7471 * pixels[..., 2:] + 32768) >> 16
    return pixels[..., ::-1] if color == "bgr" else pixels


def size_of(resize: Document | None, h: int, w: int) -> tuple[int, int]:
    if resize is None:
        return h, w
    height, width = resize["size"]
    if resize["mode"] == "stretch":
        return height, width
    ratios = Fraction(height, h), Fraction(width, w)
    if resize["mode"] == "shorter":
        ratio = max(ratios)
        sizes = rounded(h * ratio, resize["rounding"]), rounded(w * ratio, resize["rounding"])
    else:
        ratio = min(ratios)
        sizes = max(1, rounded(h * ratio, "half_even")), max(1, rounded(w * ratio, "half_even"))
    return sizes


def kernel(name: str, t: float) -> float:
    a = abs(t)
    if name == "box":
        return float(-0.5 < t <= 0.5)
    if name == "bilinear":
        return max(0.0, 1 - a)
    if name == "lanczos":
        if not -3 <= t < 3:
            return 0.0
        if t == 0:
            return 1.0
        return (math.sin(t * math.pi) / (t * math.pi)) * (math.sin(t / 3 * math.pi) / (t / 3 * math.pi))
    if a < 1:
        return (1.5 * a - 2.5) * a * a + 1
    return (((a - 5) * a + 8) * a - 4) * -0.5 if a < 2 else 0.0


def rows(pixels: np.ndarray, m: int, name: str) -> np.ndarray:
    """The first axis resized to m, as one matrix of whole numbers."""
    n = len(pixels)
    if n == m:
        return pixels
    if name == "nearest":
        at, picked = n / m * 0.5, []
        for _ in range(m):
            picked.append(int(at))
            at += n / m
        return pixels[picked]
    matrix = np.zeros((m, n), np.int64)
    scale = n / m
    wide = max(1.0, scale)
    reach = {"box": 0.5, "bilinear": 1, "bicubic": 2, "lanczos": 3}[name] * wide
    for x in range(m):
        centre = (x + 0.5) * scale
        first, last = max(0, int(centre - reach + 0.5)), min(n, int(centre + reach + 0.5))
        raw = [kernel(name, (i - centre + 0.5) * (1.0 / wide)) for i in range(first, last)]
        total = 0.0
        for w in raw:
            total += w
        for i, w in enumerate(raw):
            scaled = (w / total if total else w) * 2**22
            matrix[x, first + i] = int(scaled + (0.5 if scaled >= 0 else -0.5))
    flat = matrix @ pixels.reshape(n, -1)
    return np.clip((flat + 2**21) >> 22, 0, 255).reshape(m, *pixels.shape[1:])


def pixels(case: Document, samples: np.ndarray) -> np.ndarray:
    """Steps 1–5 of a golden case."""
    spec = case["spec"]
    color = spec["color"]
    picture = ordered(upright(to_rgb(case["mode"], samples, spec["background"]), case["orientation"]), color)
    resize = spec["resize"]
    height, width = size_of(resize, *picture.shape[:2])
    if resize:
        dropped = picture.shape[0] - height, picture.shape[1] - width
        axes = (0, 1) if dropped[0] > 0 and dropped[0] > 2 * dropped[1] else (1, 0)
        for axis in axes:
            turned = picture.swapaxes(0, axis)
            picture = rows(turned, (height, width)[axis], resize["interpolation"]).swapaxes(0, axis)
    fill = ordered(np.array(spec["fill"], np.int64)[None, None], color)[0, 0]
    if resize and resize["mode"] == "letterbox":
        tall, wide = resize["size"]
        top, left = ((tall - height) // 2, (wide - width) // 2) if spec["align"] == "center" else (0, 0)
        picture = placed(picture, (tall, wide), (top, left), fill)
    if spec["crop"]:
        tall, wide = spec["crop"]["size"]
        starts = [
            (want - have) // 2 if want > have else -rounded(Fraction(have - want, 2), spec["crop"]["rounding"])
            for want, have in ((tall, picture.shape[0]), (wide, picture.shape[1]))
        ]
        picture = placed(picture, (tall, wide), (starts[0], starts[1]), fill)
    return picture.astype(np.uint8)


def placed(picture: np.ndarray, size: tuple[int, int], at: tuple[int, int], fill: np.ndarray) -> np.ndarray:
    out = np.tile(fill, (*size, 1))
    for y in range(size[0]):
        for x in range(size[1]):
            source = y - at[0], x - at[1]
            if 0 <= source[0] < picture.shape[0] and 0 <= source[1] < picture.shape[1]:
                out[y, x] = picture[source]
    return out


def tensor(spec: Document, samples: np.ndarray) -> np.ndarray:
    """Steps 6 and 7."""
    if spec["dtype"] == "uint8":
        values = samples
    else:
        columns = [
            (samples[..., c].astype(np.float64) * spec["scale"] - spec["mean"][c]) / spec["std"][c]
            for c in range(samples.shape[2])
        ]
        values = np.stack(columns, axis=-1).astype(spec["dtype"])
    return values[None] if spec["layout"] == "nhwc" else values.transpose(2, 0, 1)[None]
