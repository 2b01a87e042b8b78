"""Numbers in plain words, equal in every report format and in the README of each package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgesdk import units
from edgesdk.units import three

# Thresholds on the worst output's signal-to-noise ratio, dB. 20 dB are a factor of ten in amplitude: at 100 dB the
# difference is 1/100 000 of the signal, what float32 rounding leaves behind (24 bits of mantissa are 144 dB; sums over
# thousands of products lose about 40 of them). int8 post-training quantization usually lands between 20 and 40 dB.
_SNR_WORDS = (
    (90.0, "same answers", "differs by rounding only"),
    (50.0, "nearly the same answers", "differences too small to matter in practice"),
    (30.0, "close answers", "small differences, as 8-bit models have"),
    (20.0, "roughly the same answers", "visible differences: check accuracy on your own data"),
    (float("-inf"), "different answers", "large differences: don't ship this without an accuracy test"),
)

_RUNGS = {
    "full": "Everything the accelerated back end can take was given to it.",
    "partial": "Some operators were kept out of the accelerated back end to get a correct file.",
    "portable": "Plain portable kernels: correct everywhere, but slower than an accelerated back end.",
}
_RUNTIMES = {"executorch": "ExecuTorch", "onnx": "ONNX Runtime", "torchscript": "TorchScript Lite", "null": "Null"}
_BACKENDS = {
    "xnnpack": "XNNPACK",
    "coreml": "Core ML",
    "vulkan": "Vulkan",
    "mps": "MPS",
    "portable": "portable kernels",
}
_QUANTIZATIONS = {
    "none": "float32",
    "fp16": "float16",
    "static-int8": "static int8",
    "dynamic-int8": "dynamic int8",
    "qat-int8": "trained int8",
    "weight-int8": "int8 weights",
    "weight-int4": "int4 weights",
}


def size(count: float | None) -> str:
    """Bytes in decimal units; a dash where they aren't known."""
    return "–" if count is None else units.size(int(count))


def count(value: float | None) -> str:
    """A count in thousands, millions or billions: ``3.5 million``."""
    if value is None:
        return "–"
    for limit, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(value) >= limit:
            return f"{three(value / limit)} {word}"
    return f"{int(value):,}" if value == int(value) else three(value)


def percent(share: float | None) -> str:
    """A share 0…1; never rounded up to 100 % or down to 0 %."""
    if share is None:
        return "–"
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{share * 100:.1f}".rstrip("0").rstrip(".") + " %"


def number(value: float | None) -> str:
    """Three significant digits, scientific when tiny or huge."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.2e}"


def decibels(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} dB".replace("-0 ", "0 ").replace("-", "−")


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 0.0095:
        return f"{three(value * 1000)} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def nanoseconds(value: float | None) -> str:
    """A latency: ``20.1 ms``, ``310 µs``."""
    if value is None:
        return "–"
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(value) >= limit:
            return f"{three(value / limit)} {unit}"
    return f"{value:.0f} ns"


def shape(dims: Sequence[int | str] | None) -> str:
    """``1 × 3 × 224 × 224``; a dynamic dimension is a range, ``1…8``."""
    if dims is None:
        return "any shape"
    return " × ".join(str(d).replace("..", "…") for d in dims) if dims else "a single number"


def runtime(variant: Mapping[str, Any]) -> str:
    """``ExecuTorch with XNNPACK``."""
    name = _RUNTIMES.get(variant.get("runtime", ""), str(variant.get("runtime", "?")))
    return f"{name} with {backend(variant['backend'])}" if variant.get("backend") else name


def backend(word: str | None) -> str:
    return _BACKENDS.get(word or "", str(word or "a delegate"))


def quantization(word: str | None) -> str:
    return _QUANTIZATIONS.get(word or "none", word or "none")


def rung(word: str | None) -> str:
    """What the step of the lowering ladder means."""
    return _RUNGS.get(word or "", f"Ladder step '{word}'." if word else "")


def worst_snr(variant: Mapping[str, Any]) -> float | None:
    """The least signal-to-noise ratio over the outputs, None when every error is exactly zero (or nothing was run)."""
    found = [o["snr_db"] for o in variant.get("outputs") or () if o.get("snr_db") is not None]
    return min(found) if found else None


def worst_error(variant: Mapping[str, Any]) -> float | None:
    """The greatest absolute error over the outputs, None when nothing was run."""
    found = [o["max_abs_error"] for o in variant.get("outputs") or () if o.get("max_abs_error") is not None]
    return max(found) if found else None


def fidelity(variant: Mapping[str, Any]) -> tuple[str, str]:
    """(headline, explanation) of how near the file's answers are to the original's."""
    verified = variant.get("verified")
    why = (variant.get("details") or {}).get("why") or ""
    if verified == "not_run":
        return "not run", why or "its engine isn't on the machine that made this package"
    if verified is False:
        return "failed", why or "the answers differ from the original's by more than allowed"
    if worst_error(variant) == 0:
        return "identical answers", "every number equal to the original's"
    snr = worst_snr(variant)
    if snr is None:
        return "verified", "ran on its engine"
    return next((head, tail) for limit, head, tail in _SNR_WORDS if snr >= limit)
