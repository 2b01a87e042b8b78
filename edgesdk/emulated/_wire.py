"""Tensors and messages as ``native/wire.h`` has them: little-endian, through two pipes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgesdk.errors import UnsupportedError

# ScalarType of runtime/core/portable_type/scalar_type.h (executorch 1.5.1), as NumPy calls it.
_DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 9: "complex64",
    11: "bool", 15: "bfloat16", 27: "uint16", 28: "uint32", 29: "uint64",
}  # fmt: skip
_CODES = {name: code for code, name in _DTYPES.items()}
_NUMBERS = {240: "int64", 241: "float64", 242: "bool"}  # a plain number among the inputs

Read = Callable[[int], bytes]
"""Exactly so many bytes; raises when there are fewer."""


@dataclass(frozen=True)
class Greeting:
    """What a runner says of the file that it has loaded.

    Attributes:
        inputs: name (empty where the file has none) and dtype of each input; the dtype of a plain number is that of the
            array of rank 0 that stands for it; None when it is no tensor.
        outputs: names, empty where the file has none.
        version: of the engine; empty where it doesn't say.
        features: of the processor that the engine sees.
    """

    inputs: tuple[tuple[str, str | None], ...]
    outputs: tuple[str, ...]
    version: str
    features: tuple[str, ...]


def greeting(read: Read) -> Greeting:
    inputs = []
    for _ in range(_number(read, "<I")):
        code = _number(read, "<B")
        inputs.append((text(read), _DTYPES.get(code, _NUMBERS.get(code))))
    outputs = [text(read) for _ in range(_number(read, "<I"))]
    return Greeting(tuple(inputs), tuple(outputs), text(read), tuple(text(read).split()))


def text(read: Read) -> str:
    return read(_number(read, "<I")).decode("utf-8", "replace")


def request(arrays: Sequence[np.ndarray], dtypes: Sequence[str]) -> list[bytes | memoryview]:
    """The pieces of "run with these"; a dtype is the one on the wire, where bfloat16 differs from the array's float32."""
    pieces: list[bytes | memoryview] = [b"R" + struct.pack("<I", len(arrays))]
    for array, dtype in zip(arrays, dtypes, strict=True):
        held = np.ascontiguousarray(to_bfloat16(array) if dtype == "bfloat16" else array)
        head = struct.pack(f"<BB{array.ndim}qQ", _CODES[dtype], array.ndim, *array.shape, held.nbytes)
        pieces += [head, held.reshape(-1).view(np.uint8).data]
    return pieces


def knows(dtype: str) -> bool:
    return dtype in _CODES


def answer(read: Read) -> list[np.ndarray]:
    """The outputs, each owned by the caller."""
    return [_tensor(read) for _ in range(_number(read, "<I"))]


def _tensor(read: Read) -> np.ndarray:
    code = _number(read, "<B")
    dtype = _DTYPES.get(code)
    if dtype is None:
        raise UnsupportedError(
            "unsupported_dtype", f"An output has the dtype {code} of ExecuTorch's ScalarType, which NumPy doesn't hold.",
            why="It is a quantized or packed type inside.", fix="End the model with a dequantization, or a cast.",
        )  # fmt: skip
    rank = _number(read, "<B")
    shape = struct.unpack(f"<{rank}q", read(8 * rank))
    data = bytearray(read(_number(read, "<Q")))
    if dtype == "bfloat16":
        return from_bfloat16(np.frombuffer(data, np.uint16)).reshape(shape)
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape)


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """float32 → the upper 16 bits, rounded to nearest, ties to even; NaN stays NaN."""
    bits: np.ndarray = array.astype(np.float32, copy=False).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    found: np.ndarray = np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)
    return found


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """The float32 values of bfloat16's bits, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _number(read: Read, form: str) -> Any:
    return struct.unpack(form, read(struct.calcsize(form)))[0]
