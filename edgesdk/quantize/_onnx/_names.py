"""Names of layers that mean something to the user and are the same in every call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from edgesdk.runtimes._onnx_write import graphs

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from torch.export import ExportedProgram

    Array = np.ndarray
    Alike = Callable[[Array, Array], bool]

# Prefixes that ONNX Runtime's fusions put before a weight's name (core/optimizer/conv_*_fusion.cc and others).
_FUSED = re.compile(r"^(?:ConvBnFusion_W_|ConvMulFusion_W_|ConvAddFusion_Add_B_|MatMulBnFusion_\w+?_)+")
# Names that exporters make up.
_MADE_UP = re.compile(r"^(?:\d+|val_\d+|onnx::.*|/?Constant.*|.*/Constant_\d+_output_0|.*_output_\d+|_?to_copy.*)$")
_ALIKE = 0.9999
"""Cosine of two filters that are the same but for a folded factor; float32 rounding leaves 1e-6."""


def weight_name(value: str, node: str) -> str:
    """The path of a layer from its weight's name; the node's name when the weight has none of its own."""
    plain = _FUSED.sub("", value)
    if _MADE_UP.match(plain):
        return node
    plain = re.sub(r"\.weight_(?:ih|hh)_l0(?:_reverse)?$", "", plain)
    plain = re.sub(r"\.weight_(?:ih|hh)_(l\d+)(?:_reverse)?$", r".\1", plain)
    return plain.removesuffix(".weight")


def complete(model: ir.Model) -> None:
    """Give every node a name of its own; names that the file came with stay."""
    taken: set[str] = set()
    for graph in graphs(model):
        for number, node in enumerate(graph):
            name = node.name or f"{node.op_type}_{number}"
            while name in taken:
                name = f"{name}_{number}"
            node.name = name
            taken.add(name)


def restore(model: ir.Model, program: ExportedProgram) -> None:
    """Call weights as the state dict does: exporters transpose, fold and number them.

    A weight is recognized by its numbers: each filter points in the same direction as the state dict's, for batch norm
    only scales it. Recurrent weights have their gates in another order.
    """
    left = dict(_candidates(program))
    waiting = list(_unnamed(model, left))
    # One that merely looks alike must not take the name of an equal one.
    for alike in (_equal, _same_direction, _maybe):
        for node, value in list(waiting):
            name = _match(node, value.const_value.numpy(), left, alike)
            if name is not None:
                del left[name]
                waiting.remove((node, value))
                _rename(model, value, name)


def _candidates(program: ExportedProgram) -> Iterator[tuple[str, Array]]:
    import torch

    for name, tensor in program.state_dict.items():
        if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32 and tensor.dim() >= 2:
            yield name, tensor.detach().cpu().numpy()


def _unnamed(model: ir.Model, known: dict[str, Array]) -> Iterator[tuple[ir.Node, Any]]:
    import onnx_ir as ir

    seen: set[str] = set()
    for name in model.graph.initializers:
        known.pop(name, None)
    for node in model.graph:
        for value in node.inputs:
            if value is None or value.name in seen or value.name not in model.graph.initializers:
                continue
            tensor = value.const_value
            if tensor is None or tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) < 2:
                continue
            if _MADE_UP.match(str(value.name)):
                seen.add(str(value.name))
                yield node, value


def _match(node: ir.Node, weight: Array, left: dict[str, Array], alike: Alike) -> str | None:
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return next((name for name, array in left.items() if _same_gates(weight, array)), None)
    return next((name for name, array in left.items() if _same_filters(weight, array, alike)), None)


def _same_filters(weight: Array, array: Array, alike: Alike) -> bool:
    import numpy as np

    if weight.size != array.size:
        return False
    for axis, other in ((0, weight), (1, weight), (0, weight.T if weight.ndim == 2 else weight)):
        if other.shape != array.shape:
            continue
        a = np.moveaxis(other, axis, 0).reshape(other.shape[axis], -1)[:16]
        b = np.moveaxis(array, axis, 0).reshape(other.shape[axis], -1)[:16]
        if alike(_numbers(a), _numbers(b)):
            return True
    return False


def _numbers(rows: Array) -> Array:
    """Without what isn't one, and wide enough that squares of the largest float32 fit."""
    import numpy as np

    return np.nan_to_num(rows.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _equal(a: Array, b: Array) -> bool:
    return bool((a == b).all())


def _same_direction(a: Array, b: Array) -> bool:
    return bool(((abs(a).max(1) == 0) == (abs(b).max(1) == 0)).all()) and _maybe(a, b)


def _maybe(a: Array, b: Array) -> bool:
    """Rows of zeros may have been any: a batch norm can scale them away."""
    import numpy as np

    product = np.abs((a * b).sum(1))
    return bool((product >= _ALIKE * np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)).all())


def _same_gates(weight: Array, array: Array) -> bool:
    import numpy as np

    if array.ndim != 2 or weight.shape[1:] != array.shape:  # the first axis counts directions
        return False
    one, two = (np.sort(np.linalg.norm(w, axis=1)) for w in (weight[0], array))
    return bool(np.allclose(one, two, rtol=1e-5))


def _rename(model: ir.Model, value: Any, name: str) -> None:
    model.graph.initializers.pop(value.name)
    value.name = value.const_value.name = name
    model.graph.initializers.add(value)
