"""Defaults of the image processors of transformers (class attributes in 5.18), for files that leave keys out.

Only processors whose class resizes, crops, rescales and normalises in that order and in no other way are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STANDARD = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))  # IMAGENET_STANDARD_MEAN, _STD
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # IMAGENET_DEFAULT_MEAN, _STD
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))  # OPENAI_CLIP_MEAN, _STD
_BILINEAR, _BICUBIC = 2, 3


def _entry(
    side: int, shorter: bool, resample: int, numbers: tuple[Any, Any], crop: int | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "size": {"shortest_edge": side} if shorter else {"height": side, "width": side},
        "resample": resample,
        "image_mean": numbers[0],
        "image_std": numbers[1],
        "do_resize": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "do_center_crop": crop is not None,
        "crop_size": crop or side,
        **more,
    }


DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Beit": _entry(224, False, _BICUBIC, _STANDARD),
    "Bit": _entry(224, True, _BICUBIC, _CLIP, 224),
    "Blip": _entry(384, False, _BICUBIC, _CLIP),
    "CLIP": _entry(224, True, _BICUBIC, _CLIP, 224),
    "ChineseCLIP": _entry(224, True, _BICUBIC, _CLIP, 224),
    "ConvNext": _entry(384, True, _BICUBIC, _STANDARD, crop_pct=224 / 256),
    "DeiT": _entry(256, False, _BICUBIC, _STANDARD, 224),
    "EfficientNet": _entry(346, False, _BICUBIC, _STANDARD, rescale_offset=False, include_top=True),
    "Levit": _entry(224, True, _BICUBIC, _IMAGENET, 224),
    "MobileNetV1": _entry(256, True, _BILINEAR, _STANDARD, 224),
    "MobileNetV2": _entry(256, True, _BILINEAR, _STANDARD, 224),
    "MobileViT": _entry(224, True, _BICUBIC, _STANDARD, 256, do_normalize=False, do_flip_channel_order=True),
    "OwlViT": _entry(768, False, _BICUBIC, _CLIP),
    "Pvt": _entry(224, False, _BICUBIC, _IMAGENET),
    "Segformer": _entry(512, False, _BILINEAR, _IMAGENET),
    "Siglip": _entry(224, False, _BICUBIC, _STANDARD),
    "ViT": _entry(224, False, _BILINEAR, _STANDARD),
}

# Processors that resize to more than ``shortest_edge`` says.
SHORTER_BY: Mapping[str, float] = {"Levit": 256 / 224}
