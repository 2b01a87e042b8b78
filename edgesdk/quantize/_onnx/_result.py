"""What a scheme made of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgesdk.artifacts import Layer, Warn
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.runtimes import _onnx_run

if TYPE_CHECKING:
    import onnx_ir as ir

_LARGE = 0.1
"""Share of a model's weights from which a float one is worth a word …"""
_WORTH = 2**14
"""… and bytes."""


@dataclass(frozen=True)
class Quantized:
    """A quantized graph.

    Attributes:
        places: for each quantized layer the tensor that it makes: (name in the float graph, name in this one).
    """

    graph: ir.Model
    layers: tuple[Layer, ...]
    warnings: tuple[Warn, ...] = ()
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    least_runtime: str = "1.10"


def float_weights(layers: tuple[Layer, ...]) -> tuple[Warn, ...]:
    """Large weights that stayed float, if they matter."""
    total = sum(layer.bytes for layer in layers)
    large = [x for x in layers if x.precision == "float32" and x.bytes > max(_LARGE * total, _WORTH)]
    if not large:
        return ()
    named = "; ".join(f"{x.name} ({x.bytes / 1e6:.1f} MB): {x.why}" for x in large)
    return (Warn("large_float_weights", f"These weights stayed float32: {named}"),)


def nothing(model: str, scheme: str, layers: tuple[Layer, ...]) -> UnsupportedError:
    """No layer could be quantized as asked."""
    counts: dict[str, int] = {}
    for layer in layers:
        counts[layer.op] = counts.get(layer.op, 0) + 1
    has = ", ".join(f"{number} {op}" for op, number in sorted(counts.items())) or "no layers with weights"
    return UnsupportedError(
        "nothing_quantized", f"{scheme} can quantize nothing in {model}: it consists of {has}.",
        why=next((x.why for x in layers if x.why), None) or "A scheme needs layers that it knows.", fix=_better(scheme, counts),
    )  # fmt: skip


def _better(scheme: str, counts: Mapping[str, int]) -> str:
    convolutions = any(op.startswith("conv") for op in counts)
    if scheme in ("dynamic-int8", "weight-int4") and convolutions:
        return "Use --quantize static-int8 with --calibration PATH, or --quantize weight-int8."
    if scheme in ("static-int8", "qat-int8", "weight-int4") and counts:
        return "Use --quantize weight-int8, or --quantize fp16."
    return "Use --quantize fp16, or none."


def not_smaller(before: int, after: int) -> Warn:
    """So few weights that scales and further nodes outweigh what int8 saves."""
    return Warn(
        "not_smaller",
        f"The quantized file is no smaller: {after:,} bytes against {before:,}. The model has so few weights that scales "
        "and conversions take what int8 saves.",
    )


def untouched(layer: str, what: str) -> InputError:
    """A layer whose input can't be given a range (pitfall Q-09)."""
    return InputError(
        "observer_untouched", f"Calibration tells nothing about the layer {layer}: {what}.",
        why="The samples are empty, blank or all alike, or this part of the model never ran on them.",
        fix="Calibrate with samples like the ones that the app will see.",
    )  # fmt: skip


def saturation(*, dynamic: bool = False) -> tuple[Warn, ...]:
    """What a check on this machine's CPU hides (pitfall Q-22).

    Tried: on arm64 (Cortex-A76, emulated) files answer as on x86 with VNNI, to the last bit; on x86 without (Haswell,
    emulated) a small CNN is off by 25 dB, and exact with the option, which helps dynamic int8 only in part.
    """
    kind = _onnx_run.host()
    if kind == "arm64":
        return ()
    others = "x86 CPUs without VNNI (old PCs, emulators) cut sums at 16 bits"
    remedy = "" if dynamic else ' unless the app sets session.x64quantprecision to "1"'
    if kind == "x86" and dynamic:
        text = f"{others}, and this machine has such a CPU: phones answer better than the check here says."
    elif kind == "x86":
        text = f"The check here adds exactly, as phones do. It doesn't show that {others}{remedy}."
    else:
        text = f"This CPU has VNNI and adds exactly, as phones do. The check here doesn't show that {others}{remedy}."
    return (Warn("x86_saturation", text),)
