"""A Model as a file: ``.pt2`` (or TorchScript, or ONNX) with our JSON in its extra files.

A model that was pruned or quantized reloads in a new process without the code that defined it.
"""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk._disk import writing
from edgesdk.artifacts import HistoryStep, Model, Signature, Source, Warn
from edgesdk.cache import sha256_file

if TYPE_CHECKING:
    from torch.export import ExportedProgram

EXTRA = "edgesdk.json"
SCHEMA = "edgesdk.model/1"


def describe(model: Model) -> dict[str, Any]:
    """Everything about a model but its graph and weights, as JSON."""
    return {
        "schema": SCHEMA,
        "source": asdict(model.source),
        "signature": model.signature.to_json(),
        "int_ranges": {name: list(pair) for name, pair in model.int_ranges.items()},
        "stateful": model.stateful,
        "preprocess": model.preprocess.to_json() if model.preprocess else None,
        "labels": list(model.labels) if model.labels else None,
        "task": model.task,
        "license": model.license,
        "history": [step.to_json() for step in model.history],
        "warnings": [warn.to_json() for warn in model.warnings],
    }


def restore(document: dict[str, Any]) -> Model:
    """The inverse of :func:`describe`; graph and weights are still to be added."""
    from edgesdk.preprocess import PreprocessSpec

    return Model(
        source=Source(**document["source"]),
        signature=Signature.from_json(document["signature"]),
        int_ranges={name: (low, high) for name, (low, high) in document["int_ranges"].items()},
        stateful=document["stateful"],
        preprocess=PreprocessSpec.from_json(document["preprocess"]) if document["preprocess"] else None,
        labels=tuple(document["labels"]) if document["labels"] else None,
        task=document["task"],
        license=document["license"],
        history=tuple(HistoryStep(**step) for step in document["history"]),
        warnings=tuple(Warn(**warn) for warn in document["warnings"]),
    )


def dumps(model: Model) -> str:
    """:func:`describe` as text, for the extra file of a ``.pt2``."""
    return json.dumps(describe(model))


def save(model: Model, folder: Path) -> None:
    """Write ``model.json`` and whatever forms the model has into a folder.

    Raises:
        OSError: the disk is full, and the like.
    """
    import torch

    text = dumps(model)
    (folder / "model.json").write_text(text)
    if model.program is not None:
        _own_empties(model.program)
        with writing(folder / "model.pt2") as file:
            torch.export.save(model.program, file, extra_files={EXTRA: text})
    if model.script is not None:
        with writing(folder / "model.pt") as file:
            torch.jit.save(model.script, file, _extra_files={EXTRA: text})
    if model.onnx is not None:
        _copy_onnx(model.onnx, folder / "onnx")


def _own_empties(program: ExportedProgram) -> None:
    """Give tensors without elements a storage of their own.

    Their address is null, which ``torch.export.save`` (2.15) takes for a place before the storage, where there is one: ONNX's
    unused ``roi`` of Resize comes with one.
    """
    import torch

    for tensors in (program.state_dict, program.constants):
        for name, value in list(tensors.items()):
            if isinstance(value, torch.Tensor) and not value.numel() and value.untyped_storage().data_ptr():
                fresh = torch.empty(value.shape, dtype=value.dtype)
                tensors[name] = torch.nn.Parameter(fresh, False) if isinstance(value, torch.nn.Parameter) else fresh


def described(folder: Path) -> Model:
    """What :func:`save` wrote, without graph and weights."""
    return restore(json.loads((folder / "model.json").read_text()))


def load(folder: Path) -> Model:
    """Read what :func:`save` wrote."""
    import torch

    model = described(folder)
    if (folder / "model.pt2").exists():
        _import_operators(folder / "model.pt2")
        model = replace(model, program=torch.export.load(folder / "model.pt2"))
    if (folder / "model.pt").exists():
        script: torch.jit.ScriptModule = torch.jit.load(str(folder / "model.pt"), map_location="cpu")  # type: ignore[no-untyped-call]
        model = replace(model, script=script)
    found = sorted((folder / "onnx").glob("*.onnx")) if (folder / "onnx").is_dir() else []
    return replace(model, onnx=found[0]) if found else model


def _import_operators(path: Path) -> None:
    """Operators of other libraries exist only once those are imported, in this process too."""
    import re
    import zipfile

    from edgesdk.importing import exported_program

    with zipfile.ZipFile(path) as archive:
        texts = [archive.read(name) for name in archive.namelist() if name.endswith("models/model.json")]
    found = {space.decode() for text in texts for space in re.findall(rb"torch\.ops\.\w+\.", text)}
    exported_program._import_operators(found)


def fingerprint(model: Model) -> str:
    """sha256 over the graph and the weights: equal programs lower to equal files."""
    import hashlib

    digest = hashlib.sha256(json.dumps({**describe(model), "source": None, "warnings": None}).encode())
    if model.program is not None:
        digest.update(str(model.program.graph_module.code).encode())
        digest.update(str(model.program.graph_signature).encode())
        digest.update(str(model.program.range_constraints).encode())
        tensors = {**model.program.state_dict, **model.program.constants}
        for name in sorted(tensors):
            _hash_tensor(digest, name, tensors[name])
    if model.script is not None:
        import torch

        buffer = io.BytesIO()
        torch.jit.save(model.script, buffer)  # its own save() takes names only, and makes one of a buffer
        digest.update(buffer.getbuffer())
    if model.onnx is not None:
        for path in (model.onnx, *(model.onnx.parent / name for name in sorted(external_files(model.onnx)))):
            digest.update(sha256_file(path).encode())
    return digest.hexdigest()


def _hash_tensor(digest: Any, name: str, tensor: Any) -> None:
    import torch

    digest.update(name.encode())
    if isinstance(tensor, torch.Tensor):
        flat = tensor.detach().cpu().contiguous()
        digest.update(f"{flat.dtype}{tuple(flat.shape)}".encode())
        digest.update(flat.reshape(-1).view(torch.uint8).numpy().data if flat.numel() else b"")
    else:
        digest.update(repr(tensor).encode())


def external_files(onnx_path: Path) -> set[str]:
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    proto = onnx.load(str(onnx_path), load_external_data=False)
    return {
        entry.value
        for tensor in _get_all_tensors(proto)
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _copy_onnx(source: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    shutil.copyfile(source, folder / "model.onnx")
    for name in external_files(source):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.parent / name, target)
