"""Preprocessing and postprocessing of a manifest, told step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgesdk.report import _words

_RESIZES = {
    "shorter": "resize so that the shorter side fits {size}, proportions kept",
    "stretch": "resize to {size}, proportions not kept",
    "letterbox": "resize to fit inside {size}, proportions kept, the rest filled",
}


def steps(spec: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What happens to a picture or a sound before the model sees it; empty when nothing is recorded."""
    if not spec:
        return ()
    kind = spec.get("kind")
    if kind == "image":
        return _image(spec)
    if kind == "audio":
        return _audio(spec)
    return (
        f"{kind or 'Unknown'} preprocessing: "
        + ", ".join(f"{k} = {v}" for k, v in sorted(spec.items()) if k != "kind"),
    )


def answer(spec: Mapping[str, Any] | None, labels: int | None) -> str:
    """What is made of the outputs, one sentence; empty when nothing is recorded."""
    named = f" The bundle holds {labels:,} labels." if labels else ""
    kind = (spec or {}).get("kind")
    words = {
        "classify": "The scores are sorted, and the best classes are named.",
        "boxes": "Overlapping boxes are merged and named.",
        "segment": "Each pixel gets the class with the highest score.",
        "embed": "The vector is scaled to length 1.",
        "raw": "The numbers are handed out as they are.",
    }
    return (words.get(str(kind), f"Postprocessing of kind {kind}.") if kind else "") + named


def _image(spec: Mapping[str, Any]) -> tuple[str, ...]:
    color = {"rgb": "RGB", "bgr": "BGR", "gray": "grey"}.get(str(spec.get("color")), str(spec.get("color", "RGB")))
    told = [f"Decode the picture, turn it upright, take its colours as {color}."]
    resize, crop = spec.get("resize"), spec.get("crop")
    if resize:
        mode = _RESIZES.get(str(resize.get("mode")), "resize ({mode}) to {size}").format(
            size=_side(resize.get("size")), mode=resize.get("mode")
        )
        told.append(f"{mode[0].upper()}{mode[1:]} ({resize.get('interpolation', 'bilinear')}).")
    if crop:
        told.append(f"Cut out the centre, {_side(crop.get('size'))} pixels.")
    told.append(_scaling(spec))
    told.append(f"Hand it over as {spec.get('dtype', 'float32')}, {str(spec.get('layout', 'nchw')).upper()} order.")
    return tuple(told)


def _scaling(spec: Mapping[str, Any]) -> str:
    scale, mean, std = spec.get("scale"), spec.get("mean"), spec.get("std")
    start = "Bring the values to 0…1" if scale and abs(scale * 255 - 1) < 1e-9 else f"Multiply the values by {scale}"
    if not mean and not std:
        return f"{start}."
    return f"{start}, subtract {_list(mean)}, divide by {_list(std)} (one number per channel)."


def _audio(spec: Mapping[str, Any]) -> tuple[str, ...]:
    told = [f"Mix to one channel, resample to {spec.get('sample_rate', '?')} Hz."]
    if spec.get("samples"):
        told.append(f"Cut or pad to {spec['samples']:,} samples.")
    if spec.get("frame"):
        told.append(f"Split into frames of {spec['frame']} samples, one every {spec.get('hop', '?')}.")
    if spec.get("normalize") not in (None, "none"):
        told.append(f"Normalise the loudness ({spec['normalize']}).")
    return tuple(told)


def _side(size: Any) -> str:
    return _words.shape(size) if isinstance(size, Sequence) and not isinstance(size, str) else str(size)


def _list(values: Any) -> str:
    return ", ".join(f"{v:g}" for v in values) if isinstance(values, Sequence) else str(values)
