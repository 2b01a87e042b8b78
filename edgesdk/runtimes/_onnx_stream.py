"""An ONNX file in pieces: the bytes that protobuf would write, without a message and a string that hold all weights again.

Protobuf writes the fields of a message by their numbers, and one that is a message or bytes as tag, length and contents
(https://protobuf.dev/programming-guides/encoding). A model's graph, its initializers and their ``raw_data`` are such fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

_LARGE = 1 << 16
"""Bytes from which a weight is written by itself."""
# Field numbers of onnx.proto.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9

Pieces = list[Any]
"""bytes, or a tensor whose bytes are made when they are written."""


def serialized(model: ir.Model) -> Iterator[bytes]:
    """The file's bytes, piece by piece; equal to ``ir.to_proto(model).SerializeToString(deterministic=True)``."""
    for piece in _model(*split(model)):
        yield piece if isinstance(piece, bytes) else piece.tobytes()


def split(model: ir.Model) -> tuple[Any, dict[str, Any]]:
    """A ``ModelProto`` in which large weights are empty, and these by name."""
    import onnx_ir as ir

    initializers = model.graph.initializers
    large = {name: value.const_value for name, value in initializers.items() if _is_large(value.const_value)}
    for name, tensor in large.items():
        initializers[name].const_value = _hollow(name, tensor)
    try:
        return ir.to_proto(model), large
    finally:
        for name, tensor in large.items():
            initializers[name].const_value = tensor


def _is_large(tensor: Any) -> bool:
    """Whether it is large, and written as ``raw_data``: one from a user's file is written as it is there."""
    import onnx_ir as ir

    if tensor is None or tensor.nbytes < _LARGE or tensor.dtype == ir.DataType.STRING:
        return False
    return not isinstance(tensor, ir.serde.TensorProtoTensor) or bool(tensor.raw.HasField("raw_data"))


def _hollow(name: str, tensor: Any) -> Any:
    """The same tensor without contents."""
    import onnx_ir as ir

    class Hollow(ir.LazyTensor):
        def tobytes(self) -> bytes:
            return b""

    return Hollow(
        tensor.numpy, dtype=tensor.dtype, shape=tensor.shape, name=name, doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )  # fmt: skip


def _model(proto: Any, large: dict[str, Any]) -> Pieces:
    graph = proto.graph
    tensors: Pieces = []
    for tensor in graph.initializer:
        pieces = (
            _tensor(tensor, large[tensor.name])
            if tensor.name in large
            else [tensor.SerializeToString(deterministic=True)]
        )
        tensors += _field(_INITIALIZER, pieces)
    before, after = _around(graph, _INITIALIZER)
    inside = [before, *tensors, after]
    before, after = _around(proto, _GRAPH)
    return [before, *_field(_GRAPH, inside), after]


def _tensor(proto: Any, weight: Any) -> Pieces:
    before, after = _around(proto, _RAW_DATA)
    return [before, *_field(_RAW_DATA, [weight]), after]


def _around(message: Any, number: int) -> tuple[bytes, bytes]:
    """The fields of a message before and behind the one of that number."""
    parts = []
    for behind in (False, True):
        part = type(message)()
        for field, value in message.ListFields():
            if field.number == number or (field.number > number) != behind:
                continue
            if isinstance(value, (bool, int, float, str, bytes)):
                setattr(part, field.name, value)
            elif hasattr(value, "extend"):
                getattr(part, field.name).extend(value)
            else:
                getattr(part, field.name).CopyFrom(value)
        parts.append(part.SerializeToString(deterministic=True))
    return parts[0], parts[1]


def _field(number: int, pieces: Pieces) -> Pieces:
    size = sum(len(p) if isinstance(p, bytes) else p.nbytes for p in pieces)
    return [_varint(number << 3 | 2) + _varint(size), *pieces]


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
