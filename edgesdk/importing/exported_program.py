"""``.pt2``: a program that ``torch.export.save`` wrote, read without letting it run code."""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgesdk.artifacts import Model, Signature
from edgesdk.errors import EdgeError, InputError, UnsupportedError, missing_library
from edgesdk.importing import _pt2_guard
from edgesdk.importing._base import Importer, ImportOptions, Located
from edgesdk.importing._safety import force_weights_only, quiet_torch
from edgesdk.importing._zips import MAX_JSON, damaged, open_members, suspicious

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_OLD_PROGRAM: Final = "serialized_exported_program.json"  # torch ≤ 2.7
_EXTRA: Final = "edgesdk.json"  # what edgesdk's own steps leave beside the graph


@dataclass(frozen=True)
class _Archive:
    """The parts of a ``.pt2`` that are read before torch deserialises it."""

    path: Path
    names: frozenset[str]
    read: Callable[[str], bytes]
    size: Callable[[str], int]
    document: Mapping[str, Any]
    version: str
    old: bool


class ExportedProgramImporter(Importer):
    """Versions first, then the guard, then torch."""

    name = "exported_program"

    def load(self, located: Located, options: ImportOptions) -> Model:
        from edgesdk.importing._export import adopt_program

        if located.path is None:
            raise ValueError("an exported program is a file")
        path = located.path
        with quiet_torch(), _opened(path) as archive:
            _check_versions(archive)
            _check_safe(archive)
            program, extra = _deserialise(archive)
        return _restore(adopt_program(program, located, options), extra, path)


@contextmanager
def _opened(path: Path) -> Iterator[_Archive]:
    """The archive through the same reader that torch will use, so that both see the same bytes."""
    from torch.export.pt2_archive._package import PT2ArchiveReader

    if _OLD_PROGRAM in open_members(path).names:
        with zipfile.ZipFile(path) as archive:
            names = frozenset(archive.namelist())
            document = _json(path, _read_checked(path, archive.read, _OLD_PROGRAM))
            yield _Archive(
                path, names, archive.read, lambda name: archive.getinfo(name).file_size, document, "", old=True
            )
        return
    try:
        reader = PT2ArchiveReader(str(path))
    except RuntimeError as exc:
        raise damaged(path, "it begins like a .pt2, but torch can't read its table of contents") from exc
    with reader:
        names = frozenset(reader.get_file_names())
        models = [n for n in names if n.startswith("models/") and n.endswith(".json")]
        if models != ["models/model.json"]:
            raise InputError(
                "several_programs", f"{path} holds {len(models)} programs ({', '.join(sorted(models)[:4])}).",
                why="edgesdk packages one network at a time.", fix="Save the one you want alone with torch.export.save.",
            )  # fmt: skip
        document = _json(path, _read_checked(path, reader.read_bytes, models[0]))
        version = _read_checked(path, reader.read_bytes, "archive_version").decode("ascii", "replace").strip()
        yield _Archive(
            path, names, reader.read_bytes, reader.archive_file.get_record_size, document, version, old=False
        )


def _read_checked(path: Path, read: Callable[[str], bytes], name: str) -> bytes:
    try:
        data = read(name)
    except (RuntimeError, KeyError, zipfile.BadZipFile, EOFError, OSError) as exc:
        raise damaged(path, f"its member '{name}' can't be read") from exc
    if len(data) > MAX_JSON:
        raise suspicious(path, f"its member '{name}' has {len(data) >> 20} MB")
    return data


def _json(path: Path, data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise damaged(path, f"the graph in it is no JSON ({exc})") from exc
    if not isinstance(document, dict):
        raise damaged(path, "the graph in it is no JSON object")
    return document


# --- versions ---------------------------------------------------------------------------------------------------------


def _check_versions(archive: _Archive) -> None:
    """Refuse an archive whose layout this torch doesn't read, with both versions."""
    from torch._export.serde.schema import SCHEMA_VERSION
    from torch.export.pt2_archive.constants import ARCHIVE_VERSION_VALUE

    found = archive.document.get("schema_version")
    if not isinstance(found, dict) or not isinstance(found.get("major"), int):
        raise damaged(archive.path, "it doesn't say the version of its graph")
    major, minor = found["major"], found.get("minor", 0)
    if not archive.old and archive.version != ARCHIVE_VERSION_VALUE:
        raise _wrong_version(archive, f"archive version {archive.version}", ARCHIVE_VERSION_VALUE)
    if (major, minor) != (0, 0) and major != SCHEMA_VERSION[0]:
        raise _wrong_version(archive, f"schema {major}.{minor}", ".".join(map(str, SCHEMA_VERSION)))


def _wrong_version(archive: _Archive, theirs: str, ours: str) -> InputError:
    import torch

    writer = _writer(archive)
    here = torch.__version__.partition("+")[0]
    return InputError(
        "pt2_version", f"{archive.path} was written by {writer} with {theirs}; this torch {here} reads {ours}.",
        why="Exported programs can only be read by torch releases that share their layout.",
        fix=f"Export again with torch {here} (torch.export.save(torch.export.export(…), '{archive.path.name}')), "
        f"or install {writer} beside edgesdk.",
        details={"written_by": writer, "theirs": theirs, "ours": ours, "torch": here},
    )  # fmt: skip


def _writer(archive: _Archive) -> str:
    version = str(archive.document.get("torch_version") or "").partition("+")[0]
    return f"torch {version}" if version else "another torch"


# --- safety -----------------------------------------------------------------------------------------------------------


_INSTEAD = {
    "export::access_subclass_inner_tensor": "The weights are tensors of a class of their own, as torchao.quantize_ makes them. "
    "Export the float model, and let --quantize do the rest: weight-int8 and dynamic-int8 need no data.",
}


def _check_safe(archive: _Archive) -> None:
    if any(name.startswith("data/aotinductor/") for name in archive.names):
        raise InputError(
            "compiled_program", f"{archive.path} holds compiled machine code (AOTInductor), not only a graph.",
            why="Machine code can't be checked or lowered for a phone, and loading it would run it.",
            fix="Save the program itself with torch.export.save.",
        )  # fmt: skip
    for problem in _pt2_guard.objections(archive.document):
        raise _unsafe(archive.path, problem)
    custom = _pt2_guard.unknown_namespaces(_pt2_guard.operators(archive.document))
    if custom:
        raise UnsupportedError(
            "unsupported_op", f"{archive.path} calls the custom operator {', '.join(custom[:3])}.",
            why="Custom operators live in a library of their own, and no mobile runtime has them.",
            fix=_INSTEAD.get(custom[0], "Export the model without them: rewrite that layer with plain torch operators."),
        )  # fmt: skip
    if not archive.old:
        for part in ("weights", "constants"):
            _check_payload(archive, part)


def _check_payload(archive: _Archive, part: str) -> None:
    """Tensors as plain bytes are fine; objects that must be unpickled are not."""
    name = f"data/{part}/model_{part}_config.json"
    if name not in archive.names:
        return  # the older layout: one file of torch.save, read with weights_only
    config = _json(archive.path, _read_checked(archive.path, archive.read, name)).get("config")
    for key, entry in config.items() if isinstance(config, dict) else ():
        file = str(entry.get("path_name")) if isinstance(entry, dict) else ""
        if file.startswith(("custom_obj_", "opaque_obj_")):
            raise _unsafe(archive.path, f"its constant '{key}' is an object that would have to be unpickled")
        member = f"data/{part}/{file}"
        if member not in archive.names:
            raise damaged(archive.path, f"'{key}' should be in its member '{member}', which is missing")
        if not archive.size(member) and _elements(entry.get("tensor_meta")):  # torch would make it zeros
            raise damaged(archive.path, f"the tensor '{key}' in it is empty")


def _elements(meta: Any) -> int:
    """Number of elements that a tensor's description promises."""
    sizes = meta.get("sizes", ()) if isinstance(meta, dict) else ()
    return math.prod(s["as_int"] for s in sizes if isinstance(s, dict) and isinstance(s.get("as_int"), int))


def _unsafe(path: Path, problem: str) -> InputError:
    return InputError(
        "unsafe_program", f"{path} is refused: {problem}.",
        why="Reading it with torch.export.load would run code that the file brings along.",
        fix="Get the model from a source you trust; export it again from its own code with torch.export.save.",
    )  # fmt: skip


# --- loading ----------------------------------------------------------------------------------------------------------


def _deserialise(archive: _Archive) -> tuple[ExportedProgram, Mapping[str, str]]:
    """Let torch read what passed the checks, with unpickling held to plain tensors."""
    import torch
    from torch.export.pt2_archive._package import load_pt2

    _import_operators(_pt2_guard.operators(archive.document))
    extra: dict[str, Any] = {}
    try:
        with force_weights_only():
            if archive.old:
                program = torch.export.load(archive.path, extra_files=extra)
            else:
                contents = load_pt2(str(archive.path))
                program, extra = contents.exported_programs["model"], contents.extra_files
        _check_nesting(program)
        return program, extra
    except Exception as exc:  # torch has no class of its own for a graph that it can't rebuild
        raise _unreadable(archive, exc) from exc


def _check_nesting(program: ExportedProgram) -> None:
    """As many leaves as the graph has inputs and outputs; torch doesn't compare them when it reads a file."""
    signature, spec = program.graph_signature, program.call_spec
    if spec.in_spec is None or spec.out_spec is None:
        raise ValueError("the nesting of its inputs and outputs is missing")
    found = (spec.in_spec.num_leaves, spec.out_spec.num_leaves)
    if found != (len(signature.user_inputs), len(signature.user_outputs)):
        raise ValueError(f"it names {found[0]} inputs and {found[1]} outputs, its graph has others")


def _import_operators(targets: set[str]) -> None:
    """Operators of these namespaces exist only once their library is imported."""
    import importlib

    needed = {"torchvision": "torchvision", "torchao": "torchao", "quantized_decomposed": "torchao.quantization.pt2e"}
    for space, module in needed.items():
        if not any(target.startswith(f"torch.ops.{space}.") for target in targets):
            continue
        try:
            importlib.import_module(module)
        except ImportError as exc:
            extra = "vision" if space == "torchvision" else "executorch"
            raise missing_library(module.partition(".")[0], extra, f"the operators of {space} in this program") from exc


def _unreadable(archive: _Archive, exc: Exception) -> EdgeError:
    import pickle

    import torch

    if isinstance(exc, pickle.UnpicklingError):
        return _unsafe(archive.path, "parts of it must be unpickled")
    block = re.search(r"wrap_with_(\w+) is missing val", str(exc))
    if block:
        return _unreadable_block(archive.path, block[1])
    reason = (str(exc) or type(exc).__name__).splitlines()[0][:200]
    here = torch.__version__.partition("+")[0]
    return InputError(
        "damaged_file", f"{archive.path} can't be rebuilt as a graph: {reason}",
        why=f"It is damaged, or {_writer(archive)} wrote something that torch {here} here doesn't know.",
        fix=f"Get the file again; if that doesn't help, export again with torch {here}.",
    )  # fmt: skip


def _unreadable_block(path: Path, name: str) -> UnsupportedError:
    """Seen with torch 2.15.0, when such blocks lie in each other."""
    said = {"autocast": "torch.autocast", "set_grad_enabled": "torch.no_grad"}.get(name, name)
    return UnsupportedError(
        "saved_block", f"{path} holds a block of {said} in a form that torch can save but not read back.",
        why="torch.export keeps such a block as a graph of its own; of blocks in each other its file drops what comes out.",
        fix=f"Take {said} out of forward() and export again, or give edgesdk the code, file.py:factory: it takes such blocks.",
    )  # fmt: skip


def _restore(model: Model, extra: Mapping[str, Any], path: Path) -> Model:
    """Put back what edgesdk's own steps stored: names, ranges, preprocessing, labels, history."""
    if _EXTRA not in extra:
        return model
    from edgesdk import modelfile

    text = extra[_EXTRA]
    try:
        stored = modelfile.restore(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, EdgeError) as exc:
        raise damaged(path, f"its extra file {_EXTRA} can't be read ({type(exc).__name__}: {exc})") from exc
    if _kinds(stored.signature) != _kinds(model.signature):
        raise damaged(path, f"its extra file {_EXTRA} describes other inputs or outputs than its graph has")
    return replace(
        stored, source=replace(model.source, pickle=stored.source.pickle), program=model.program, module=model.module,
        warnings=(*stored.warnings, *model.warnings),
    )  # fmt: skip


def _kinds(signature: Signature) -> list[list[tuple[str, int | None]]]:
    """dtype and rank of every input and output: what names and ranges may not change."""
    sides = (signature.inputs, signature.outputs)
    return [[(spec.dtype, None if spec.shape is None else len(spec.shape)) for spec in side] for side in sides]


IMPORTER = ExportedProgramImporter()
