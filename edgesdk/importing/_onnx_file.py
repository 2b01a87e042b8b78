"""Reading an ONNX file: whole, safe, and what its inputs are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgesdk.artifacts import DTYPES, Dim, Size, TensorSpec, Warn
from edgesdk.errors import InputError, UnsupportedError, UsageError, missing_library, nearest
from edgesdk.importing._base import Located
from edgesdk.importing._protobuf import is_file

MAX_BYTES = 2**31 - 1
"""protobuf's limit for one message; larger models keep their weights in a second file."""


def read(located: Located) -> Any:
    """The ``ModelProto`` with its weights.

    Raises:
        MissingToolError: the onnx library is absent.
        InputError: damaged, cut short, too large for one file, or with weights missing or outside its folder.
    """
    try:
        import onnx
    except ImportError as exc:
        raise missing_library("onnx", "onnx", "reading ONNX files") from exc
    path = located.path or Path(located.text)
    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            "onnx_too_large", f"{located.text} is larger than 2 GB.",
            why="An ONNX file of that size can't be one protobuf message.",
            fix="Save it with external data (onnx.save(model, path, save_as_external_data=True)).",
        )  # fmt: skip
    proto = _parse(located, path)
    for tensor in _stored(proto.graph):
        _check_external(tensor, path, located.text)
    try:
        onnx.load_external_data_for_model(proto, str(path.parent))
    except (onnx.checker.ValidationError, ValueError, OSError, TypeError, RuntimeError) as exc:
        raise damaged(located, str(exc)) from exc
    return _inlined(located, proto) if proto.functions else proto


def _inlined(located: Located, proto: Any) -> Any:
    from onnx.checker import ValidationError
    from onnx.inliner import inline_local_functions  # ``import onnx`` alone doesn't load it

    try:
        return inline_local_functions(proto)
    except (ValidationError, RuntimeError) as exc:  # functions that call each other in a circle, or take other inputs
        raise damaged(located, str(exc)) from exc


def _parse(located: Located, path: Path) -> Any:
    import importlib

    import onnx

    decode_error: Any = importlib.import_module("google.protobuf.message").DecodeError
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except (decode_error, OSError, ValueError) as exc:
        raise damaged(located, str(exc)) from exc
    if not proto.graph.node or not proto.graph.output:
        raise damaged(located, "It holds no operators.")
    names = [value.name for value in proto.graph.output]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise InputError(
            "duplicate_output", f"The ONNX model lists its output '{twice}' twice.",
            why="Outputs are told apart by their names; torch's older exporter writes this for a tensor returned twice.",
            fix="Return it once, or export with torch.onnx.export(…, dynamo=True), which names each output.",
        )  # fmt: skip
    return proto


def complaint(path: Path) -> str:
    """What the onnx checker finds wrong; empty when it finds nothing."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except (onnx.checker.ValidationError, ValueError, TypeError, RuntimeError) as exc:
        return str(exc)
    return ""


def damaged(located: Located, text: str) -> InputError:
    first = text.strip().splitlines()[0][:160] if text.strip() else ""
    return InputError(
        "onnx_damaged", f"{located.text} is no valid ONNX model.",
        why=f"The file is cut short, damaged or of another kind{': ' + first if first else ''}.".replace("..", "."),
        fix="Copy, download or export the file again.",
    )  # fmt: skip


def _stored(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == attribute.TENSOR:
                yield attribute.t
            elif attribute.type == attribute.GRAPH:
                yield from _stored(attribute.g)


def _check_external(tensor: Any, path: Path, text: str) -> None:
    """A weight in a second file: beside the first, and nowhere else (S-03)."""
    import onnx

    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    place = next((e.value for e in tensor.external_data if e.key == "location"), "")
    target = path.parent / place
    folder = path.parent.resolve()
    if (
        not place
        or Path(place).is_absolute()
        or ".." in Path(place).parts
        or not target.resolve().is_relative_to(folder)
    ):
        raise InputError(
            "external_data_outside", f"{text} keeps weights outside its folder: {place!r}.",
            why="A model file may only refer to files beside it.", fix="Save it again with its external data beside it.",
        )  # fmt: skip
    if not is_file(target):
        raise InputError(
            "external_data_missing", f"{text} needs the file {place} beside it, and it isn't there.",
            why="The weights of a large ONNX model are in a second file; only one of the two was moved.",
            fix=f"Put {place} into the same folder.",
        )  # fmt: skip


def input_specs(proto: Any, asked: Sequence[TensorSpec]) -> tuple[tuple[TensorSpec, ...], list[Warn]]:
    """Inputs with sizes: fixed by the file, else by ``--input``, else 1 for a free first dimension.

    Raises:
        UsageError: ``--input`` names an input that the graph doesn't have.
        InputError: ``--input`` contradicts the file, or a size is free and nobody says it.
    """
    weights = {t.name for t in proto.graph.initializer}
    values = [v for v in proto.graph.input if v.name not in weights]
    said = {s.name: s for s in asked}
    names = [v.name for v in values]
    for name in said:
        if name not in names:
            raise UsageError(
                "unknown_input", f"The ONNX graph has no input '{name}'.",
                why=nearest(name, names), fix=f"Name one of its inputs in --input: {', '.join(names)}.",
            )  # fmt: skip
    warnings: list[Warn] = []
    specs = tuple(_spec(v, said.get(v.name), warnings) for v in values)
    return specs, warnings


def _spec(value: Any, said: TensorSpec | None, warnings: list[Warn]) -> TensorSpec:
    kind = value.type.tensor_type
    dtype = dtype_of(value)
    free = [d.dim_param or None for d in kind.shape.dim]
    sizes = [d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in kind.shape.dim]
    if said is None:
        if not value.type.tensor_type.HasField("shape"):
            raise _unknown(value.name, dtype, [])
        return TensorSpec(value.name, dtype, _defaults(value.name, dtype, sizes, warnings))
    if said.dtype != dtype or (kind.HasField("shape") and len(said.shape or ()) != len(sizes)):
        raise _contradiction(value.name, dtype, sizes, said)
    shape: list[Size] = []
    for have, symbol, wish in zip(sizes or [None] * len(said.shape or ()), free or [None] * 9, said.shape or (), strict=False):  # fmt: skip
        if have is not None and wish != have:
            raise _contradiction(value.name, dtype, sizes, said)
        shape.append(replace(wish, symbol=symbol) if isinstance(wish, Dim) else wish)
    return replace(said, shape=tuple(shape))


def dtype_of(value: Any) -> str:
    """Name of a graph value's dtype.

    Raises:
        UnsupportedError: it is no tensor, holds text, or numbers that NumPy and a bundle have no name for.
    """
    import onnx

    if not value.type.HasField("tensor_type") or value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
        raise UnsupportedError(
            "unsupported_input_type", f"'{value.name}' of the ONNX graph holds no tensor of numbers.",
            why="Sequences, maps and text don't go into the tensors that an app passes.",
            fix="Cut the graph where it takes and gives tensors (onnx.utils.extract_model).",
        )  # fmt: skip
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    if dtype not in DTYPES or dtype == "bfloat16":
        raise UnsupportedError(
            "unsupported_input_type", f"'{value.name}' of the ONNX graph holds {dtype}.",
            why="An app passes arrays to the model and gets arrays back, and no array holds such numbers everywhere.",
            fix="Export it with that input or output as float32 or int64, and cast inside the graph.",
        )  # fmt: skip
    return dtype


def _defaults(name: str, dtype: str, sizes: Sequence[int | None], warnings: list[Warn]) -> tuple[Size, ...]:
    if None in sizes[1:]:
        raise _unknown(name, dtype, sizes)
    if sizes and sizes[0] is None:
        text = f"The first dimension of '{name}' is free in the file and was set to 1; --input gives it a range."
        warnings.append(Warn("size_chosen", text))
    return tuple(1 if n is None else n for n in sizes)


def _unknown(name: str, dtype: str, sizes: Sequence[int | None]) -> InputError:
    usual = {4: ["1", "3", "224", "224"], 3: ["1", "128", "80"], 2: ["1", "128"], 1: ["1"]}.get(len(sizes), ["1"])
    guess = ",".join(str(n) if n is not None else usual[i] for i, n in enumerate(sizes)) if sizes else "SIZES"
    return InputError(
        "unknown_input_shape", f"The size of the input '{name}' is left open in the ONNX file.",
        why="A graph on a phone is made for stated sizes or ranges.",
        fix=f"Say it, e.g. --input '{name}={dtype}[{guess}]'; a range such as 1..8 makes a dimension dynamic.",
        details={"inputs": [name], "guess": f"{dtype}[{guess}]"},
    )  # fmt: skip


def _contradiction(name: str, dtype: str, sizes: Sequence[int | None], said: TensorSpec) -> InputError:
    own = ",".join("any" if n is None else str(n) for n in sizes)
    return InputError(
        "input_contradicts_file", f"--input '{said}' doesn't fit the ONNX file, which fixes '{name}' at {dtype}[{own}].",
        why="A size that is a number in the file can't become another, or dynamic, afterwards.",
        fix="Ask for the file's size, or export the model again with that dimension dynamic.",
    )  # fmt: skip
