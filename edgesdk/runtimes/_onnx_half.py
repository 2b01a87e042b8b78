"""float16 in ONNX graphs: weights of a graph that was made elsewhere, and what ONNX Runtime can't load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Warn
from edgesdk.runtimes._fp16 import NORMAL

if TYPE_CHECKING:
    import onnx_ir as ir

_SMALL = 256
"""Weights with fewer elements stay float32: a cast would cost more than the bytes."""


def store_half(model: ir.Model) -> Warn:
    """Keep float32 weights as float16 and cast them back where they are used; the runtime folds the casts at load.

    Converting the arithmetic too would need kernels that ONNX Runtime's CPU lacks (GRU crashed it), and overflows
    where a graph wasn't trained for it: a text detector came out off by five orders of magnitude.
    """
    import onnx_ir as ir

    ir.external_data.load_to_model(model)
    kept = 0
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in list(graph.initializers.values()):
            if value.dtype == ir.DataType.FLOAT and value.const_value is not None and value.const_value.size >= _SMALL:
                kept += not _narrow(graph, value)
    more = f" {kept} of them stayed float32, being outside float16's range." if kept else ""
    return Warn("fp16_storage", f"Weights are stored as float16 and computed in float32, as the ONNX graph says.{more}")


def _narrow(graph: ir.Graph, value: ir.Value) -> bool:
    """False when float16 can't hold the weight (too large, or all of it below its normal numbers), or when it is an output of the graph."""
    import numpy as np
    import onnx_ir as ir

    name = value.name
    if name is None or value.const_value is None or value.is_graph_output() or value.is_graph_input():
        return False
    wide = value.const_value.numpy()
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float16)
    if not np.array_equal(np.isfinite(narrow), np.isfinite(wide)):
        return False
    if np.abs(wide).max(where=np.isfinite(wide), initial=0.0) < NORMAL and not np.array_equal(narrow, wide):
        return False
    cast = ir.node("Cast", [value], {"to": ir.DataType.FLOAT.value})
    wider = cast.outputs[0]
    for user, index in list(value.uses()):
        if user is not cast:
            user.replace_input_with(index, wider)
    graph.initializers.pop(name)
    value.name, wider.name = f"{name}_half", name
    value.const_value, value.dtype = ir.tensor(narrow, name=value.name), ir.DataType.FLOAT16
    graph.initializers.add(value)
    graph.insert_before(graph[0], cast)
    return True


def equal_ranks(model: ir.Model) -> None:
    """Weights behind a transposed factor get its rank; the runtime folds that at load.

    ONNX Runtime (1.32) merges the transposition into the product, has no float16 kernel for what comes out, and ends with
    SIGSEGV while it widens a weight of another rank (``FuseFp16InitializerToFp32NodeTransformer``).
    """
    import numpy as np
    import onnx_ir as ir

    for node, index, rank in list(_transposed_products(model)):
        weight: Any = node.inputs[index]
        sizes = [1] * (rank - len(weight.shape)) + [int(size) for size in weight.shape]
        shape = ir.Value(name=f"{weight.name}_for_{node.outputs[0].name}")
        shape.const_value = ir.tensor(np.array(sizes, np.int64), name=shape.name)
        shape.dtype, shape.shape = ir.DataType.INT64, ir.Shape([rank])
        model.graph.initializers.add(shape)
        longer = ir.node("Reshape", [weight, shape])
        longer.outputs[0].name = f"{shape.name}_longer"
        model.graph.insert_before(node, longer)
        node.replace_input_with(index, longer.outputs[0])


def _transposed_products(model: ir.Model) -> Iterator[tuple[ir.Node, int, int]]:
    """Products of a transposed tensor and a weight of lower rank: the node, the weight's place, the tensor's rank."""
    for node in model.graph:
        if node.op_type != "MatMul" or node.domain:
            continue
        for index in (0, 1):
            weight, rank = node.inputs[index], _transposed_rank(node.inputs[1 - index])
            if weight is None or not weight.is_initializer() or weight.dtype != _half() or weight.shape is None:
                continue
            if rank is not None and 2 <= len(weight.shape) < rank:
                yield node, index, rank


def _half() -> ir.DataType:
    import onnx_ir as ir

    return ir.DataType.FLOAT16


def _transposed_rank(value: ir.Value | None) -> int | None:
    """Rank of what a transposition gave; None for everything else."""
    maker = value.producer() if value is not None else None
    while maker is not None and maker.op_type in ("Cast", "Identity") and not maker.domain:
        before = maker.inputs[0]
        maker = before.producer() if before is not None else None
    if maker is None or maker.op_type != "Transpose" or "perm" not in maker.attributes:
        return None
    return len(maker.attributes["perm"].as_ints())
