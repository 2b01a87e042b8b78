"""Preprocessing taken over from the libraries that trained the model.

Only the libraries' data is read, none of them is imported: tests hold each result against the library's own transform.
What can't be expressed is refused with the part's name; a nearly right preprocessing would cost accuracy in silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from edgesdk.errors import UnsupportedError
from edgesdk.preprocess._image import Color, Crop, ImageSpec, Interpolation, Resize
from edgesdk.preprocess._processors import DEFAULTS, SHORTER_BY

_INTERPOLATIONS = {"bilinear", "bicubic", "nearest", "lanczos", "box"}
# PIL.Image.Resampling, which transformers writes as a number.
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # timm.data.constants.IMAGENET_DEFAULT_MEAN, _STD
_TIMM_CROP = 0.875  # timm.data.constants.DEFAULT_CROP_PCT


def _refuse(source: str, part: str) -> UnsupportedError:
    return UnsupportedError(
        "preprocess_unsupported", f"The preprocessing of {source} can't be taken over: {part}.",
        why="Only steps that Python, Java and Swift compute alike are taken; a guess would cost accuracy unseen.",
        fix="Say it yourself: --image SIZE --resize MODE --mean R,G,B --std R,G,B, or feed the tensor with session.run().",
    )  # fmt: skip


def _interpolation(source: str, value: Any) -> Interpolation:
    word = str(getattr(value, "value", value)).replace("nearest-exact", "nearest")
    if word not in _INTERPOLATIONS:
        raise _refuse(source, f"interpolation {word!r}")
    return cast(Interpolation, word)


def _floats(values: Iterable[Any]) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


def _sides(value: Any) -> tuple[int, ...]:
    return (int(value),) if isinstance(value, (int, float)) else tuple(int(v) for v in value)


def _square(value: Any) -> tuple[int, int]:
    sides = _sides(value)
    return sides[0], sides[-1]


# --- torchvision ------------------------------------------------------------------------------------------------------


def from_torchvision(transforms: Any) -> ImageSpec:
    """From a preset (``weights.transforms()``) or a ``Compose`` of Resize, CenterCrop, Grayscale, ToTensor, Normalize.

    torchvision always antialiases a ``PIL.Image``, so its ``antialias`` doesn't matter here.

    Raises:
        UnsupportedError: another preset (video, optical flow) or transform.
    """
    kind = type(transforms).__name__
    source = f"torchvision's {kind}"
    if kind == "ObjectDetection":
        return ImageSpec()
    if kind in ("ImageClassification", "SemanticSegmentation"):
        spec = _tv_resize(source, ImageSpec(), transforms.resize_size, transforms.interpolation)
        crop = Crop(_square(transforms.crop_size)) if kind == "ImageClassification" else None
        return replace(spec, crop=crop, mean=_floats(transforms.mean), std=_floats(transforms.std))
    if kind in ("Compose", "Sequential"):
        spec = ImageSpec(scale=1.0)
        for step in getattr(transforms, "transforms", transforms):
            spec = _tv_step(spec, step)
        return spec
    raise _refuse(source, "it isn't a preset for still pictures or a Compose")


def _tv_resize(source: str, spec: ImageSpec, size: Any, interpolation: Any) -> ImageSpec:
    if size is None:
        return spec
    sides = _sides(size)
    mode = "shorter" if len(sides) == 1 else "stretch"
    return replace(spec, resize=Resize(cast(Any, mode), _square(size), _interpolation(source, interpolation)))


def _tv_step(spec: ImageSpec, step: Any) -> ImageSpec:
    """One transform of a Compose; the steps must come in our order, or the result would differ."""
    name = type(step).__name__
    source = f"torchvision's {name}"
    scaled = spec.scale != 1.0
    if name in ("Resize", "CenterCrop", "Grayscale") and scaled:
        raise _refuse(source, "it comes after the conversion to a tensor, where resizing rounds otherwise")
    if name == "Resize":
        if spec.crop or spec.resize or getattr(step, "max_size", None) is not None:
            raise _refuse(source, "a second resize, a resize after the crop, or max_size")
        return _tv_resize(source, spec, step.size, step.interpolation)
    if name == "CenterCrop" and spec.crop is None:
        return replace(spec, crop=Crop(_square(step.size)))
    if name == "Grayscale" and step.num_output_channels == 1 and spec.resize is None:
        return replace(spec, color="gray", mean=(0.0,), std=(1.0,))
    if name in ("ToTensor", "MaybeToTensor", "ConvertImageDtype") or (name == "ToDtype" and step.scale):
        return replace(spec, scale=1 / 255)
    if name in ("PILToTensor", "ToImage", "ToPureTensor"):
        return spec
    if name == "Normalize" and scaled:
        mean, std = ([float(v) for v in values] for values in (step.mean, step.std))
        return replace(spec, mean=tuple(mean), std=tuple(std))
    raise _refuse(source, "this transform, or its place in the order, isn't known")


# --- timm -------------------------------------------------------------------------------------------------------------


def from_timm(config: Any) -> ImageSpec:
    """From ``model.pretrained_cfg``, ``resolve_data_config(…)`` or a timm ``config.json``'s ``pretrained_cfg``.

    Missing keys get timm's own defaults (``timm.data.constants``).

    Raises:
        UnsupportedError: variable patch sequences (NaFlex), random interpolation, 2 or 4 channels.
    """
    data: Mapping[str, Any] = config.to_dict() if hasattr(config, "to_dict") else config
    source = f"timm's {data.get('architecture') or 'configuration'}"
    channels, height, width = data.get("input_size") or (3, 224, 224)
    if channels not in (1, 3) or data.get("naflex"):
        raise _refuse(source, f"{channels} input channels" if channels not in (1, 3) else "NaFlex sequences")
    mean, std = _floats(data.get("mean") or _IMAGENET[0]), _floats(data.get("std") or _IMAGENET[1])
    if channels == 1 and len(mean) == 3:
        mean, std = (sum(mean) / 3,), (sum(std) / 3,)  # as timm.data.adapt_data_config and resolve_data_config
    part = float(data.get("crop_pct") or _TIMM_CROP)
    scaled = math.floor(height / part), math.floor(width / part)
    how = _interpolation(source, data.get("interpolation") or "bicubic")
    crop, mode = data.get("crop_mode") or "center", {"squash": "stretch", "border": "letterbox"}
    resize = Resize(cast(Any, mode.get(crop, "shorter")), scaled, how)
    if crop == "center" and height != width:
        # timm then uses its own resize, which rounds and is always bilinear.
        resize = replace(resize, rounding="half_even", interpolation="bilinear")
    red, green, blue = (round(255 * m) for m in (mean * 3)[:3])
    return ImageSpec(
        color="gray" if channels == 1 else "rgb",
        resize=resize,
        crop=Crop((height, width)),
        fill=(red, green, blue) if crop == "border" else (0, 0, 0),
        mean=mean,
        std=std,
    )


# --- transformers -----------------------------------------------------------------------------------------------------


def from_transformers(config: Mapping[str, Any]) -> ImageSpec:
    """From the dictionary of ``preprocessor_config.json`` (``processor.to_dict()``), old forms included.

    Missing keys get the defaults of the processor's class.

    Raises:
        UnsupportedError: a processor that splits, pads to multiples, or resizes in another way.
    """
    nested = config.get("image_processor")
    data: dict[str, Any] = dict(nested if isinstance(nested, Mapping) else config)
    name = str(data.get("image_processor_type") or data.get("feature_extractor_type") or "")
    if name.startswith("TimmWrapper"):
        return from_timm(data.get("pretrained_cfg") or data)
    for ending in ("ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(ending)
    source = f"transformers' {name or 'unnamed'} processor"
    if name not in DEFAULTS:
        raise _refuse(source, f"known are {', '.join(sorted(DEFAULTS))}")
    data = {**DEFAULTS[name], **{k: v for k, v in data.items() if v is not None}}
    if data.get("do_pad") or data.get("size_divisor"):
        raise _refuse(source, "padding to a size or a multiple")
    spec = _hf_resize(source, name, data)
    if data.get("do_center_crop"):
        spec = replace(spec, crop=Crop(_hf_square(source, data["crop_size"]), "floor"))
    return _hf_numbers(spec, data)


def _hf_square(source: str, size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        if "height" not in size:
            raise _refuse(source, f"crop_size {dict(size)}")
        return int(size["height"]), int(size["width"])
    return _square(size)


def _hf_resize(source: str, name: str, data: Mapping[str, Any]) -> ImageSpec:
    if not data.get("do_resize"):
        return ImageSpec()
    how = _RESAMPLE.get(int(data["resample"]))
    if how is None:
        raise _refuse(source, f"resample {data['resample']}")
    size = data["size"]
    if not isinstance(size, Mapping):
        # Files of 2021–22 hold a number: it is the shorter side where the processor keeps the proportions.
        sides = _sides(size)
        short = len(sides) == 1 and "shortest_edge" in DEFAULTS[name]["size"]
        size = {"shortest_edge": sides[0]} if short else {"height": sides[0], "width": sides[-1]}
    filters = cast(Interpolation, how)
    if "height" in size and "width" in size:
        return ImageSpec(resize=Resize("stretch", (int(size["height"]), int(size["width"])), filters))
    if "shortest_edge" not in size or "longest_edge" in size:
        raise _refuse(source, f"size {dict(size)}")
    side = int(size["shortest_edge"])
    if name == "ConvNext":
        return _hf_convnext(side, float(data["crop_pct"]), filters)
    side = int(SHORTER_BY.get(name, 1.0) * side)
    return ImageSpec(resize=Resize("shorter", (side, side), filters))


def _hf_convnext(side: int, part: float, filters: Interpolation) -> ImageSpec:
    """Below 384: the centre of a larger picture; from 384 on: stretched, nothing cut (as its own class does)."""
    if side >= 384:
        return ImageSpec(resize=Resize("stretch", (side, side), filters))
    large = int(side / part)
    return ImageSpec(resize=Resize("shorter", (large, large), filters), crop=Crop((side, side), "floor"))


def _hf_numbers(spec: ImageSpec, data: Mapping[str, Any]) -> ImageSpec:
    scale = float(data["rescale_factor"]) if data.get("do_rescale") else 1.0
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if data.get("do_normalize"):
        mean, std = _triple(data["image_mean"]), _triple(data["image_std"])
    if data.get("include_top"):
        deviation = _triple(data["image_std"])  # EfficientNet divides by std once more
        std = (std[0] * deviation[0], std[1] * deviation[1], std[2] * deviation[2])
    if data.get("rescale_offset"):
        mean = (mean[0] + 1, mean[1] + 1, mean[2] + 1)  # p · scale - 1
    color: Color = "bgr" if data.get("do_flip_channel_order") else "rgb"
    return replace(spec, scale=scale, mean=mean, std=std, color=color)


def _triple(values: Any) -> tuple[float, float, float]:
    numbers = _floats(values) if isinstance(values, Iterable) else (float(values),)
    red, green, blue = numbers if len(numbers) == 3 else numbers[:1] * 3
    return red, green, blue
