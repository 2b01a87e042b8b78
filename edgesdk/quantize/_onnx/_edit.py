"""Small edits of a graph that the schemes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgesdk.quantize._onnx._arithmetic import symmetric

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    Array = np.ndarray


def initializer(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    """Add a constant; a name that is taken gets a number."""
    import onnx_ir as ir

    plain, number = name, 1
    while name in graph.initializers:
        number += 1
        name = f"{plain}.{number}"
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    value.shape, value.dtype = ir.Shape(array.shape), ir.DataType.from_numpy(array.dtype)
    graph.initializers.add(value)
    return value


def drop_unused(graph: ir.Graph, value: Any) -> None:
    """Remove a constant that nothing reads any more."""
    if not list(value.uses()) and value.name in graph.initializers and not value.is_graph_output():
        graph.initializers.pop(value.name)


def insert(graph: ir.Graph, before: Any, op: str, inputs: list[Any], name: str, **more: Any) -> ir.Node:
    """Put a new node before another one (None: at the end). Its outputs are named after it, so that they are unique in
    branches too."""
    import onnx_ir as ir

    node = ir.node(op, inputs, name=name, **more)
    for number, value in enumerate(node.outputs):
        value.name = f"{name}/{number}"
    if before is None:
        graph.append(node)
    else:
        graph.insert_before(before, node)
    return node


def take_place(graph: ir.Graph, old: Any, new: ir.Node) -> None:
    """Let a new node's outputs replace another's under their names, and remove the other."""
    for before, after in zip(old.outputs, new.outputs, strict=True):
        name = before.name
        before.replace_all_uses_with(after, replace_graph_outputs=True)
        after.type, after.shape = before.type, before.shape
        before.name = f"{name}/before"
        after.name = name
    graph.remove(old, safe=True)


def store_int8(node: ir.Node, place: int, axes: tuple[int, ...], *, folded: bool) -> None:
    """Keep a weight as int8 in the file and give the node its float value.

    With ``folded`` by Cast and Mul, which ONNX Runtime computes once, at load: speed is that of the float file, and any
    number of axes can have scales. Without, by DequantizeLinear, which stays in a file in ``.ort`` format.

    Args:
        axes: of the weight; every index along them has its own scale.
    """
    import onnx_ir as ir

    value: Any = node.inputs[place]
    graph: Any = value.graph
    name = str(value.name)
    whole, scale = symmetric(value.const_value.numpy(), axes if folded else axes[-1:])
    sharing = [use for use in value.uses() if _same_role(use[0], use[1], node, place)]
    kept = [use for use in value.uses() if use not in sharing]
    if not kept:
        graph.initializers.pop(name)
    first = graph[0]
    q = initializer(graph, name if not kept else f"{name}/int8", whole)
    name = str(q.name)
    if folded:
        cast = insert(graph, first, "Cast", [q], attributes={"to": ir.DataType.FLOAT.value}, name=f"{name}/cast")
        s = initializer(graph, f"{name}/scale", scale)
        wide = insert(graph, first, "Mul", [cast.outputs[0], s], name=f"{name}/times")
    else:
        s = initializer(graph, f"{name}/scale", scale.reshape(-1))
        wide = insert(
            graph, first, "DequantizeLinear", [q, s], attributes={"axis": axes[-1]}, name=f"{name}/dequantize"
        )
    wide.outputs[0].name = f"{name}/float"
    for user, index in sharing:
        user.replace_input_with(index, wide.outputs[0])


def _same_role(user: Any, index: int, node: ir.Node, place: int) -> bool:
    return bool(user.op_type == node.op_type and index == place)
