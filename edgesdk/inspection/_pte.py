"""``.pte``: signature, operators, delegates and memory plan, read off the file without torch or ExecuTorch.

Field numbers are those of ``exir/_serialize/program.fbs`` and ``backends/xnnpack/serialization/schema.fbs``
(ExecuTorch 1.5); FlatBuffers only ever appends fields.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgesdk.artifacts import Dim, Size, TensorSpec
from edgesdk.errors import InputError
from edgesdk.inspection._flatbuffer import Damaged, Table, root
from edgesdk.inspection._result import UNKNOWN

# executorch/exir/_serialize/scalar_type.fbs
_DTYPES: Final = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
                  11: "bool", 15: "bfloat16", 27: "uint16"}  # fmt: skip
_TENSOR, _KERNEL_CALL, _DELEGATE_CALL = 5, 1, 2  # members of the unions KernelTypes and InstructionArguments
_SCALARS: Final = {2: ("int64", ()), 3: ("bool", ()), 4: ("float64", ())}
_SEGMENT = 1  # DataLocation
# XNodeUnion of the XNNPACK schema, from member 1 on.
_XNN: Final = (
    "Add", "FullyConnected", "Softmax", "Sigmoid", "StaticTranspose", "Clamp", "Conv2d", "Div",
    "StaticResizeBilinear2D", "StaticConstantPad", "AvgPooling2d", "Minimum", "DepthwiseConv2d",
    "MaxPooling2d", "Multiply", "Subtract", "Floor", "Convert", "GlobalAvgPooling2d", "StaticReshape",
    "ArgMaxPooling2d", "SquareRoot", "Ceiling", "Hardswish", "LeakyReLU", "Maximum", "Negate", "Square",
    "ELU", "Abs", "PReLU", "Concatenate2", "Concatenate3", "Concatenate4", "StaticSlice",
    "ScaledDotProductAttention", "BatchMatrixMultiply", "Concatenate5", "ConvTranspose2d",
    "ReciprocalSquareRoot", "Log", "Gelu", "Tanh", "Exp", "Sin", "Copy", "Cos",
)  # fmt: skip


@dataclass(frozen=True)
class Pte:
    """What an ExecuTorch program says about itself.

    Attributes:
        kernels: calls of kernels outside delegates: ``{"aten::sort.values": 1}``.
        delegated: operators inside XNNPACK delegates: ``{"xnnpack.Conv2d": 2}``; other delegates are opaque.
        delegates: delegate calls by back end.
        opaque: there are delegates whose operators can't be listed.
        planned_bytes: activation memory planned ahead.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    methods: tuple[str, ...]
    kernels: dict[str, int] = field(default_factory=dict)
    delegated: dict[str, int] = field(default_factory=dict)
    delegates: dict[str, int] = field(default_factory=dict)
    opaque: bool = False
    planned_bytes: int = 0

    @property
    def delegated_fraction(self) -> float | None:
        """Share of the operators that run in delegates; None when a delegate doesn't tell."""
        inside, outside = sum(self.delegated.values()), sum(self.kernels.values())
        return None if self.opaque or not inside + outside else inside / (inside + outside)


def read_pte(path: Path) -> Pte:
    """Read a ``.pte``.

    Raises:
        InputError: it is damaged or has no method.
    """
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            return _read(data)
    except (Damaged, struct.error, IndexError, RecursionError, BufferError) as exc:
        raise InputError(
            "damaged_file", f"{path} is damaged: it begins like an ExecuTorch program, but {exc}.",
            why="The download or copy was probably cut short.", fix="Get the file again, or make it anew with 'edgesdk package'.",
        ) from exc  # fmt: skip


def _read(data: memoryview) -> Pte:
    program = root(data)
    plans = list(program.tables(1))
    if not plans:
        raise Damaged("it has no method")
    names = tuple(plan.text(0) for plan in plans)
    plan = plans[names.index("forward") if "forward" in names else 0]
    values = list(plan.tables(2))
    calls = _Calls(program, plan, data)
    return Pte(
        inputs=_specs(values, plan.numbers(3, "i"), "input"),
        outputs=_specs(values, plan.numbers(4, "i"), "output"),
        methods=names,
        kernels=dict(calls.kernels),
        delegated=dict(calls.inside),
        delegates=dict(calls.delegates),
        opaque=calls.opaque,
        planned_bytes=sum(plan.numbers(8, "q")[1:]),  # buffer 0 is for constants
    )


def _specs(values: list[Table], places: tuple[int, ...], stem: str) -> tuple[TensorSpec, ...]:
    """A ``.pte`` has no names: ``input``, or ``input_0, input_1…``."""
    specs = []
    for i, place in enumerate(places):
        name = stem if len(places) == 1 else f"{stem}_{i}"
        specs.append(_spec(name, values[place]))
    return tuple(specs)


def _spec(name: str, value: Table) -> TensorSpec:
    kind, content = value.number(0, "B"), value.table(1)
    if kind != _TENSOR or content is None:
        dtype, shape = _SCALARS.get(kind, (UNKNOWN, None))
        return TensorSpec(name, dtype, shape)
    dynamic = content.number(8, "b") != 0
    # A dynamic tensor carries its upper bound; which of its sizes vary isn't written, so all but 1 may.
    sizes: list[Size] = [Dim(1, n) if dynamic and n > 1 else n for n in content.numbers(2, "i")]
    return TensorSpec(name, _DTYPES.get(content.number(0, "b"), UNKNOWN), tuple(sizes))


class _Calls:
    """Counts the instructions of a method."""

    def __init__(self, program: Table, plan: Table, data: memoryview) -> None:
        self.kernels: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()
        self.delegates: Counter[str] = Counter()
        self.opaque = False
        operators = [_name(operator) for operator in plan.tables(6)]
        delegates = list(plan.tables(7))
        for instruction in (i for chain in plan.tables(5) for i in chain.tables(2)):
            kind, call = instruction.number(0, "B"), instruction.table(1)
            if call is None:
                continue
            if kind == _KERNEL_CALL:
                self.kernels[operators[call.number(0, "i")]] += 1
            elif kind == _DELEGATE_CALL:
                self._delegate(program, delegates[call.number(0, "i")], data)

    def _delegate(self, program: Table, delegate: Table, data: memoryview) -> None:
        backend = delegate.text(0)
        self.delegates[backend] += 1
        payload = _payload(program, delegate, data)
        found = list(_xnnpack_operators(payload)) if backend == "XnnpackBackend" and payload is not None else []
        self.inside.update(found)
        self.opaque |= not found


def _name(operator: Table) -> str:
    name, overload = operator.text(0), operator.text(1)
    # Kernels write into a given tensor: "aten::add.out" is the user's add.
    short = overload.removesuffix("out").removesuffix("_")
    return f"{name}.{short}" if short else name


def _payload(program: Table, delegate: Table, data: memoryview) -> memoryview | None:
    where = delegate.table(1)
    if where is None:
        return None
    index = where.number(1, "I")
    if where.number(0, "b") != _SEGMENT:
        return list(program.tables(3))[index].blob(0)
    segment = list(program.tables(4))[index]
    start = _segments_at(data) + segment.number(0, "Q")
    size = segment.number(1, "Q")
    if start + size > len(data):
        raise Damaged(f"its part of {size} bytes at {start} lies beyond its end")
    return data[start : start + size]


def _segments_at(data: memoryview) -> int:
    """The extended header behind the root offset and the file identifier (exir/_serialize/_program.py)."""
    if bytes(data[8:12]) != b"eh00":
        return 0
    (offset,) = struct.unpack_from("<Q", data, 24)
    return int(offset)


def _xnnpack_operators(payload: memoryview) -> Iterator[str]:
    """Nodes of an XNNPACK graph behind its header (XNNHeader in xnnpack_graph_serialize.py)."""
    if bytes(payload[4:8]) != b"XH00":
        return
    offset, size = struct.unpack_from("<II", payload, 10)
    graph = root(payload[offset : offset + size])
    for node in graph.tables(1):
        kind = node.number(0, "B")
        yield f"xnnpack.{_XNN[kind - 1] if 0 < kind <= len(_XNN) else kind}"


def details(found: Pte) -> dict[str, Any]:
    return {
        "methods": list(found.methods),
        "delegates": found.delegates,
        "delegated_fraction": found.delegated_fraction,
        "leftovers": found.kernels if found.delegates else {},
        "planned_bytes": found.planned_bytes,
    }
