"""Dynamic int8: linear and recurrent layers whose activations are quantized on the fly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._fx import _pack
from edgesdk.quantize._fx._finite import BEHIND, INFINITE, behind_broken, finite
from edgesdk.quantize._fx._graph import Work, is_float, op_name
from edgesdk.quantize._fx._normal import Constants
from edgesdk.quantize._fx._report import Made

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

_BIAS = "some of its bias is infinite, not a number or beyond 1e30"
_LINEAR = _pack.Geometry(0)
ON_THE_FLY = "int8 weights; activations are quantized on the fly"
_LARGE_SCALE = 1.0  # of activations, for the width of the bias; here the bias is added in float


def linears(work: Work, keep: Collection[str], per_channel: bool, made: Made) -> None:
    """Put ``quantized::linear_dynamic`` in the place of linear layers with constant weights."""
    values = Constants(work)
    broken = behind_broken(work, values)
    for node in list(work.graph.nodes):
        if node.op != "call_function" or op_name(node.target) != "linear" or "layer" not in node.meta:
            continue
        name, size = node.meta["layer"], node.meta["bytes"]
        weight, bias = values.get(node.args[1]), _bias(node, values)
        if name in keep:
            made.kept(name, "linear", size)
        elif weight is None or (bias is None and len(node.args) > 2 and node.args[2] is not None):
            made.float32(name, "linear", size, "its weights are computed while the model runs")
        elif not is_float(node.args[0]) or node.args[0].meta["val"].dim() < 2:
            made.float32(name, "linear", size, "its input has no batch dimension")
        elif reason := _pack.unfit(weight):
            made.float32(name, "linear", size, reason)
        elif not finite(weight):
            made.float32(name, "linear", size, INFINITE)
        elif node in broken:
            made.float32(name, "linear", size, BEHIND if finite(bias) else _BIAS)
        else:
            new, tail = linear(work, node, weight, bias, per_channel)
            made.int8(name, "linear", size, node=new, tail=tail)


def linear(
    work: Work, node: Node, weight: torch.Tensor, bias: torch.Tensor | None, per_channel: bool
) -> tuple[str, str]:
    """Replace one linear layer; the names of the new node and of the one whose value it makes."""
    import torch

    q = torch.ops.quantized
    user = next(iter(node.users))
    relu = len(node.users) == 1 and op_name(user.target) == "relu"
    tail, target = (user, q.linear_relu_dynamic.default) if relu else (node, q.linear_dynamic.default)
    new = work.insert(tail, target, (node.args[0], work.add(_packed(weight, bias, per_channel)), False))
    new.meta["from"] = node.name
    tail.replace_all_uses_with(new)
    return new.name, tail.name


def _bias(node: Node, values: Constants) -> torch.Tensor | None:
    return values.get(node.args[2]) if len(node.args) > 2 else None


def _packed(weight: torch.Tensor, bias: torch.Tensor | None, per_channel: bool) -> Any:
    return _pack.prepack(_pack.quantize_weight(weight, None, _LINEAR, _LARGE_SCALE, per_channel), bias, _LINEAR)


# -- recurrent layers -------------------------------------------------------------------------------------------------


def recurrent(work: Work, keep: Collection[str], per_channel: bool, made: Made) -> None:
    """LSTM and GRU with int8 weights, one engine call for the whole sequence, as the float operator was."""
    values = Constants(work)
    broken = behind_broken(work, values)
    for node in list(work.graph.nodes):
        name = op_name(node.target) if node.op == "call_function" else ""
        if name not in ("lstm", "gru") or "layer" not in node.meta:
            continue
        layer, size = node.meta["layer"], node.meta["bytes"]
        reason = BEHIND if node in broken else _recurrent(work, node, name, values, per_channel, layer in keep)
        if layer in keep:
            made.kept(layer, name, size)
        elif reason:
            made.float32(layer, name, size, reason)
        else:
            made.int8(layer, name, size, ON_THE_FLY, node.name, node.name)


def _recurrent(work: Work, node: Node, name: str, values: Constants, per_channel: bool, kept: bool) -> str | None:
    """Do it, or say why not."""
    import torch

    aten = torch.ops.aten
    if kept:
        return None
    if node.target not in (aten.lstm.input, aten.gru.input):
        return "packed sequences have no int8 kernel"
    x, state, weights, has_biases, layers, _, _, both, batch_first = node.args
    tensors = [values.get(w) for w in weights]  # type: ignore[union-attr]
    if any(t is None for t in tensors):
        return "its weights are computed while the model runs"
    if reasons := [r for r in (_pack.unfit(t) for t in tensors if t is not None and t.dim() == 2) if r]:
        return reasons[0]
    each = 4 if has_biases else 2
    cells: int = layers * (2 if both else 1)  # type: ignore[assignment,operator]
    if len(tensors) != each * cells:
        return "projected states have no int8 kernel"
    groups = [tensors[i * each : (i + 1) * each] for i in range(cells)]
    params = work.add([_cell(group, per_channel) for group in groups])
    args = (x, state, params, True, layers, 0.0, False, both, batch_first)  # biases of zeros where there are none
    target: Any = torch.ops.aten
    if name == "lstm":
        node.target, node.args = target.quantized_lstm.input, args
        node.kwargs = {"dtype": torch.qint8, "use_dynamic": True}
    else:
        node.target, node.args = target.quantized_gru.input, args
    return None


def _cell(tensors: Sequence[Any], per_channel: bool) -> Any:
    import torch

    w_ih, w_hh, *biases = tensors
    b_ih, b_hh = biases or (torch.zeros(len(w_ih)), torch.zeros(len(w_hh)))
    b_ih, b_hh = b_ih.contiguous(), b_hh.contiguous()
    packed = (_packed(w_ih, b_ih, per_channel), _packed(w_hh, b_hh, per_channel))
    return torch.ops.quantized.make_quantized_cell_params_dynamic(*packed, b_ih, b_hh, False)
