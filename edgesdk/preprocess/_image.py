"""Preprocessing of pictures.

The steps, always in this order; each is defined to the integer, so that all languages give equal tensors:

1.  **decode** to 8-bit RGB. 16-bit samples keep their high byte; palettes are looked up; CMYK becomes RGB by
    ``(255-c)·(255-k)/255`` rounded to nearest; alpha is flattened over ``background`` (``_pixels``).
2.  **orientation**: the EXIF tag 1…8 is applied, so a photo taken upright is upright.
3.  **colour order**: ``rgb``, ``bgr``, or ``gray`` = ``(19595 r + 38470 g + 7471 b + 32768) >> 16``.
4.  **resize** (``_geometry`` for the size, ``_resample`` for the pixels); None leaves the size.
5.  **crop** the centre; where the picture is smaller it is padded with ``fill``. None keeps all.
6.  **numbers**: ``float32((p · scale - mean[c]) / std[c])`` for each 8-bit sample p, computed in double precision in
    this order without fused operations and rounded once: a table of 256 values per channel.
    For dtype ``uint8`` the samples themselves.
7.  **layout**: ``nchw`` [1, C, H, W] or ``nhwc`` [1, H, W, C].

JSON (``version`` 1; every field is always written, so a reader needs no defaults)::

    {"kind": "image", "version": 1, "input": "pixels", "color": "rgb", "background": [255, 255, 255],
     "resize": {"mode": "shorter", "size": [256, 256], "interpolation": "bilinear", "antialias": true,
                "rounding": "floor"},
     "crop": {"size": [224, 224], "rounding": "half_even"}, "fill": [0, 0, 0], "align": "center",
     "scale": 0.00392156862745098, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
     "layout": "nchw", "dtype": "float32"}

Sizes are [height, width]; ``background`` and ``fill`` are RGB in 0…255 and go through step 3 like a picture's colours;
mean and std are in the order of ``color`` after step 3, on the scale that ``scale`` makes (0…1 for 1/255).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.errors import UnsupportedError, UsageError, nearest
from edgesdk.preprocess._spec import PreprocessSpec

if TYPE_CHECKING:
    import numpy as np

Color = Literal["rgb", "bgr", "gray"]
Mode = Literal["shorter", "stretch", "letterbox"]
Interpolation = Literal["bilinear", "bicubic", "nearest", "lanczos", "box"]
Rounding = Literal["floor", "half_even"]
Align = Literal["center", "top_left"]
Layout = Literal["nchw", "nhwc"]
PixelType = Literal["float32", "float16", "uint8"]

# Android and Core Image textures end near 16384; beyond that a size is a slip of the keyboard.
_MAX_SIDE = 16384


@dataclass(frozen=True)
class Resize:
    """How the size is changed.

    Attributes:
        mode: ``shorter`` keeps the proportions and covers ``size`` (for a square: the shorter side gets that length);
            ``stretch`` gives exactly ``size``; ``letterbox`` keeps the proportions, fits inside and fills the rest.
        size: (height, width).
        antialias: filters shrink with the picture as in Pillow; False samples the filter at its plain width, as
            torchvision's ``antialias=False``. Only True can be applied.
        rounding: of the covering side in mode ``shorter``: torchvision and transformers cut, timm rounds.
    """

    mode: Mode
    size: tuple[int, int]
    interpolation: Interpolation = "bilinear"
    antialias: bool = True
    rounding: Rounding = "floor"

    def __post_init__(self) -> None:
        one_of("resize", self.mode, Mode)
        one_of("interpolation", self.interpolation, Interpolation)
        one_of("rounding", self.rounding, Rounding)
        check_size("resize", self.size)
        if not self.antialias and self.interpolation != "nearest":
            raise UnsupportedError(
                "preprocess_unsupported", "Resizing without antialiasing isn't supported.",
                why="Its results differ from Pillow's, which all sides implement, and it loses accuracy.",
                fix="Resize with antialias=True (the default of torchvision, timm and transformers).",
            )  # fmt: skip


@dataclass(frozen=True)
class Crop:
    """The centre that is kept: ``size`` is (height, width).

    ``rounding`` decides on odd margins: ``half_even`` as torchvision and timm, ``floor`` as transformers.
    """

    size: tuple[int, int]
    rounding: Rounding = "half_even"

    def __post_init__(self) -> None:
        one_of("rounding", self.rounding, Rounding)
        check_size("crop", self.size)


@dataclass(frozen=True)
class ImageSpec(PreprocessSpec):
    """From a picture to ``[1, C, H, W]`` (or ``[1, H, W, C]``); the module's text defines every step.

    Raises:
        UsageError: a field has an impossible value (std of zero, mean on the 0…255 scale, counts that don't fit).
        UnsupportedError: a value that exists elsewhere but not here (no antialiasing).
    """

    kind: ClassVar[str] = "image"

    color: Color = "rgb"
    background: tuple[int, int, int] = (255, 255, 255)
    resize: Resize | None = None
    crop: Crop | None = None
    fill: tuple[int, int, int] = (0, 0, 0)
    align: Align = "center"
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    layout: Layout = "nchw"
    dtype: PixelType = "float32"

    def __post_init__(self) -> None:
        one_of("color", self.color, Color)
        one_of("align", self.align, Align)
        one_of("layout", self.layout, Layout)
        one_of("dtype", self.dtype, PixelType)
        _check_color("background", self.background)
        _check_color("fill", self.fill)
        _check_numbers(self)

    @property
    def channels(self) -> int:
        return 1 if self.color == "gray" else 3

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width) of every result; None when it depends on the picture."""
        if self.crop:
            return self.crop.size
        if self.resize and self.resize.mode != "shorter":
            return self.resize.size
        return None

    def apply(self, data: Any) -> np.ndarray:
        """The tensor of one picture.

        Args:
            data: a path, a ``PIL.Image``, or a uint8 array: [H, W, 3] RGB, [H, W, 4] with alpha, [H, W] grey.

        Returns:
            ``dtype`` [1, C, H, W], or [1, H, W, C] when the layout is ``nhwc``.

        Raises:
            InputError: the picture can't be read (``image_unreadable``).
        """
        from edgesdk.preprocess import _apply

        return _apply.apply(self, data)

    def pixels(self, data: Any) -> np.ndarray:
        """The same up to step 5: uint8 [H, W, C]."""
        from edgesdk.preprocess import _apply

        return _apply.pixels(self, data)

    def table(self) -> np.ndarray:
        """Step 6 as a table: float32 [C, 256]."""
        from edgesdk.preprocess import _apply

        return _apply.table(self)

    def fits(self, tensor: TensorSpec) -> str | None:
        if tensor.dtype != self.dtype:
            return f"The picture becomes {self.dtype}, but '{tensor.name}' takes {tensor.dtype}."
        if tensor.shape is None:
            return None
        if len(tensor.shape) != 4:
            return f"A picture has 4 dimensions ({self.layout.upper()}), but '{tensor.name}' has {len(tensor.shape)}."
        axis = self._misfit(tensor.shape)
        if axis is None:
            return None
        other: Layout = "nhwc" if self.layout == "nchw" else "nchw"
        swapped = replace(self, layout=other)._misfit(tensor.shape)
        hint = f" It would fit with the layout {other}." if swapped is None else ""
        name = self.layout[axis].upper()
        return (
            f"The picture has {_noun(name)} {_words(self._axes()[name])}, but '{tensor.name}' "
            f"({tensor.dtype}[{','.join(map(str, tensor.shape))}], read as {self.layout.upper()}) "
            f"takes {tensor.shape[axis]}.{hint}"
        )

    def _axes(self) -> dict[str, int | None]:
        height, width = self.size or (None, None)
        return {"N": 1, "C": self.channels, "H": height, "W": width}

    def _misfit(self, shape: tuple[int | Dim, ...]) -> int | None:
        """The first dimension that the picture can't have."""
        axes = self._axes()
        wrong = (i for i, name in enumerate(self.layout.upper()) if not _takes(shape[i], axes[name]))
        return next(wrong, None)

    def adapted(self, tensor: TensorSpec) -> ImageSpec:
        """The same treatment for a model that was given another size: crop and resize grow or shrink in proportion.

        Without a crop (segmentation, detection) the picture is stretched to the size, so that nothing of it is lost.
        """
        spatial = {"nchw": slice(2, 4), "nhwc": slice(1, 3)}[self.layout]
        dims = [d for d in (tensor.shape or ())[spatial] if isinstance(d, int)]
        if len(tensor.shape or ()) != 4 or len(dims) != 2 or self.size == tuple(dims):
            return self
        size = (dims[0], dims[1])
        if self.crop is None:
            resize = self.resize or Resize("stretch", size)
            mode: Mode = "stretch" if resize.mode == "shorter" else resize.mode
            return replace(self, resize=replace(resize, mode=mode, size=size))
        if self.resize is None:
            return replace(self, crop=replace(self.crop, size=size))
        grown = [max(n, r * n // c) for r, n, c in zip(self.resize.size, size, self.crop.size, strict=True)]
        return replace(
            self,
            resize=replace(self.resize, size=(grown[0], grown[1])),
            crop=replace(self.crop, size=size),
        )

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "version": 1, **_plain(asdict(self))}

    @staticmethod
    def read(document: Mapping[str, Any]) -> ImageSpec:
        """See :meth:`PreprocessSpec.from_json`, which translates the errors."""
        rest: dict[str, Any] = {key: value for key, value in document.items() if key not in ("kind", "version")}
        if document["version"] != 1:
            raise UnsupportedError(
                "preprocess_unsupported", f"The image preprocessing has version {document['version']}; 1 is known.",
                why="A newer edgesdk wrote it.", fix="Update edgesdk.",
            )  # fmt: skip
        known = {field.name for field in fields(ImageSpec)}
        for key in rest:
            if key not in known:
                raise ValueError(f"The field '{key}' is unknown. {nearest(key, known)}")
        for key, part in (("resize", Resize), ("crop", Crop)):
            if rest[key] is not None:
                rest[key] = part(**_tuples(rest[key]))
        return ImageSpec(**_tuples(rest))


def _tuples(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in document.items()}


def _plain(value: Any) -> Any:
    """Tuples as lists, so that the object equals what a JSON reader gives back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _takes(dim: int | Dim, size: int | None) -> bool:
    if isinstance(dim, Dim):
        return size is None or dim.min <= size <= dim.max
    return size == dim


def _noun(axis: str) -> str:
    return {"N": "a batch of", "C": "a channel count of", "H": "a height of", "W": "a width of"}[axis]


def _words(size: int | None) -> str:
    return "its own, which varies" if size is None else str(size)


def one_of(name: str, value: str, literal: Any) -> None:
    known = get_args(literal)
    if value not in known:
        raise UsageError(
            "bad_preprocess",
            f"{name} can't be {value!r}.",
            why=nearest(str(value), known),
            fix=f"Write one of them for {name}.",
        )


def check_size(name: str, size: tuple[int, int]) -> None:
    good = len(size) == 2 and all(isinstance(n, int) and not isinstance(n, bool) for n in size)
    if not good or not all(1 <= n <= _MAX_SIDE for n in size):
        raise UsageError(
            "bad_preprocess", f"{name}: {size} is no size of a picture.",
            why=f"Height and width are whole numbers from 1 to {_MAX_SIDE}.", fix="Write it as --image 224 or --image 320x240.",
        )  # fmt: skip


def _commas(values: Iterable[float]) -> str:
    return ",".join(f"{v:.4g}" for v in values)


def _check_color(name: str, color: tuple[int, ...]) -> None:
    if len(color) != 3 or not all(isinstance(v, int) and 0 <= v <= 255 for v in color):
        raise UsageError(
            "bad_preprocess", f"{name}: {color} is no colour.", why="A colour is three whole numbers from 0 to 255.",
            fix="Write it as red, green, blue, e.g. 114,114,114.",
        )  # fmt: skip


def _check_numbers(spec: ImageSpec) -> None:
    for name, values in (("mean", spec.mean), ("std", spec.std)):
        if len(values) != spec.channels:
            raise UsageError(
                "bad_preprocess", f"--{name} has {len(values)} numbers, but the picture has {spec.channels} channel(s).",
                why="There is one number for each channel.", fix=f"Give --{name} {spec.channels} number(s), separated by commas.",
            )  # fmt: skip
    if not all(map(math.isfinite, (*spec.mean, *spec.std, spec.scale))) or 0 in spec.std or spec.scale <= 0:
        raise UsageError(
            "bad_preprocess", f"mean {spec.mean}, std {spec.std}, scale {spec.scale} can't be computed with.",
            why="The mean is subtracted and the result divided by std: both are finite, and std is not 0.",
            fix="Leave --std out (1 is then used), or take the numbers that the model was trained with.",
        )  # fmt: skip
    top = 255 * spec.scale  # the largest sample; 1e-9: 255 · (1/255) needn't be 1 exactly
    if any(abs(m) > top + 1e-9 for m in spec.mean) or any(abs(s) > 4 * top for s in spec.std):
        raise UsageError(
            "bad_preprocess", f"--mean {_commas(spec.mean)} --std {_commas(spec.std)} is not on the 0…{top:.4g} scale.",
            why="The mean is subtracted after the samples were scaled: a larger mean pushes every picture below zero.",
            fix=f"Divide both by 255: --mean {_commas(m / 255 for m in spec.mean)} --std {_commas(s / 255 for s in spec.std)}",
        )  # fmt: skip
    if spec.dtype == "uint8" and (spec.scale != 1 or any(spec.mean) or any(s != 1 for s in spec.std)):
        raise UsageError(
            "bad_preprocess", "A uint8 input takes the samples as they are, without scale, mean and std.",
            why="Such a model normalises inside.", fix="Leave --mean and --std out.",
        )  # fmt: skip
