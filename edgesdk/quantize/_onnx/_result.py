"""What a scheme made of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgesdk.artifacts import Layer, Warn
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.runtimes import _onnx_run
from edgesdk.runtimes._onnx_write import graphs

if TYPE_CHECKING:
    import onnx_ir as ir

KEPT = "kept in float as asked"
SMALL = 512
"""Elements of a weight below which scales and two more nodes take what int8 saves."""
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


def nothing(model: str, scheme: str, layers: tuple[Layer, ...], graph: ir.Model) -> UnsupportedError:
    """No layer could be quantized as asked."""
    weighted = [layer for layer in layers if layer.bytes]
    if not weighted and (other := _other_types(graph)):
        return UnsupportedError(
            "nothing_quantized", f"{scheme} can quantize nothing in {model}: its weights are {other}.",
            why="int8 starts from float32, which ONNX Runtime's kernels compute in.",
            fix="Make it float32 before it is exported (model.float()), and package it again.",
        )  # fmt: skip
    counts = Counter(layer.op for layer in weighted)
    has = ", ".join(f"{number} {op}" for op, number in sorted(counts.items()))
    if not has:
        operators = Counter(node.op_type for part in graphs(graph) for node in part)
        listed = ", ".join(f"{number} {op}" for op, number in operators.most_common(5))
        has = f"{listed or 'nothing'}, and no layers with weights"
    return UnsupportedError(
        "nothing_quantized", f"{scheme} can quantize nothing in {model}: it consists of {has}.",
        why=_reasons(weighted), fix=_better(scheme, weighted),
    )  # fmt: skip


def _other_types(graph: ir.Model) -> str:
    """float64 (or another) when matrices are of it; empty when there are none."""
    import onnx_ir as ir

    found: Counter[str] = Counter()
    for part in graphs(graph):
        for value in part.initializers.values():
            tensor = value.const_value
            if tensor is not None and len(tensor.shape) >= 2 and tensor.dtype in _FLOATS:
                found[_FLOATS[ir.DataType(tensor.dtype)]] += tensor.nbytes
    return found.most_common(1)[0][0] if found else ""


# By ONNX's number of the type, which onnx_ir's enumeration equals.
_FLOATS = {11: "float64", 10: "float16", 16: "bfloat16"}


def _reasons(layers: Sequence[Layer]) -> str:
    """Why each kind of layer stays float, the kinds with most bytes first."""
    by_reason: dict[str, list[Layer]] = {}
    for layer in layers:
        by_reason.setdefault(layer.why or "", []).append(layer)
    ordered = sorted((r for r in by_reason if r), key=lambda r: -sum(x.bytes for x in by_reason[r]))
    told = [f"{', '.join(sorted({x.op for x in by_reason[r]}))}: {r}" for r in ordered[:3]]
    return "; ".join(told) + "." if told else "A scheme needs layers that it knows."


def _better(scheme: str, layers: Sequence[Layer]) -> str:
    """The scheme that would do something; each needs enough weights in a layer of its kind."""
    if layers and all(layer.why == KEPT for layer in layers):
        return "Leave out --quantize, or allow more layers in int8 (--max-drop)."
    if any("not a number" in str(layer.why) for layer in layers):
        return "Repair the weights that aren't numbers (train or export again), then quantize."
    large = [layer for layer in layers if layer.bytes >= 4 * SMALL]
    if scheme in ("dynamic-int8", "weight-int4") and any(x.op.startswith("conv") for x in large):
        return "Use --quantize static-int8 with --calibration PATH, or --quantize weight-int8."
    if scheme != "weight-int8" and large:
        return "Use --quantize weight-int8, or --quantize fp16."
    if scheme in ("dynamic-int8", "weight-int4", "weight-int8") and any(x.op in _COMPUTE for x in layers):
        return "Leave out --quantize: its layers are so small that only static-int8 takes them, and there is little to save."
    return "Leave out --quantize, or use --quantize fp16."


_COMPUTE = frozenset({"linear", "conv1d", "conv2d", "conv3d"})


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
