"""ONNX operators with weights or windows: convolution, pooling, norms, resize, recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgesdk.importing._onnx_ops import Node, OnnxOperatorError, Value, known, operator, pick, tensor


def _optional(values: Sequence[Value], index: int) -> Any:
    value = pick(values, index)
    return None if value is None else tensor(value)


def _pads(node: Node, x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[Any]:
    """Begins, then ends, as ONNX writes them; ``auto_pad`` worked out."""
    rank = len(kernel)
    auto = node.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        return list(node.get("pads", [0] * (2 * rank)))
    if auto == "VALID":
        return [0] * (2 * rank)
    begins, ends = [], []
    for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(large if auto == "SAME_LOWER" else small)
        ends.append(small if auto == "SAME_LOWER" else large)
    return begins + ends


def _even(x: Any, pads: Sequence[int], filler: float = 0.0) -> tuple[Any, list[int]]:
    """Padding that the layer takes itself; uneven padding is laid on before."""
    from torch.nn import functional

    rank = len(pads) // 2
    begins, ends = list(pads[:rank]), list(pads[rank:])
    if begins == ends and min(begins, default=0) >= 0:
        return x, begins
    flat = [n for i in reversed(range(rank)) for n in (begins[i], ends[i])]
    return functional.pad(x, flat, value=filler), [0] * rank


@operator("Conv")
def _conv(node: Node, values: list[Value]) -> Any:
    import torch

    x, weight, bias = tensor(values[0]), tensor(values[1]), _optional(values, 2)
    rank = weight.dim() - 2
    strides, dilations = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    x, padding = _even(x, _pads(node, x, weight.shape[2:], strides, dilations))
    call = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    return call(x, weight, bias, strides, padding, dilations, node.get("group", 1))


@operator("ConvTranspose")
def _conv_transpose(node: Node, values: list[Value]) -> Any:
    import torch

    x, weight, bias = tensor(values[0]), tensor(values[1]), _optional(values, 2)
    rank = weight.dim() - 2
    strides, dilations = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    extra = node.get("output_padding", [0] * rank)
    if "output_shape" in node.attrs or node.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID", ""):
        raise OnnxOperatorError("ConvTranspose with output_shape or auto_pad has no torch counterpart")
    pads = node.get("pads", [0] * (2 * rank))
    begins, ends = pads[:rank], pads[rank:]
    call = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[rank - 1]
    if list(begins) == list(ends):
        return call(x, weight, bias, strides, begins, extra, node.get("group", 1), dilations)
    made = call(x, weight, bias, strides, [0] * rank, extra, node.get("group", 1), dilations)
    where = [slice(None), slice(None), *(slice(b, n - e) for b, e, n in zip(begins, ends, made.shape[2:], strict=True))]
    return made[tuple(where)]


@operator("MaxPool", "AveragePool")
def _pool(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    if len(node.outputs) > 1:
        raise OnnxOperatorError("MaxPool with indices has no counterpart in inference")
    x = tensor(values[0])
    kernel = list(node.attrs["kernel_shape"])
    rank = len(kernel)
    strides, dilations = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    pads = _pads(node, x, kernel, strides, dilations)
    ceil = bool(node.get("ceil_mode", 0))
    if node.op == "MaxPool":
        x, padding = _even(x, pads, float("-inf"))
        most = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[rank - 1]
        return most(x, kernel, strides, padding, dilations, ceil)
    counted = bool(node.get("count_include_pad", 0))
    if pads[:rank] != pads[rank:] and not counted:
        raise OnnxOperatorError("AveragePool with uneven padding that isn't counted has no torch counterpart")
    x, padding = _even(x, pads)
    mean = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[rank - 1]
    return mean(x, kernel, strides, padding, ceil, counted)


@operator("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(node: Node, values: list[Value]) -> Any:
    x = tensor(values[0])
    dims = list(range(2, x.dim()))
    return x.mean(dims, True) if node.op == "GlobalAveragePool" else x.amax(dims, True)


@operator("BatchNormalization")
def _batch_norm(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    x, scale, bias, mean, var = map(tensor, values[:5])
    return functional.batch_norm(x, mean, var, scale, bias, False, 0.0, float(node.get("epsilon", 1e-5)))


@operator("InstanceNormalization")
def _instance_norm(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    x, scale, bias = map(tensor, values[:3])
    return functional.instance_norm(x, weight=scale, bias=bias, eps=float(node.get("epsilon", 1e-5)))


@operator("LayerNormalization")
def _layer_norm(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    x, scale = tensor(values[0]), tensor(values[1])
    axis = node.get("axis", -1)
    shape = x.shape[axis % x.dim() :]
    return functional.layer_norm(x, shape, scale, _optional(values, 2), float(node.get("epsilon", 1e-5)))


@operator("GroupNormalization")
def _group_norm(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    x, scale, bias = map(tensor, values[:3])
    groups = int(node.attrs["num_groups"])
    if node.opset < 21:  # per group before opset 21, per channel since
        repeat = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(repeat), bias.repeat_interleave(repeat)
    return functional.group_norm(x, groups, scale, bias, float(node.get("epsilon", 1e-5)))


@operator("LRN")
def _lrn(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    alpha, beta, bias = (float(node.get(n, d)) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return functional.local_response_norm(tensor(values[0]), int(node.attrs["size"]), alpha, beta, bias)


@operator("LpNormalization")
def _lp_norm(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    return functional.normalize(tensor(values[0]), float(node.get("p", 2)), node.get("axis", -1))


@operator("Resize", "Upsample")
def _resize(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    x = tensor(values[0])
    sizes, scales = _target(node, values, x)
    way = node.get("coordinate_transformation_mode", "half_pixel" if node.opset >= 11 else "asymmetric")
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        torch_mode, corners = "nearest", None
        whole = scales is not None and all(float(s).is_integer() for s in scales)
        if not whole and way in ("half_pixel", "pytorch_half_pixel"):
            torch_mode = "nearest-exact"
        elif not whole and not (way == "asymmetric" and node.get("nearest_mode", "floor") == "floor"):
            raise OnnxOperatorError(f"Resize nearest with {way} has no torch counterpart")
    elif way in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        names = {"linear": {3: "linear", 4: "bilinear", 5: "trilinear"}, "cubic": {4: "bicubic"}}
        torch_mode, corners = names[mode][x.dim()], way == "align_corners"
    else:
        raise OnnxOperatorError(f"Resize {mode} with {way} has no torch counterpart")
    if mode == "cubic" and abs(float(node.get("cubic_coeff_a", -0.75)) + 0.75) > 1e-6:
        raise OnnxOperatorError("Resize cubic with another coefficient than -0.75 has no torch counterpart")
    return functional.interpolate(x, sizes, scales, torch_mode, corners)


def _target(node: Node, values: list[Value], x: Any) -> tuple[Any, Any]:
    """Sizes, or factors, of the spatial dimensions."""
    if node.op == "Upsample" or node.opset < 11:
        given = node.get("scales") if "scales" in node.attrs else known(values[1], "the scale of a Resize").tolist()
        return None, [float(s) for s in given[2:]]
    sizes = pick(values, 3)
    if sizes is not None:
        wished = known(sizes, "the size of a Resize").reshape(-1).tolist()
        return wished[2:], None
    scales = known(values[2], "the scale of a Resize").reshape(-1).tolist()
    return None, [float(s) for s in scales[2:]]


_ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Gates in torch's order, as positions in ONNX's: LSTM iofc → ifgo (i, f, c, o), GRU zrh → rzn."""


@operator("LSTM", "GRU", "RNN")
def _recurrent(node: Node, values: list[Value]) -> Any:
    import torch

    _check_recurrent(node, values)
    x = tensor(values[0])
    hidden = int(node.attrs["hidden_size"])
    both = node.get("direction", "forward") == "bidirectional"
    back = node.get("direction", "forward") == "reverse"
    ways = 2 if both else 1
    weights = [tensor(c) for c in node.attrs["torch_weights"]]
    start = [_optional(values, i) for i in (5, 6)]
    zeros = torch.zeros(ways, x.shape[1], hidden, dtype=x.dtype)
    h0, c0 = (zeros if s is None else s for s in start)
    x = x.flip(0) if back else x
    common = (weights, len(weights) > 2 * ways, 1, 0.0, False, both, False)
    if node.op == "LSTM":
        y, h, c = torch.lstm(x, (h0, c0), *common)
    else:
        call = torch.gru if node.op == "GRU" else torch.rnn_tanh
        y, h = call(x, h0, *common)
        c = None
    y = y.flip(0) if back else y
    steps, batch = y.shape[:2]
    y = y.reshape(steps, batch, ways, hidden).transpose(1, 2)
    return (y, h) if c is None else (y, h, c)


def _check_recurrent(node: Node, values: Sequence[Value]) -> None:
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[node.op]
    given = list(node.get("activations", []))
    odd = [
        ("other activations", bool(given) and given[: len(usual)] != usual),
        ("clip", node.get("clip") is not None),
        ("lengths that differ", pick(values, 4) is not None),
        ("peepholes", pick(values, 7) is not None),
        ("layout 1", bool(node.get("layout", 0))),
        ("linear_before_reset 0", node.op == "GRU" and not node.get("linear_before_reset", 0)),
        ("computed weights", not node.attrs["torch_weights"]),
    ]
    for what, found in odd:
        if found:
            raise OnnxOperatorError(f"{node.op} with {what} has no torch counterpart")


def gates(node: Node, weights: Sequence[np.ndarray[Any, Any] | None]) -> list[np.ndarray[Any, Any]]:
    """Weights per direction as torch wants them: input, recurrent, and the two biases.

    Args:
        weights: ONNX's ``W [D,G*H,I]``, ``R [D,G*H,H]`` and ``B [D,2*G*H]`` (or None).
    """
    order = _ORDERS[node.op]
    w, r, b = weights
    hidden = int(node.attrs["hidden_size"])
    if w is None or r is None:
        return []

    def reordered(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.concatenate([matrix[g * hidden : (g + 1) * hidden] for g in order])

    made: list[np.ndarray[Any, Any]] = []
    for way in range(w.shape[0]):
        made += [reordered(w[way]), reordered(r[way])]
        if b is not None:
            half = len(order) * hidden
            made += [reordered(b[way][:half]), reordered(b[way][half:])]
    return made
