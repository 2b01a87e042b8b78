"""The manifest ``edgesdk.bundle/1``: everything a phone must know about the model, as frozen pydantic models.

Fields keep the order in which they are declared here. Unknown fields are ignored when reading (a newer edgesdk may have
added them); another major version of ``schema`` is refused. There is nothing in it that differs between two builds of
the same inputs: no time, no path, no host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError, model_serializer
from pydantic_core.core_schema import SerializerFunctionWrapHandler

from edgesdk.artifacts import Signature, TensorSpec
from edgesdk.bundle import _errors, _json
from edgesdk.errors import InputError

SCHEMA: Final = "edgesdk.bundle/1"
MANIFEST, SIGNATURE = "manifest.json", "signature.json"

MAX_MANIFEST = 16 * 2**20
MAX_FILES = 4096
MAX_RANK = 16
MAX_DIM = 2**31 - 1
MAX_LABELS = 200_000

Text = Annotated[str, StringConstraints(max_length=1024, pattern=r"^[^\x00-\x1f\x7f]*$")]
Label = Annotated[str, StringConstraints(max_length=1024, pattern=r"^[^\x00-\x08\x0a-\x1f\x7f]*$")]
TensorName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
EntryName = Annotated[str, StringConstraints(min_length=1, max_length=255)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Crc32 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}$")]
Bytes = Annotated[int, Field(ge=0, le=2**63 - 1)]
Size = Annotated[int, Field(ge=0, le=MAX_DIM)]
Range = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,9})\.\.[1-9][0-9]{0,9}$")]
Real = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Dtype = Literal[
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "bool", "complex64"
]  # fmt: skip
Document = dict[str, JsonValue]

EMPTY_SHA256, EMPTY_CRC = "0" * 64, "0" * 8


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TensorPart(_Part):
    """One input or output: the JSON of ``artifacts.TensorSpec``; a dynamic dimension is written ``"1..8"``.

    ``symbols`` names dynamic dimensions by position; dimensions with one symbol have one size. It is left out when empty.
    """

    name: TensorName
    dtype: Dtype
    shape: Annotated[tuple[Size | Range, ...], Field(max_length=MAX_RANK)] | None
    symbols: dict[Annotated[str, StringConstraints(pattern=r"^[0-9]{1,2}$")], TensorName] = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        if not self.symbols:
            document.pop("symbols", None)
        return document

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec.from_json(self.model_dump())


class SignaturePart(_Part):
    """Named inputs and outputs in the order of ``forward()``; engines are fed and read by position."""

    inputs: Annotated[tuple[TensorPart, ...], Field(max_length=256)]
    outputs: Annotated[tuple[TensorPart, ...], Field(min_length=1, max_length=1024)]


class VersionRange(_Part):
    """Versions of the engine that load the file, both ends included; None where no end is known."""

    min: Text | None = None
    max: Text | None = None


class Fidelity(_Part):
    """One output of a variant against the original model over all verification samples.

    ``snr_db`` is None when the error is exactly zero, ``top1_agreement`` unless the output is class scores.
    """

    name: TensorName
    max_abs_error: Real
    mean_abs_error: Real | None = None
    max_abs_reference: Real | None = None
    snr_db: Real | None = None
    cosine: Real | None = None
    top1_agreement: Share | None = None


class FidelityPart(_Part):
    """What verification measured. ``tolerance`` is the absolute error each output was allowed, by its name."""

    outputs: tuple[Fidelity, ...] = ()
    tolerance: dict[TensorName, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    samples: Size = 0
    shapes: tuple[Text, ...] = ()
    engine: Text = ""
    cpu_flags: tuple[Text, ...] = ()
    why: Text | None = None


class ScorePart(_Part):
    """A task metric of the original and of the file on the same samples. ``drop``: points lost, per cent for errors."""

    name: Annotated[Text, StringConstraints(min_length=1)]
    original: Real
    value: Real
    drop: Real
    samples: Size


class EvaluationPart(_Part):
    """What running the file on data showed, on the machine that built it.

    ``data`` is ``evaluation``, ``calibration`` or ``made up``; ``top1`` and ``top5`` are shares of ``rows`` predictions whose
    best class is the original's, and is among the original's best five.
    """

    data: Text
    where: Text = ""
    samples: Size = 0
    score: ScorePart | None = None
    top1: Share | None = None
    top5: Share | None = None
    rows: Bytes = 0
    flipped: Bytes = 0
    outputs: tuple[Fidelity, ...] = ()


class Variant(_Part):
    """One file for one engine. ``sha256`` and ``size`` are filled in by ``bundle.write``.

    Attributes:
        id: ``RUNTIME[-BACKEND]-QUANTIZATION``.
        abis: Android ABIs (or ``arm64`` for iOS) the variant is meant for; empty means any.
        extra_files: entries that must lie beside ``file`` under the same relative names (ONNX external data).
        delegated_fraction: share of the MACs in the delegate; None for engines without delegates.
        tolerances: largest absolute error on the golden vectors, by output.
        planned_bytes: activation memory planned ahead of time.
        dim_order: per input, the order of dimensions in memory: ``[0, 1, 2, 3]`` is contiguous NCHW. Empty: contiguous.
        evaluation: left out when the file was not judged on data.
    """

    id: Word
    runtime: Word
    runtime_version: VersionRange = VersionRange()
    backend: Word | None = None
    quantization: Word
    abis: Annotated[tuple[Word, ...], Field(max_length=32)] = ()
    file: EntryName
    sha256: Sha256 = EMPTY_SHA256
    size: Bytes = 0
    extra_files: tuple[EntryName, ...] = ()
    delegated_fraction: Share | None = None
    rung: Literal["full", "partial", "portable"] = "full"
    verified: bool | Literal["not_run"] = "not_run"
    fidelity: FidelityPart = FidelityPart()
    tolerances: dict[TensorName, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    planned_bytes: Bytes | None = None
    dim_order: tuple[Annotated[tuple[Size, ...], Field(max_length=MAX_RANK)], ...] = ()
    evaluation: EvaluationPart | None = None

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        if self.evaluation is None:
            document.pop("evaluation", None)
        return document


class GoldenTensor(_Part):
    """A concrete tensor: raw little-endian bytes in C order in the entry ``file``."""

    name: TensorName
    dtype: Dtype
    shape: Annotated[tuple[Size, ...], Field(max_length=MAX_RANK)]
    file: EntryName


class Golden(_Part):
    """One call with the original model's answer. Calls of one ``sequence`` run in the order of ``step`` after a reset."""

    id: Word
    sequence: Size = 0
    step: Size = 0
    inputs: tuple[GoldenTensor, ...]
    outputs: tuple[GoldenTensor, ...]


class HistoryPart(_Part):
    step: Text
    type: Text
    version: Size = 1
    fields: Document = Field(default_factory=dict)


class SourcePart(_Part):
    """What the model came from. ``pickle``: a pickle was executed to read it."""

    format: Word
    sha256: Sha256 | None = None
    git_commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")] | None = None
    pickle: bool = False


class FilePart(_Part):
    """Size and hashes of one entry; the CRC-32 makes the ZIP headers follow from the manifest."""

    name: EntryName
    size: Bytes
    sha256: Sha256
    crc32: Crc32


class Manifest(_Part):
    """The whole of ``manifest.json``. ``files`` is filled in by ``bundle.write``: every entry but the two JSON files."""

    schema_: Literal["edgesdk.bundle/1"] = Field(default=SCHEMA, alias="schema")
    name: Annotated[Text, StringConstraints(min_length=1)]
    version: Text
    task: Word | None = None
    signature: SignaturePart
    preprocess: Document | None = None
    postprocess: Document | None = None
    labels: Annotated[tuple[Label, ...], Field(max_length=MAX_LABELS)] | None = None
    license: Text | None = None
    variants: Annotated[tuple[Variant, ...], Field(min_length=1, max_length=256)]
    golden: Annotated[tuple[Golden, ...], Field(max_length=1024)] = ()
    history: Annotated[tuple[HistoryPart, ...], Field(max_length=1024)] = ()
    tools: dict[Word, Text] = Field(default_factory=dict)
    source: SourcePart
    files: Annotated[tuple[FilePart, ...], Field(max_length=MAX_FILES)] = ()
    created_by: Text = ""

    @property
    def schema(self) -> str:  # type: ignore[override]  # pydantic v1's classmethod of that name is gone in all but name
        return self.schema_

    @property
    def spec(self) -> Signature:
        """The signature with :class:`~edgesdk.artifacts.TensorSpec`."""
        return Signature(tuple(t.spec for t in self.signature.inputs), tuple(t.spec for t in self.signature.outputs))

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.spec.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.spec.outputs

    def bytes_by_part(self) -> dict[str, int]:
        """Sizes of the entries: ``models`` (with external data) and ``golden``; the manifest and padding come on top."""
        sizes = {file.name: file.size for file in self.files}
        models = {name for v in self.variants for name in (v.file, *v.extra_files)}
        golden = {tensor.file for call in self.golden for tensor in (*call.inputs, *call.outputs)}
        return {
            "models": sum(sizes.get(name, 0) for name in models),
            "golden": sum(sizes.get(name, 0) for name in golden - models),
        }

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)

    def to_bytes(self) -> bytes:
        """The canonical bytes: UTF-8 JSON without spaces, fields as declared above."""
        return _json.encode(self.to_json())

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Manifest:
        """Read a manifest from parsed JSON.

        Raises:
            InputError: a field is missing or of another type, or the schema is not ours.
        """
        try:
            data = _json.encode(dict(document))
        except ValueError as exc:
            raise _errors.invalid("this document", f"it can't be written as JSON ({exc})") from exc
        return parse(data, "this document")


def parse(data: bytes, where: str) -> Manifest:
    """Read the bytes of a ``manifest.json``; rules that tie fields to each other are in ``_rules``.

    Raises:
        InputError: not JSON as bundles hold it, another schema, or a field that breaks its type or limit.
    """
    if len(data) > MAX_MANIFEST:
        raise _errors.invalid(where, f"it has {len(data)} bytes; the limit is {MAX_MANIFEST}")
    try:
        document = _json.decode(data)
    except ValueError as exc:
        raise _errors.invalid(where, f"it can't be read ({exc})") from exc
    if not isinstance(document, dict):
        raise _errors.invalid(where, "it is no JSON object")
    _check_schema(document, where)
    try:
        return Manifest.model_validate_json(data, strict=True)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise _errors.invalid(where, f"'{place}': {first['msg']}") from exc


def _check_schema(document: Mapping[str, Any], where: str) -> None:
    schema = document.get("schema")
    if schema == SCHEMA:
        return
    if not isinstance(schema, str) or not re.fullmatch(r"edgesdk\.bundle/[0-9]{1,6}", schema):
        raise _errors.invalid(where, "its 'schema' is not edgesdk.bundle/1")
    made = re.fullmatch(r"edgesdk ([0-9]{1,4}(?:\.[0-9]{1,4}){1,2})", str(document.get("created_by")))
    wanted = f"'edgesdk>={made[1]}'" if made else "edgesdk"
    raise InputError(
        "bundle_too_new", f"{where} has the schema {schema}; this edgesdk reads {SCHEMA}.",
        why="It was made by another major version of edgesdk.",
        fix=f"Upgrade: pip install -U {wanted}, or build the bundle again with this version.",
        details={"schema": schema, "created_by": made[0] if made else None},
    )  # fmt: skip
