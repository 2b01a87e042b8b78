"""``.pte``: signature, operators, delegates and memory plan, read off the file without torch or ExecuTorch.

Field numbers are those of ``exir/_serialize/program.fbs`` (ExecuTorch 1.5); FlatBuffers only ever appends fields.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgesdk.artifacts import Dim, Size, TensorSpec
from edgesdk.errors import InputError
from edgesdk.inspection._flatbuffer import Damaged, Table, root
from edgesdk.inspection._result import UNKNOWN
from edgesdk.inspection._xnnpack import nodes as xnnpack_nodes

# executorch/exir/_serialize/scalar_type.fbs
_DTYPES: Final = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
                  11: "bool", 15: "bfloat16", 27: "uint16"}  # fmt: skip
_TENSOR, _KERNEL_CALL, _DELEGATE_CALL = 5, 1, 2  # members of the unions KernelTypes and InstructionArguments
_SCALARS: Final = {2: ("int64", ()), 3: ("bool", ()), 4: ("float64", ())}
_SEGMENT = 1  # DataLocation


@dataclass(frozen=True)
class Pte:
    """What an ExecuTorch program says about itself.

    Attributes:
        kernels: calls of kernels outside delegates: ``{"aten::sort": 1}``.
        delegated: operators inside XNNPACK delegates: ``{"xnnpack.Conv2d": 2}``; other delegates are opaque.
        delegates: delegate calls by back end.
        opaque: there are delegates whose operators can't be listed.
        planned_bytes: activation memory planned ahead.
        work: multiply-accumulates inside delegates and outside, at the largest sizes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    methods: tuple[str, ...]
    kernels: dict[str, int] = field(default_factory=dict)
    delegated: dict[str, int] = field(default_factory=dict)
    delegates: dict[str, int] = field(default_factory=dict)
    opaque: bool = False
    planned_bytes: int = 0
    work: tuple[int, int] = (0, 0)

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates of one run; None when a delegate doesn't tell."""
        return None if self.opaque else sum(self.work)

    @property
    def delegated_fraction(self) -> float | None:
        """As ``Lowered.delegated_fraction``: share of the multiply-accumulates (of the operators, where there are none)
        that run in delegates; None when a delegate doesn't tell.
        """
        operators = sum(self.delegated.values()), sum(self.kernels.values())
        inside, outside = self.work if sum(self.work) else operators
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
        work=(calls.work[0], calls.work[1]),
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
    """Counts the instructions of a method, and their multiply-accumulates."""

    def __init__(self, program: Table, plan: Table, data: memoryview) -> None:
        self.kernels: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()
        self.delegates: Counter[str] = Counter()
        self.opaque = False
        self.work = [0, 0]  # inside delegates, outside
        operators = [operator.text(0) for operator in plan.tables(6)]
        delegates, values = list(plan.tables(7)), list(plan.tables(2))
        for instruction in (i for chain in plan.tables(5) for i in chain.tables(2)):
            kind, call = instruction.number(0, "B"), instruction.table(1)
            if call is None:
                continue
            if kind == _KERNEL_CALL:
                name = operators[call.number(0, "i")]
                self.kernels[name] += 1
                self.work[1] += _work(name, [values[i] for i in call.numbers(1, "i")])
            elif kind == _DELEGATE_CALL:
                self._delegate(program, delegates[call.number(0, "i")], data)

    def _delegate(self, program: Table, delegate: Table, data: memoryview) -> None:
        backend = delegate.text(0)
        self.delegates[backend] += 1
        payload = _payload(program, delegate, data)
        found = list(xnnpack_nodes(payload)) if backend == "XnnpackBackend" and payload is not None else []
        self.inside.update(f"xnnpack.{name}" for name, _ in found)
        self.work[0] += sum(macs for _, macs in found)
        self.opaque |= not found


def _sizes(value: Table) -> tuple[int, ...]:
    content = value.table(1)
    return content.numbers(2, "i") if value.number(0, "B") == _TENSOR and content else ()


def _work(name: str, args: list[Table]) -> int:
    """Multiply-accumulates of a kernel call; arguments as in the operator's schema, results behind them."""
    first = {"aten::convolution": 1, "aten::linear": 1, "aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1}.get(name)
    if first is None:
        return 0
    out = _sizes(args[-1])
    if name != "aten::convolution":
        return math.prod(out) * (_sizes(args[first]) or (0,))[-1]
    weight, transposed = _sizes(args[1]), args[6].table(1)
    data = _sizes(args[0]) if transposed and transposed.number(0, "?") else out
    return math.prod(data) * math.prod(weight[1:])


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


def details(found: Pte) -> dict[str, Any]:
    return {
        "methods": list(found.methods),
        "delegates": found.delegates,
        "delegated_fraction": found.delegated_fraction,
        "leftovers": found.kernels if found.delegates else {},
        "planned_bytes": found.planned_bytes,
    }
