"""float16 weights in an ONNX graph that was made elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgesdk.artifacts import Warn

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
    more = f" {kept} of them stayed float32, being beyond float16's range." if kept else ""
    return Warn("fp16_storage", f"Weights are stored as float16 and computed in float32, as the ONNX graph says.{more}")


def _narrow(graph: ir.Graph, value: ir.Value) -> bool:
    """False when float16 can't hold the weight, or when it is an output of the graph."""
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
