"""Runs an :class:`ImageSpec` on a picture; the spec's module defines the steps."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from edgesdk.errors import InputError
from edgesdk.preprocess import _pixels, _resample
from edgesdk.preprocess._geometry import Plan, plan

if TYPE_CHECKING:
    from PIL import Image

    from edgesdk.preprocess._image import ImageSpec

# Above this many pixels the resized picture isn't built as a whole when only a window of it is kept (50 MB of RGB).
_WHOLE = 2**24
# Pillow's own limit for decoded files; a result above it is a slip, not a picture.
_MOST = 2**28


def apply(spec: ImageSpec, data: Any) -> np.ndarray:
    """See ``ImageSpec.apply``."""
    samples = pixels(spec, data)
    if spec.dtype != "uint8":
        lookup = table(spec)
        samples = np.stack([lookup[c][samples[:, :, c]] for c in range(spec.channels)], axis=-1)
    tensor = samples[None] if spec.layout == "nhwc" else samples.transpose(2, 0, 1)[None]
    return np.ascontiguousarray(tensor)


def table(spec: ImageSpec) -> np.ndarray:
    """See ``ImageSpec.table``."""
    return _table(spec.scale, spec.mean, spec.std, spec.dtype)


@lru_cache(maxsize=16)
def _table(scale: float, mean: tuple[float, ...], std: tuple[float, ...], dtype: str) -> np.ndarray:
    scaled = np.arange(256, dtype=np.float64) * scale
    values = (scaled[None] - np.array(mean)[:, None]) / np.array(std)[:, None]
    numbers: np.ndarray = values.astype(dtype)
    numbers.setflags(write=False)
    return numbers


def pixels(spec: ImageSpec, data: Any) -> np.ndarray:
    """See ``ImageSpec.pixels``."""
    image = _pixels.load(data, spec.background)
    how = plan(spec, image.height, image.width)
    if how.canvas[0] * how.canvas[1] > _MOST:
        raise InputError(
            "image_unreadable", f"A picture of {image.width} × {image.height} would become {how.canvas[1]} × {how.canvas[0]}.",
            why="Its sides differ too much for a resize that keeps them in proportion.",
            fix="Give --image, so that the picture is cropped, or --resize stretch.",
        )  # fmt: skip
    window = _window(spec, image, how)
    if window.shape[:2] == how.canvas:
        return np.ascontiguousarray(window)
    canvas = np.empty((*how.canvas, spec.channels), np.uint8)
    canvas[:] = _pixels.recolored(spec.fill, spec.color)
    top, left = how.target
    canvas[top : top + how.window[0], left : left + how.window[1]] = window
    return canvas


def _window(spec: ImageSpec, image: Image.Image, how: Plan) -> np.ndarray:
    """The part of the resized picture that is kept: uint8 [h, w, C].

    Grey is made before resizing (step 3 comes before step 4); the order of channels may change after it.
    """
    name = spec.resize.interpolation if spec.resize else "nearest"
    largest = max(how.resized[0], image.height) * how.resized[1]
    if largest > _WHOLE and how.resized != (image.height, image.width):
        return _resample.window(_pixels.recolor(image, spec.color), how.resized, how.source, how.window, name)
    base = image.convert("L") if spec.color == "gray" else image
    grown = _resample.with_pillow(base, how.resized, name)
    (top, left), (rows, columns) = how.source, how.window
    cut = np.asarray(grown)[top : top + rows, left : left + columns]
    if spec.color == "gray":
        return cut[:, :, None]
    return cut[:, :, ::-1] if spec.color == "bgr" else cut
