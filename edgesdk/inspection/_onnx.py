"""ONNX and ``.ort`` files: signature, parameters, multiply-accumulates and operators, without torch or ONNX Runtime."""

from __future__ import annotations

import contextlib
import math
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgesdk.artifacts import Dim, Size, TensorSpec
from edgesdk.errors import InputError, missing_library
from edgesdk.inspection._flatbuffer import Damaged, Table, root
from edgesdk.inspection._result import UNKNOWN

# onnx.TensorProto.DataType
_DTYPES: Final = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string",
                  9: "bool", 10: "float16", 11: "float64", 14: "complex64", 16: "bfloat16"}  # fmt: skip
_FLOATS: Final = frozenset({1, 10, 11, 16})
_SMALL: Final = frozenset({2, 3, 17, 18, 19, 20, 21, 22})  # 8- and 4-bit types that quantized weights have
# Inputs that are statistics or scales, not trained numbers: operator → positions.
_NOT_TRAINED: Final = {
    "BatchNormalization": (3, 4), "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), "Resize": (1, 2, 3),
    "Clip": (1, 2), "Pad": (2,), "QLinearConv": (1, 2, 4, 5, 6, 7), "QLinearMatMul": (1, 2, 4, 5, 6, 7),
}  # fmt: skip
# An ONNX file says no bound for a free dimension; 2³¹-1 is what PyTorch writes for "none".
NO_BOUND: Final = 2**31 - 1


@dataclass(frozen=True)
class OnnxFacts:
    """What an ONNX graph says about itself. ``dtypes`` are those of all values that are known."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: int | None
    macs: int | None
    operators: Mapping[str, int]
    domains: frozenset[str] = frozenset()
    details: Mapping[str, Any] = field(default_factory=dict)


def read_onnx(path: Path, given: Sequence[TensorSpec] = ()) -> OnnxFacts:
    """Read a ``.onnx``; weights in a second file are counted, not read.

    Args:
        given: inputs as the user wants them (``--input``): open sizes become theirs, the least of a range.

    Raises:
        InputError: it is damaged.
        MissingToolError: onnx isn't installed.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # no stubs, and one class
    except ImportError as exc:
        raise missing_library("onnx", "onnx", f"reading {path}") from exc
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except DecodeError as exc:
        raise _damaged(path, "ONNX", "its protobuf message can't be read") from exc
    proto = _inlined(proto, path)
    weights = {t.name for t in proto.graph.initializer}
    inputs = tuple(_spec(v) for v in proto.graph.input if v.name not in weights)
    said = {spec.name: spec for spec in given}
    for value in proto.graph.input:
        _settle(value, said.get(value.name))
    nodes = list(_nodes(proto.graph))
    shapes = _shapes(proto)
    return OnnxFacts(
        inputs=tuple(said.get(spec.name, spec) for spec in inputs),
        outputs=tuple(_spec(v) for v in proto.graph.output),
        parameters=_parameters(proto.graph, nodes),
        macs=_macs(nodes, shapes),
        operators=Counter(_operator(n.domain, n.op_type) for n in nodes),
        domains=frozenset(n.domain for n in nodes) - {"", "ai.onnx"},
        details={
            "opset": next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), None),
            "ir_version": proto.ir_version,
            "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
        },
    )


def _inlined(proto: Any, path: Path) -> Any:
    """The model with its own functions written out: their operators are what a runtime must know."""
    from onnx.checker import ValidationError
    from onnx.inliner import inline_local_functions

    if not proto.functions:
        return proto
    try:
        return inline_local_functions(proto)
    except (ValidationError, RuntimeError) as exc:  # functions that call each other in a circle, or take other inputs
        raise _damaged(path, "ONNX", "its functions can't be written out") from exc


def _damaged(path: Path, kind: str, problem: str) -> InputError:
    return InputError(
        "damaged_file", f"{path} is damaged: it begins like {kind}, but {problem}.",
        why="The download or copy was probably cut short.", fix="Get the file again, or export the model again.",
    )  # fmt: skip


def _operator(domain: str, name: str) -> str:
    return name if domain in ("", "ai.onnx") else f"{domain}.{name}"


def _nodes(graph: Any) -> Iterator[Any]:
    """All nodes, those in branches and loop bodies too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _nodes(inner)


def _spec(value: Any) -> TensorSpec:
    kind = value.type.tensor_type
    dtype = _DTYPES.get(kind.elem_type, UNKNOWN)
    if not kind.HasField("shape"):
        return TensorSpec(value.name, dtype, None)
    return TensorSpec(value.name, dtype, tuple(_size(d) for d in kind.shape.dim))


def _size(dim: Any) -> Size:
    return int(dim.dim_value) if _fixed(dim) else Dim(1, NO_BOUND, dim.dim_param or None)


def _fixed(dim: Any) -> bool:
    """Some exporters (Paddle's) write an open size as -1."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def _settle(value: Any, spec: TensorSpec | None) -> None:
    """Give the graph the sizes that the user named."""
    dims = value.type.tensor_type.shape.dim
    if spec is None or spec.shape is None or len(dims) != len(spec.shape):
        return
    for dim, size in zip(dims, spec.shape, strict=True):
        if not _fixed(dim):
            dim.dim_value = size.min if isinstance(size, Dim) else size


def _parameters(graph: Any, nodes: Sequence[Any]) -> int:
    """Float weights of at least one dimension, and quantized ones, without statistics, scales and single numbers.

    Weights are initializers; some exporters (Paddle, OpenVINO) write them as Constant nodes instead.
    """
    excluded = {
        name for node in nodes for place in _NOT_TRAINED.get(node.op_type, ()) for name in node.input[place : place + 1]
    }
    named = [(t.name, t) for part in (graph, *_graphs(nodes)) for t in part.initializer]
    constants = [(n.output[0], a.t) for n in nodes if n.op_type == "Constant" for a in n.attribute if a.HasField("t")]
    named += [(name, t) for name, t in constants if math.prod(t.dims) > 1]  # the others are factors and exponents
    return sum(math.prod(tensor.dims) for name, tensor in named if name not in excluded and _is_weight(tensor))


def _is_weight(tensor: Any) -> bool:
    return len(tensor.dims) >= (1 if tensor.data_type in _FLOATS else 2) and tensor.data_type in _FLOATS | _SMALL


def _graphs(nodes: Iterable[Any]) -> Iterator[Any]:
    """Branches and loop bodies."""
    for node in nodes:
        for attribute in node.attribute:
            yield from (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)


# --- multiply-accumulates ---------------------------------------------------------------------------------------------

Shapes = dict[str, tuple[int, ...]]


def _shapes(proto: Any) -> Shapes:
    """Sizes of every value that ONNX's own inference can tell; the first dimension counts as 1 where it is free."""
    import onnx

    known = proto
    # Shapes that can't be inferred only cost us the count of multiply-accumulates.
    with contextlib.suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        known = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    graph = known.graph
    found: Shapes = {t.name: tuple(t.dims) for t in graph.initializer}
    constants = (n for n in graph.node if n.op_type == "Constant")
    found |= {n.output[0]: tuple(a.t.dims) for n in constants for a in n.attribute if a.HasField("t")}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if not value.type.tensor_type.HasField("shape"):
            continue
        dims = value.type.tensor_type.shape.dim
        sizes = [d.dim_value if _fixed(d) else (1 if i == 0 else 0) for i, d in enumerate(dims)]
        if all(sizes) or not sizes:
            found.setdefault(value.name, tuple(sizes))
    return found


_COUNTED: Final = frozenset({
    "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul",
    "LSTM", "GRU", "RNN",
})  # fmt: skip


def _macs(nodes: Iterable[Any], shapes: Shapes) -> int | None:
    total = 0
    for node in nodes:
        if node.op_type in _COUNTED and node.domain in ("", "ai.onnx"):
            found = _macs_of(node, shapes)
            if found is None:
                return None
            total += found
    return total


def _macs_of(node: Any, shapes: Shapes) -> int | None:
    weight_at = {"QLinearConv": 3, "QLinearMatMul": 3}.get(node.op_type, 1)
    data, weight, out = (shapes.get(name) for name in (node.input[0], node.input[weight_at], node.output[0] or "-"))
    if data is None or weight is None:
        return None
    if node.op_type in ("LSTM", "GRU", "RNN"):
        recurrent = shapes.get(node.input[2])
        steps = math.prod(data[:2])
        return None if recurrent is None else steps * (math.prod(weight) + math.prod(recurrent))
    if node.op_type == "ConvTranspose":
        return math.prod(data) * math.prod(weight[1:])
    if out is None:
        return None
    if "Conv" in node.op_type:
        return math.prod(out) * math.prod(weight[1:])
    transposed = node.op_type == "Gemm" and any(a.name == "transA" and a.i for a in node.attribute)
    return math.prod(out) * (data[0] if transposed else data[-1])


# --- ORT format -------------------------------------------------------------------------------------------------------


def read_ort(path: Path) -> OnnxFacts:
    """Read a ``.ort`` (onnxruntime/core/flatbuffers/schema/ort.fbs).

    Raises:
        InputError: it is damaged.
    """
    try:
        return _ort(root(path.read_bytes()))
    except (Damaged, struct.error, IndexError, RecursionError) as exc:
        raise _damaged(path, "ONNX Runtime's own format", str(exc)) from exc


def _ort(session: Table) -> OnnxFacts:
    model = session.table(1)
    graph = model.table(7) if model else None
    if model is None or graph is None:
        raise Damaged("it has no graph")
    weights = list(graph.tables(0))
    specs = {v.text(0): v for v in graph.tables(1)}
    nodes = list(graph.tables(2))
    names = [_operator(n.text(2), n.text(5)) for n in nodes]
    return OnnxFacts(
        inputs=tuple(_ort_spec(n, specs.get(n)) for n in graph.texts(5)),
        outputs=tuple(_ort_spec(n, specs.get(n)) for n in graph.texts(6)),
        parameters=sum(math.prod(t.numbers(2, "q")) for t in weights if t.number(3, "i") in _FLOATS and t.length(2, 8)),
        macs=None,
        operators=Counter(names),
        domains=frozenset(n.text(2) for n in nodes) - {"", "ai.onnx"},
        details={
            "ort_version": session.text(0),
            "opset": next((o.number(1, "q") for o in model.tables(1) if o.text(0) in ("", "ai.onnx")), None),
        },
    )


def _ort_spec(name: str, value: Table | None) -> TensorSpec:
    info = value.table(2) if value else None
    tensor = info.table(2) if info and info.number(1, "B") == 1 else None
    if tensor is None:
        return TensorSpec(name, UNKNOWN, None)
    shape = tensor.table(1)
    dims = None if shape is None else tuple(_ort_dim(d) for d in shape.tables(0))
    return TensorSpec(name, _DTYPES.get(tensor.number(0, "i"), UNKNOWN), dims)


def _ort_dim(dim: Table) -> Size:
    value = dim.table(0)
    fixed = value is not None and value.number(0, "b") == 1
    if value is not None and fixed:
        return value.number(1, "q")
    return Dim(1, NO_BOUND, (value.text(2) or None) if value else None)
