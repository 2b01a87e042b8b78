"""The values that travel between the steps: frozen data classes, never dictionaries.

Nothing here imports torch, so the command line and the bundle reader stay light.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgesdk.errors import UsageError, nearest

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from edgesdk.evaluation import Guarded
    from edgesdk.preprocess import PreprocessSpec

# Canonical dtype names (NumPy's; bfloat16 is torch's) and their size in bytes.
DTYPES: Mapping[str, int] = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "uint16": 2, "bool": 1, "complex64": 8,
}  # fmt: skip

Rung = Literal["full", "partial", "portable"]
Verified = Literal[True, False, "not_run"]


@dataclass(frozen=True)
class Dim:
    """A dynamic dimension: any size from ``min`` to ``max``, both included.

    Dimensions of one signature that carry the same ``symbol`` always have the same size.
    """

    min: int
    max: int
    symbol: str | None = None

    def __str__(self) -> str:
        return f"{self.min}..{self.max}"


Size = int | Dim


@dataclass(frozen=True)
class TensorSpec:
    """Name, dtype and shape of one input or output.

    ``shape`` is None when nothing is known (a raw ``.ptl``); a dimension is a size or a :class:`Dim`.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...] | None

    def to_json(self) -> dict[str, Any]:
        """``{"name", "dtype", "shape"}``; a dynamic dimension is written ``"1..8"``."""
        dims = None if self.shape is None else [d if isinstance(d, int) else str(d) for d in self.shape]
        symbols = {str(i): d.symbol for i, d in enumerate(self.shape or ()) if isinstance(d, Dim) and d.symbol}
        return {"name": self.name, "dtype": self.dtype, "shape": dims, **({"symbols": symbols} if symbols else {})}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> TensorSpec:
        shape = document["shape"]
        symbols: Mapping[str, str] = document.get("symbols", {})
        dims = None if shape is None else tuple(_parse_dim(d, symbols.get(str(i))) for i, d in enumerate(shape))
        return TensorSpec(document["name"], document["dtype"], dims)

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ",".join(map(str, self.shape))
        return f"{self.name}={self.dtype}[{dims}]"


def _parse_dim(value: int | str, symbol: str | None) -> Size:
    if isinstance(value, int):
        return value
    low, high = value.split("..")
    return Dim(int(low), int(high), symbol)


@dataclass(frozen=True)
class Signature:
    """The named inputs and outputs of a model, in the order of ``forward()``."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def dynamic(self) -> bool:
        return any(isinstance(d, Dim) for spec in self.inputs for d in spec.shape or ())

    def to_json(self) -> dict[str, Any]:
        return {"inputs": [s.to_json() for s in self.inputs], "outputs": [s.to_json() for s in self.outputs]}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Signature:
        return Signature(
            tuple(TensorSpec.from_json(s) for s in document["inputs"]),
            tuple(TensorSpec.from_json(s) for s in document["outputs"]),
        )


_INPUT = re.compile(r"^(?P<name>[^=\[\]]+)=(?P<dtype>[A-Za-z0-9_.]+)\[(?P<dims>[^\[\]]*)\]$")


def parse_input(text: str) -> TensorSpec:
    """Read ``NAME=float32[1..8,3,224,224]``, the form of ``--input``.

    Raises:
        UsageError: the text is malformed, the dtype unknown, or a range empty.
    """
    match = _INPUT.match(text.strip())
    example = "Write it as NAME=DTYPE[SIZES], e.g. --input 'input=float32[1..8,3,224,224]'."
    if not match:
        raise UsageError(
            "bad_input_spec",
            f"--input {text!r} can't be read.",
            why="The name, dtype or bracket is missing.",
            fix=example,
        )
    dtype = match["dtype"]
    if dtype not in DTYPES:
        raise UsageError(
            "bad_input_spec", f"--input {text!r}: unknown dtype '{dtype}'.", why=_meant(dtype),
            fix=f"Write --input '{match['name']}={_ALIASES[_bare(dtype)]}[{match['dims']}]'." if _bare(dtype) in _ALIASES else example,
        )  # fmt: skip
    words = [w.strip() for w in match["dims"].split(",")] if match["dims"].strip() else []
    return TensorSpec(match["name"].strip(), dtype, tuple(_read_dim(w, text, example) for w in words))


# Names of other libraries and languages; those without a number of bits mean what they mean in torch.
_ALIASES = {
    "float": "float32", "fp32": "float32", "f32": "float32", "half": "float16", "fp16": "float16", "f16": "float16",
    "double": "float64", "fp64": "float64", "f64": "float64", "bf16": "bfloat16", "int": "int32", "long": "int64",
    "short": "int16", "char": "int8", "byte": "uint8", "boolean": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    **{name: name for name in DTYPES},
}  # fmt: skip


def _bare(dtype: str) -> str:
    return dtype.lower().rpartition(".")[2]


def _meant(dtype: str) -> str:
    """The dtype that a word of another library stands for, else the nearest one."""
    known = _ALIASES.get(_bare(dtype))
    return f"Did you mean '{known}'? Known: {', '.join(sorted(DTYPES))}." if known else nearest(dtype, DTYPES)


def _read_dim(word: str, text: str, example: str) -> Size:
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", word)
    if not found:
        raise UsageError(
            "bad_input_spec", f"--input {text!r}: '{word}' is no size.",
            why="A size is a whole number, or a range a..b for a dynamic dimension.", fix=example,
        )  # fmt: skip
    low, high = int(found[1]), int(found[2]) if found[2] else None
    if low < 1 or (high is not None and high < low):
        raise UsageError(
            "bad_input_spec", f"--input {text!r}: the range '{word}' is empty or starts below 1.",
            why="The smaller size comes first, and every size is at least 1.", fix=example,
        )  # fmt: skip
    if high is None or high == low:
        return low
    return Dim(low, high)


@dataclass(frozen=True)
class HistoryStep:
    """How the model was made, one step: ``{step, type, version, fields}``."""

    step: str
    type: str
    version: int = 1
    fields: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step, "type": self.type, "version": self.version, "fields": dict(self.fields)}


@dataclass(frozen=True)
class Warn:
    """Something the user should know though the run went on: ``{code, message}``."""

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message}


@dataclass(frozen=True)
class Source:
    """What the user handed in.

    Attributes:
        name: NAME of the package unless ``--name`` says otherwise (the stem of a file).
        format: a word of ``edgesdk inspect``'s ``format``.
        sha256: of the file's bytes (of all files of a folder); None for a name or an object in memory.
        pickle: whether a pickle was executed to read it (only with ``--trust-pickle``).
        git_commit: commit of the work tree the file lies in, else None.
    """

    name: str
    format: str
    sha256: str | None = None
    pickle: bool = False
    git_commit: str | None = None


@dataclass(frozen=True)
class Model:
    """An imported model, ready to be lowered.

    Exactly one of three forms is authoritative for lowering, tried in this order by each runtime:
    ``program`` (every PyTorch source that ``torch.export`` can take), ``script`` (TorchScript that could not be
    converted; only TorchScript Lite takes it) and ``onnx`` (the user's own ONNX file; ONNX Runtime takes it as it is).

    Attributes:
        signature: named inputs and outputs with dtype, shape and dynamic ranges.
        program: the exported program in inference form, contiguous, on the CPU; or None with the reason in ``no_program``.
        module: the eager ``nn.Module`` in eval mode, if there is one; only present in the importing process.
        script: a ``torch.jit.ScriptModule`` in eval mode, if the source was one.
        onnx: path of the source's ONNX file.
        no_program: UnsupportedError saying why there is no ``program``.
        int_ranges: for integer inputs, the half-open range of values that are safe to feed, by name.
        stateful: calls change later calls (mutable buffers).
    """

    source: Source
    signature: Signature
    program: ExportedProgram | None = None
    module: torch.nn.Module | None = None
    script: torch.jit.ScriptModule | None = None
    onnx: Path | None = None
    no_program: Exception | None = None
    int_ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    stateful: bool = False
    preprocess: PreprocessSpec | None = None
    labels: tuple[str, ...] | None = None
    task: str | None = None
    license: str | None = None
    history: tuple[HistoryStep, ...] = ()
    warnings: tuple[Warn, ...] = ()

    def warned(self, code: str, message: str) -> Model:
        """The same model with one more warning."""
        return replace(self, warnings=(*self.warnings, Warn(code, message)))


@dataclass(frozen=True)
class Layer:
    """What quantization made of one layer.

    Attributes:
        name: path of the module (its weight's name without ``.weight``); of an operator without weights, its node's name.
        op: the operator, e.g. ``conv2d``, ``linear``, ``add``.
        precision: ``int8``, ``int4``, ``float16`` or ``float32``.
        bytes: of its weights in the original's float32; 0 for an operator without weights.
        why: why it stayed float, or what was done differently for it; None when all went as asked.
    """

    name: str
    op: str
    precision: str
    bytes: int = 0
    why: str | None = None


@dataclass(frozen=True)
class LayerError:
    """How much noise quantization puts into one layer, measured on calibration samples.

    Attributes:
        snr_db: of the layer's output when everything is quantized as asked; None when the error is exactly zero.
        alone_db: of the model's outputs (the worst of them) when only this layer is quantized; None when not measured, or
            when the error is exactly zero.
    """

    name: str
    op: str
    snr_db: float | None
    alone_db: float | None = None


@dataclass(frozen=True)
class Lowered:
    """A file that one runtime can load, and what became of the model on the way.

    Attributes:
        delegated_fraction: share of the multiply-accumulates (of the operators, when there are none) that run in the
            delegate, 0…1; None for runtimes without delegates.
        delegates: number of delegate calls.
        leftovers: operators that stayed behind, with their number: ``{"aten::sort.values": 1}``.
        rung: which step of the ladder held.
        planned_bytes: activation memory planned ahead of time, None where the runtime plans none.
        min_runtime: least version of the runtime that loads the file.
        layers: what a quantization scheme made of each layer; empty for ``none`` and ``fp16``.
    """

    runtime: str
    backend: str | None
    quantization: str
    path: Path
    rung: Rung
    delegated_fraction: float | None = None
    delegates: int | None = None
    leftovers: Mapping[str, int] = field(default_factory=dict)
    planned_bytes: int | None = None
    min_runtime: str = ""
    warnings: tuple[Warn, ...] = ()
    extra_files: tuple[Path, ...] = ()
    layers: tuple[Layer, ...] = ()

    @property
    def id(self) -> str:
        """Grammar: ``RUNTIME[-BACKEND]-QUANTIZATION``, e.g. ``executorch-xnnpack-none``, ``onnx-none``."""
        return variant_id(self.runtime, self.backend, self.quantization)


def variant_id(runtime: str, backend: str | None, quantization: str) -> str:
    return "-".join(part for part in (runtime, backend, quantization) if part)


@dataclass(frozen=True)
class OutputFidelity:
    """One output compared with the original over all samples.

    ``snr_db`` is None when the error is exactly zero. ``top1_agreement`` is None unless the output is class scores.
    """

    name: str
    max_abs_error: float
    mean_abs_error: float
    max_abs_reference: float
    snr_db: float | None
    cosine: float | None = None
    top1_agreement: float | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Verification:
    """What running the lowered file on its real engine showed."""

    verified: Verified
    outputs: tuple[OutputFidelity, ...] = ()
    samples: int = 0
    shapes: tuple[str, ...] = ()
    tolerance: float = 0.0
    why: str | None = None
    engine: str = ""
    cpu_flags: tuple[str, ...] = ()
    warnings: tuple[Warn, ...] = ()

    @property
    def top1_agreement(self) -> float | None:
        rates = [o.top1_agreement for o in self.outputs if o.top1_agreement is not None]
        return min(rates) if rates else None


@dataclass(frozen=True)
class VariantResult:
    """One lowered and verified file of a package, as ``package --json`` and ``report.json`` show it."""

    lowered: Lowered
    verification: Verification
    file: str
    bytes: int
    sha256: str
    rung: Rung
    abis: tuple[str, ...] = ()
    guarded: Guarded | None = None

    def to_json(self) -> dict[str, Any]:
        """The ``V`` object of ``edgesdk.package/1``, with the fields that only the report shows under ``details``.

        ``outputs`` and ``top1_agreement`` are of the same samples: the user's, where the file was judged on them.
        """
        low, ver = self.lowered, self.verification
        outputs = (self.guarded.evaluation.outputs if self.guarded else ()) or ver.outputs
        return {
            "id": low.id,
            "runtime": low.runtime,
            "backend": low.backend,
            "quantization": low.quantization,
            "file": self.file,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "delegated_fraction": low.delegated_fraction,
            "rung": self.rung,
            "verified": ver.verified,
            "outputs": [o.to_json() for o in outputs],
            "top1_agreement": self.guarded.evaluation.top1 if self.guarded else ver.top1_agreement,
            "metric": self.guarded.metric_json() if self.guarded else None,
            "latency_ms": self.guarded.latency_json() if self.guarded else None,
            "details": {
                "delegates": low.delegates,
                "leftovers": dict(low.leftovers),
                "planned_bytes": low.planned_bytes,
                "min_runtime": low.min_runtime,
                "abis": list(self.abis),
                "samples": ver.samples,
                "shapes": list(ver.shapes),
                "tolerance": ver.tolerance,
                "why": ver.why,
                "engine": ver.engine,
                "cpu_flags": list(ver.cpu_flags),
                "layers": [dict(layer.__dict__) for layer in low.layers],
                "guard": self.guarded.to_json() if self.guarded else None,
            },
        }


@dataclass(frozen=True)
class Package:
    """What ``package`` made. ``output`` and ``bundle`` are absolute here; the JSON shows them relative to the cwd."""

    name: str
    version: str
    target: str
    output: Path
    bundle: Path
    document: Mapping[str, Any]
    """The ``edgesdk.package/1`` object, plus the report's fields ``source``, ``signature`` and ``tools``."""

    @property
    def variants(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.document["variants"])
