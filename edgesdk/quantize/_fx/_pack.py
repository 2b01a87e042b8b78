"""Weights as QNNPACK keeps them. Each packed layer is tried against float before it is used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._fx._graph import op_name
from edgesdk.quantize._fx._ranges import QParams

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

_FAITHFUL = 20.0  # dB; kernels that work give 30 to 45 on noise, transposed 3-D convolution -10 without an error
_LEAST_SCALE = 1e-9
_LARGEST_BIAS = 2.0**30  # QNNPACK adds the bias as int32 in units of input scale × weight scale


@dataclass(frozen=True)
class Geometry:
    """How a convolution moves over its input; ``spatial`` is 0 for a linear layer."""

    spatial: int
    transposed: bool = False
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    groups: int = 1


@dataclass(frozen=True)
class Packed:
    """Weights of one layer.

    Attributes:
        value: the packed object; None when no form worked.
        weight: the quantized weight.
        why: what was done differently from asked, or why nothing worked.
    """

    value: Any
    weight: Any = None
    why: str | None = None


def geometry(node: Node) -> Geometry | str:
    """Of a convolution or linear node, or a sentence on why it has none that int8 kernels know."""
    name = op_name(node.target)
    if name == "linear":
        return Geometry(0)
    transposed, n = "transpose" in name, int(name[-2])
    if n == 3:
        return "QNNPACK's 3-D convolutions can't be saved in a file"
    value: Any = node.args[0]
    if value.meta["val"].dim() != n + 2:
        return "its input has no batch dimension"
    rest: tuple[Any, ...] = tuple(node.args[3:])
    if transposed:
        stride, padding, output_padding, groups, dilation = rest + (1, 0, 0, 1, 1)[len(rest) :]
    else:
        stride, padding, dilation, groups = rest + (1, 0, 1, 1)[len(rest) :]
        output_padding = 0
    steps = _each(dilation, n)
    if isinstance(padding, str):
        weight: Any = node.args[1]
        kernel = weight.meta["val"].shape[2:] if "val" in weight.meta else weight.meta["constant"].shape[2:]
        total = [0] * n if padding == "valid" else [d * (int(k) - 1) for d, k in zip(steps, kernel, strict=True)]
        if any(t % 2 for t in total):
            return "its padding differs on the two sides"
        padding = [t // 2 for t in total]
    return Geometry(
        n,
        transposed,
        _each(stride, n),
        _each(padding, n),
        steps,
        _each(output_padding, n) if transposed else (),
        groups,
    )


def _each(value: Any, n: int) -> tuple[int, ...]:
    items = [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)]
    return tuple(items * n if len(items) == 1 else items)


def pack(
    weight: torch.Tensor, bias: torch.Tensor | None, shape: Geometry, given: QParams, made: QParams, per_channel: bool
) -> Packed:
    """Pack with one scale for each output channel, else with one for all; the first that computes what float does.

    Args:
        given, made: of the layer's input and output.
    """
    if reason := unfit(weight):
        return Packed(None, why=reason)
    reasons = []
    for by_channel in (True, False) if per_channel else (False,):
        quantized = quantize_weight(weight, bias, shape, given.scale, by_channel)
        try:
            heard = _snr(prepack(quantized, bias, shape), quantized, bias, shape, given)
            packed = prepack(quantized, bias, shape)  # QNNPACK keeps the output scale of an object's first call
        except RuntimeError as exc:
            reasons.append(str(exc).strip().splitlines()[0][:120])
            continue
        if heard < _FAITHFUL:
            reasons.append(f"the kernel is off by {heard:.0f} dB")
            continue
        if reasons and _silences(weight, quantized):
            reasons.append("with one scale for the whole weight, whole channels would become zero")
            continue
        why = f"one scale for the whole weight: {reasons[0]}" if reasons else None
        return Packed(packed, quantized, why)
    return Packed(None, why=f"QNNPACK can't run it: {reasons[-1]}")


def _silences(weight: torch.Tensor, quantized: Any) -> bool:
    """Whether a channel (an input's, in transposed convolutions) that had weights has none after rounding."""
    had, has = (t.flatten(1).abs().amax(1) > 0 for t in (weight, quantized.int_repr()))
    return bool((had & ~has).any())


def unfit(weight: torch.Tensor) -> str | None:
    """Why int8 can't hold these numbers: they would all become zero, or the engine would refuse them; None when it can."""
    largest = float(weight.abs().max()) if weight.numel() else 0.0
    if not math.isfinite(largest):
        return "some of its weights are infinite or not a number"
    if 0 < largest < 127 * _LEAST_SCALE:
        return f"its weights are too small for int8, at most {largest:.0e}"
    return None


def quantize_weight(
    weight: torch.Tensor, bias: torch.Tensor | None, shape: Geometry, given: float, by_channel: bool
) -> Any:
    """Symmetric int8, wide enough that the bias, too, can be counted in the layer's units."""
    import torch

    weight = weight.contiguous()
    axis = 1 if shape.transposed else 0
    channels = weight.abs().transpose(0, axis).flatten(1).amax(1).double()
    scales = channels / 127
    if bias is not None and len(bias) == len(scales):
        scales = torch.maximum(scales, bias.abs().double() / (given * _LARGEST_BIAS))
    scales = scales.clamp_min(_LEAST_SCALE)
    if not by_channel:
        return torch.quantize_per_tensor(weight, float(scales.max()), 0, torch.qint8)
    zeros = torch.zeros(len(scales), dtype=torch.int64)
    return torch.quantize_per_channel(weight, scales, zeros, axis, torch.qint8)


def prepack(weight: Any, bias: torch.Tensor | None, shape: Geometry) -> Any:
    """The engine's object; raises RuntimeError for what the engine doesn't know."""
    import torch

    q = torch.ops.quantized
    if not shape.spatial:
        return q.linear_prepack(weight, bias)
    lists = [list(shape.stride), list(shape.padding)]
    if shape.transposed:
        make = getattr(q, f"conv_transpose{shape.spatial}d_prepack")
        return make(weight, bias, *lists, list(shape.output_padding), list(shape.dilation), shape.groups)
    return getattr(q, f"conv{shape.spatial}d_prepack")(weight, bias, *lists, list(shape.dilation), shape.groups)


def call(shape: Geometry, relu: bool) -> Any:
    """The operator that runs a packed layer: (x, packed, scale, zero_point)."""
    import torch

    q, end = torch.ops.quantized, "_relu" if relu else ""
    if not shape.spatial:
        return getattr(q, f"linear{end}").default
    if shape.transposed:
        return getattr(q, f"conv_transpose{shape.spatial}d").default
    packet = getattr(q, f"conv{shape.spatial}d{end}")
    return packet.new if "new" in packet.overloads() else packet.default


def _snr(packed: Any, weight: Any, bias: torch.Tensor | None, shape: Geometry, given: QParams) -> float:
    """dB of the kernel's answer to noise, against float arithmetic on the same rounded numbers."""
    import torch

    noise = torch.Generator().manual_seed(0)
    channels = weight.shape[0] if shape.transposed else weight.shape[1] * shape.groups
    sizes = [d * (k - 1) + 3 for d, k in zip(shape.dilation, weight.shape[2:], strict=True)]
    steps = torch.randint(0, 256, (2, channels, *sizes), generator=noise)
    x = (steps - given.zero_point).float() * given.scale
    qx = torch.quantize_per_tensor(x, given.scale, given.zero_point, torch.quint8)
    exact = _float(qx.dequantize(), weight.dequantize(), bias, shape)
    low, high = min(float(exact.min()), 0.0), max(float(exact.max()), 0.0)
    scale = max((high - low) / 255, 1e-8)
    found = call(shape, False)(qx, packed, scale, min(max(round(-low / scale), 0), 255)).dequantize()
    error, signal = float((found - exact).square().sum()), float(exact.square().sum())
    if error == 0 or signal == 0:
        return 100.0 if error == 0 else -100.0
    return float(10 * torch.log10(torch.tensor(signal / error)))


def _float(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, shape: Geometry) -> torch.Tensor:
    import torch

    f: Any = torch.nn.functional
    if not shape.spatial:
        args: tuple[Any, ...] = ()
    elif shape.transposed:
        args = (shape.stride, shape.padding, shape.output_padding, shape.groups, shape.dilation)
    else:
        args = (shape.stride, shape.padding, shape.dilation, shape.groups)
    kind = "_transpose" if shape.transposed else ""
    run = getattr(f, f"conv{kind}{shape.spatial}d") if shape.spatial else f.linear
    made: torch.Tensor = run(x, weight, bias, *args)
    return made
