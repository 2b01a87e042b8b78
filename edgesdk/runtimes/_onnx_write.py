"""Write an ONNX graph: no paths of this machine, the oldest file version that carries it, one file where possible."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Warn
from edgesdk.runtimes import _onnx_stream
from edgesdk.runtimes._onnx_versions import lowest_ir

if TYPE_CHECKING:
    import onnx_ir as ir

# Element types that an older file version doesn't know: float8 (9), int4 (10), float4 and newer (11+).
_NEW_TYPES = frozenset(range(17, 40))
_SMALL_CONSTANT = 32
"""Constants below this many elements are axes, shapes and scalars, and stay nodes."""
_INLINE_BYTES = 1024
"""Tensors below this stay in the graph: shapes and axes must be readable for the runtime's optimizer."""


def strip(model: ir.Model) -> None:
    """Drop stack traces, module names and inner shapes: they hold paths, and the runtime infers shapes itself."""
    model.metadata_props.clear()
    model.doc_string = None
    for graph in graphs(model):
        graph.metadata_props.clear()
        graph.doc_string = None
        for value in (*graph.inputs, *graph.outputs, *graph.initializers.values()):
            _strip_value(value)
        kept = {id(value) for value in graph.outputs}
        for node in graph:
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                _strip_value(value)
                if id(value) not in kept:
                    value.shape = value.type = None
    _number_nodes(model)


def _strip_value(value: ir.Value) -> None:
    value.metadata_props.clear()
    value.doc_string = None


def _number_nodes(model: ir.Model) -> None:
    """Names from the exporter count what happened before in the process; ours only what is in the file."""
    counts: dict[str, int] = {}
    for graph in graphs(model):
        for node in graph:
            number = counts[node.op_type] = counts.get(node.op_type, -1) + 1
            node.name = f"{node.op_type}_{number}"


def graphs(model: ir.Model) -> Iterator[Any]:
    yield model.graph
    yield from model.graph.subgraphs()
    for function in model.functions.values():
        yield function.graph
        yield from function.graph.subgraphs()


def clamp(model: ir.Model) -> None:
    """Lower the file version to the oldest that can carry the opset and the element types."""
    if not any(t in _NEW_TYPES for t in _element_types(model)):
        model.ir_version = min(model.ir_version, lowest_ir(model.opset_imports.get("", 0)))


def _element_types(model: ir.Model) -> Iterable[int]:
    for graph in graphs(model):
        for value in (*graph.inputs, *graph.initializers.values()):
            if value.dtype is not None:
                yield int(value.dtype)


def lift_weights(model: ir.Model) -> None:
    """Turn weights that are Constant nodes into initializers: only those can be quantized or kept outside."""
    from onnx_ir.passes.common import LiftConstantsToInitializersPass

    LiftConstantsToInitializersPass(size_limit=_SMALL_CONSTANT)(model)


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all weights."""
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def write(model: ir.Model, out: Path, external_above: int) -> tuple[tuple[Path, ...], tuple[Warn, ...]]:
    """Write the model; weights go into ``NAME.onnx.data`` beside it when they exceed ``external_above`` bytes.

    Returns:
        the further files, and what to tell the user about them.
    """
    import onnx_ir as ir

    temporary = out.with_name(out.name + ".part")
    try:
        if weight_bytes(model) <= external_above:
            ir.external_data.load_to_model(model)  # a user's file may come with its weights outside
            with temporary.open("wb") as file:
                file.writelines(_onnx_stream.serialized(model))
            temporary.replace(out)
            return (), ()
        return _write_two(model, out, temporary)
    finally:
        temporary.unlink(missing_ok=True)


def _write_two(model: ir.Model, out: Path, temporary: Path) -> tuple[tuple[Path, ...], tuple[Warn, ...]]:
    """Weights first, under their final name inside a folder of their own: the graph refers to them by name."""
    import onnx_ir as ir

    weights = out.with_name(out.name + ".data")
    folder = out.with_name(out.name + ".parts")
    folder.mkdir()
    try:
        ir.save(model, folder / out.name, external_data=weights.name, size_threshold_bytes=_INLINE_BYTES)
        (folder / weights.name).replace(weights)
        (folder / out.name).replace(temporary)
        temporary.replace(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return (weights,), (
        Warn(
            "external_data",
            f"The weights are in a second file, {weights.name}, which must lie beside {out.name}. Phones rarely have "
            "room for a model of this size.",
        ),
    )


def operators(model: ir.Model) -> dict[str, int]:
    """Number of nodes by ``domain.Operator``; the standard domain is left out: ``{"Conv": 52}``."""
    counts: dict[str, int] = {}
    for graph in graphs(model):
        for node in graph:
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            counts[name] = counts.get(name, 0) + 1
    return counts


def has_half(model: ir.Model) -> bool:
    """Whether any weight is float16 already."""
    import onnx_ir as ir

    return any(v.dtype == ir.DataType.FLOAT16 for v in model.graph.initializers.values())
