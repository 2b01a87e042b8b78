"""What a check on this machine's processor can't show of a phone's answers, for each engine (pitfall Q-22).

Sources: what was tried on emulated arm64 and emulated x86 processors (``edgesdk.quantize._onnx._result.saturation``,
``tests/emulated``), and how the runtimes are run here (``runtimes/_onnx_run.py``, ``quantize/_fx/_engine.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
_VNNI = frozenset({"avx512_vnni", "avx_vnni", "avxvnni", "avx_vnni_int8", "amx_int8"})
_FLOAT = "Only its weights are small; it computes in float, where x86 and arm64 differ by rounding alone."


def hides(variant: Json) -> str:
    """One to three sentences about a quantized file that was judged on x86."""
    runtime, scheme = str(variant.get("runtime")), str(variant.get("quantization"))
    if scheme.startswith("weight-") and (runtime, scheme) != ("executorch", "weight-int4"):
        return _FLOAT
    if runtime == "onnx":
        return _onnx(_flags(variant), dynamic=scheme == "dynamic-int8")
    if runtime == "torchscript":
        return (
            "QNNPACK, the engine of phones, computed here as well, and not FBGEMM, which cuts sums at 16 bits. It has other "
            "kernels for x86 (SSE2) than for arm64 (NEON): sums are exact in both, and rounding may move a value by one step."
        )
    if runtime == "executorch":
        return (
            "XNNPACK picks other int8 kernels on x86 (AVX2, AVX-512, VNNI) than on arm64 (NEON, dot products). All of them add "
            "in 32 bits, so nothing saturates; rounding may move a value by one step of its scale."
        )
    return "Int8 kernels of x86 and arm64 round differently: single values may differ by a step."


def _flags(variant: Json) -> frozenset[str]:
    details: Json = variant.get("details") or {}
    host: Json = (details.get("guard") or {}).get("host") or {}
    return frozenset(map(str, host.get("flags") or details.get("cpu_flags") or ()))


def _onnx(flags: frozenset[str], *, dynamic: bool) -> str:
    others = (
        "x86 processors without VNNI (old PCs, emulators of phones) cut sums of int8 products at 16 bits, phones don't"
    )
    if flags & _VNNI:
        return f"This processor has VNNI and adds int8 products in 32 bits, as phones do. What it hides: {others}."
    if not flags:
        return f"Which kernels were used isn't known: {others}."
    if dynamic:
        return f"This processor has no VNNI, and {others}: a phone answers better than these figures say."
    return (
        "This processor has no VNNI; ONNX Runtime was told to add exactly (session.x64quantprecision), as phones do. What that "
        f"hides: {others}."
    )
