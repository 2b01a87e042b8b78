"""From the options of the command line to an image spec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from edgesdk.errors import UsageError
from edgesdk.preprocess._image import Color, Crop, ImageSpec, Interpolation, Mode, Resize

# Grey bars of the letterbox, as the YOLO family trains with them.
_LETTERBOX_FILL = (114, 114, 114)


def from_options(
    image: int | tuple[int, int],
    resize: str = "shorter",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: str = "bilinear",
    channels: int = 3,
) -> ImageSpec:
    """An image spec of size ``image`` (a side, or height and width), from the values of the options.

    ``shorter`` makes the picture cover that size and keeps the centre; ``stretch`` and ``letterbox`` keep all of it.
    mean and std are on the 0…1 scale; without them the samples are only divided by 255. One number stands for all
    channels. ``channels`` 1 converts to grey.

    Raises:
        UsageError: a size below 1, an unknown word, counts that don't fit, std of zero, mean on the 0…255 scale.
    """
    if channels not in (1, 3):
        raise UsageError(
            "bad_preprocess", f"A picture can't be prepared for {channels} channels.",
            why="Pictures have 1 channel (grey) or 3 (red, green, blue).",
            fix="Leave --image out and feed the tensor yourself, or give --input the shape [1,3,H,W] or [1,1,H,W].",
        )  # fmt: skip
    size = (image, image) if isinstance(image, int) else (int(image[0]), int(image[1]))
    color: Color = "gray" if channels == 1 else "rgb"
    return ImageSpec(
        color=color,
        resize=Resize(cast(Mode, resize), size, cast(Interpolation, interpolation)),
        crop=Crop(size) if resize == "shorter" else None,
        fill=_LETTERBOX_FILL if resize == "letterbox" else (0, 0, 0),
        mean=_per_channel(mean, 0.0, channels, "mean"),
        std=_per_channel(std, 1.0, channels, "std"),
    )


def _per_channel(
    values: Sequence[float] | None, default: float, channels: int, name: Literal["mean", "std"]
) -> tuple[float, ...]:
    if values is None:
        return (default,) * channels
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in values):
        raise UsageError(
            "bad_preprocess", f"--{name} {values!r} holds something that is no number.",
            why="It is a list of numbers, one for each channel.", fix=f"Write it as --{name} 0.485,0.456,0.406.",
        )  # fmt: skip
    return tuple(float(v) for v in values) * (channels if len(values) == 1 else 1)
