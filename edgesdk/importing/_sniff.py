"""What a file is, from its bytes and never from its name. Nothing is loaded or unpickled, and torch isn't needed."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from edgesdk.errors import InputError
from edgesdk.importing._foreign import not_a_model, refuse_foreign
from edgesdk.importing._pickle import Node, PickleDamaged, Scan, find_module, scan, tensor_keys, walk_dicts
from edgesdk.importing._protobuf import looks_like_onnx
from edgesdk.importing._zips import MAX_PICKLE, Members, damaged, open_members, suspicious
from edgesdk.reading import parse_json

_HEAD: Final = 4096
# torch.serialization.MAGIC_NUMBER, first pickle of a file that torch.save wrote before 1.6 (or without the ZIP format).
_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
_MAX_SAFETENSORS_HEADER: Final = 100_000_000  # the limit of the safetensors format
_LIGHTNING_KEY: Final = "pytorch-lightning_version"


def sniff(path: Path | str) -> str:
    """The format of a file: a word of ``edgesdk inspect``'s ``format``.

    One of ``exported_program torchscript torchscript_lite state_dict pickled_module lightning onnx ort executorch
    edge``; ``transformers`` for a Hugging Face folder.

    Raises:
        InputError: the file is of another kind (the message says which), damaged, empty, or made to attack readers.
    """
    path = Path(path)
    if path.is_dir():
        return _sniff_folder(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not head:
        raise InputError(
            "empty_file", f"{path} is empty (0 bytes).", why="The download or the program that wrote it was stopped.",
            fix="Get or write the file again.",
        )  # fmt: skip
    if head[:2] == b"PK" and head[2:4] in (b"\x03\x04", b"\x05\x06"):
        return _sniff_zip(open_members(path))
    return _sniff_plain(path, head, size)


def _sniff_plain(path: Path, head: bytes, size: int) -> str:
    mark = head[4:8]
    if mark[:2] == b"ET" and mark[2:].isdigit():
        return "executorch"
    if mark == b"ORTM":
        return "ort"
    if mark == b"PTMF":
        return "torchscript_lite"
    if is_safetensors(head):
        read_safetensors_header(path)
        return "state_dict"
    if head[0] == 0x80 and head[1:2] <= b"\x05":
        return classify(path, scan_file(path))
    is_onnx, problem = looks_like_onnx(path, size)
    if problem:
        raise damaged(path, f"it begins like an ONNX model, but {problem}")
    if is_onnx:
        return "onnx"
    raise refuse_foreign(path, head)


def _sniff_folder(path: Path) -> str:
    config = path / "config.json"
    if not config.is_file():
        if (path / "Manifest.json").is_file() and (path / "Data").is_dir():
            raise not_a_model(path, "a Core ML package", fix="Package the PyTorch model that it was converted from.")
        if (path / "saved_model.pb").is_file():
            raise not_a_model(
                path, "a TensorFlow SavedModel", fix="Convert it to ONNX with tf2onnx, then package that."
            )
        candidates = sorted(p.name for p in path.iterdir() if p.is_file())[:5]
        holds = f"It holds {', '.join(candidates)}." if candidates else "It holds no files."
        raise InputError(
            "is_a_folder", f"{path} is a folder, and not one of Hugging Face (it has no config.json).", why=holds,
            fix="Name the model file inside it.",
        )  # fmt: skip
    return "transformers"


# --- ZIP --------------------------------------------------------------------------------------------------------------


def _sniff_zip(members: Members) -> str:
    names = members.names
    if "serialized_exported_program.json" in names or any(
        name.startswith("models/") and name.endswith(".json") for name in names
    ):
        return "exported_program"
    if "bytecode.pkl" in names:
        return "torchscript_lite"
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        return "torchscript"
    if ".data/extern_modules" in names or "extern_modules" in names:
        raise not_a_model(
            members.path, "a torch.package archive, which carries Python source to be run",
            why="Its code would have to be run to get at the model, and its inputs may be anything (text, lists).",
            fix="Load it in Python, take the nn.Module out, and export it: torch.export.save(torch.export.export(…), 'm.pt2').",
        )  # fmt: skip
    if "data.pkl" in names:
        return classify(members.path, _scan_member(members))
    if "manifest.json" in names and _is_bundle(members):
        return "edge"
    raise _foreign_zip(members)


def _is_bundle(members: Members) -> bool:
    try:
        document = parse_json(members.read("manifest.json", 16 << 20))
    except ValueError:
        return False
    return isinstance(document, dict) and str(document.get("schema", "")).startswith("edgesdk.bundle/")


def _foreign_zip(members: Members) -> InputError:
    names, path = members.names, members.path
    if {"AndroidManifest.xml", "classes.dex"} & names:
        return not_a_model(path, "an Android app (APK or AAR)")
    if "META-INF/MANIFEST.MF" in names or "MANIFEST.MF" in names:
        return not_a_model(path, "a Java archive")
    if "[Content_Types].xml" in names:
        return not_a_model(path, "an Office document")
    if "model.weights.h5" in names:
        return not_a_model(path, "a Keras model", fix="Export it to ONNX (keras: model.export(…, format='onnx')).")
    if "Manifest.json" in names or any(name.endswith(".mlmodel") for name in names):
        return not_a_model(
            path, "a zipped Core ML package", fix="Package the PyTorch model that it was converted from."
        )
    if names and all(name.endswith(".npy") for name in names):
        return not_a_model(
            path, "a NumPy archive (.npz) of arrays",
            fix="Load the arrays into your nn.Module with a small factory and give file.py:FACTORY; or --calibration FILE.",
        )  # fmt: skip
    models = sorted(
        n for n in names if n.rsplit(".", 1)[-1] in ("pt", "pth", "pt2", "onnx", "ckpt", "safetensors", "ptl")
    )
    if models:
        return not_a_model(
            path,
            f"a ZIP archive around other files ({', '.join(models[:3])})",
            fix="Unpack it and give the model inside.",
        )
    listed = ", ".join(sorted(names)[:5]) or "nothing"
    return not_a_model(path, f"a ZIP archive, but no model: it holds {listed}")


# --- pickles ----------------------------------------------------------------------------------------------------------


def scan_file(path: Path) -> Scan:
    """Scan the pickle of a file that ``torch.save`` wrote (ZIP or legacy), or of a bare pickle.

    Raises:
        InputError: the file is damaged.
    """
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            return _scan_member(open_members(path))
        file.seek(0)
        try:
            return _scan_legacy(file)
        except PickleDamaged as exc:
            raise _damaged_pickle(path, exc) from exc


def _scan_legacy(file: IO[bytes]) -> Scan:
    first = scan(file)
    if first.top != _LEGACY_MAGIC:
        return first
    scan(file)  # protocol version
    scan(file)  # sizes of the writer's machine
    return scan(file)


def _scan_member(members: Members) -> Scan:
    try:
        return scan(members.read("data.pkl", MAX_PICKLE))
    except PickleDamaged as exc:
        raise _damaged_pickle(members.path, exc) from exc


def _damaged_pickle(path: Path, exc: Exception) -> InputError:
    reason = str(exc) or "it ends too early"
    return damaged(path, f"it begins like a file of torch.save, but its pickle can't be read ({reason[:120]})")


def classify(path: Path, found: Scan) -> str:
    """``state_dict``, ``lightning`` or ``pickled_module``, from what a pickle would build.

    Raises:
        InputError: it is a pickle of something that is no model, or it asks for gigabytes in one call.
    """
    if found.oversized:
        raise suspicious(path, "its pickle asks for more than 2 GB in one call")
    top = found.top
    if isinstance(top, Node) and top.is_dict:
        if _LIGHTNING_KEY in top.mapping() and "state_dict" in top.mapping():
            return "lightning"
        tables = [tensor_keys(node) for _, node in walk_dicts(top)]
        # A few tensors beside a whole module (anchors, class weights) are not the weights.
        if any("." in key for keys in tables for key in keys) or (any(tables) and not find_module(top)):
            return "state_dict"
    if find_module(top) or found.dangerous:
        return "pickled_module"
    raise _no_weights(path, top)


def _no_weights(path: Path, top: object) -> InputError:
    if not isinstance(top, Node):
        return not_a_model(path, f"a pickle of a single {type(top).__name__}, not of a model")
    if top.is_tensor:
        return not_a_model(path, "a single tensor that torch.save wrote, not a model")
    if top.callee.split(".")[0] in ("sklearn", "xgboost", "lightgbm", "catboost"):
        return not_a_model(
            path, f"a pickled {top.callee}, not a PyTorch model", fix="Convert it to ONNX with skl2onnx or its library."
        )
    if top.is_dict:
        keys = ", ".join(list(top.mapping())[:6]) or "none"
        return not_a_model(path, f"a pickled dictionary without tensors (keys: {keys})")
    return not_a_model(path, f"a pickled {top.callee}, with neither weights nor an nn.Module in it")


# --- safetensors ------------------------------------------------------------------------------------------------------


def is_safetensors(head: bytes) -> bool:
    if len(head) < 9:
        return False
    (length,) = struct.unpack_from("<Q", head)
    return 2 <= length <= _MAX_SAFETENSORS_HEADER and head[8:9] == b"{"


def read_safetensors_header(path: Path) -> dict[str, dict[str, object]]:
    """``{name: {"dtype", "shape", "data_offsets"}}`` of a safetensors file, checked against the file's size.

    Raises:
        InputError: the header can't be read or the file is shorter than the header says.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if 8 + length > size:
            raise damaged(path, f"its safetensors header claims {length} bytes, the file has {size}")
        try:
            header = parse_json(file.read(length))
        except ValueError as exc:
            raise damaged(path, f"it begins like safetensors, but its header is no JSON ({exc})") from exc
    tensors: dict[str, dict[str, Any]] = {name: entry for name, entry in header.items() if name != "__metadata__"}
    try:
        end = max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as exc:
        raise damaged(path, "its safetensors header has an entry without offsets") from exc
    if 8 + length + end != size:
        raise damaged(path, f"its safetensors header needs {8 + length + end} bytes, the file has {size}")
    _check_entries(path, tensors)
    return tensors


# Bits of one element, from the safetensors format's list; a type that isn't here is not checked for its size.
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


def _check_entries(path: Path, tensors: Mapping[str, Mapping[str, Any]]) -> None:
    """Each entry's bytes are as many as its sizes need, and together they cover the data once, as the format demands."""
    place = 0
    for name, entry in sorted(tensors.items(), key=lambda item: _offsets(path, *item)):
        begin, end = _offsets(path, name, entry)
        shape, bits = entry.get("shape"), _BITS.get(str(entry.get("dtype")))
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise damaged(path, f"its safetensors header gives '{name}' no sizes")
        needed = math.prod(shape) * bits if bits else (end - begin) * 8
        if begin != place or (end - begin) * 8 != needed:
            raise damaged(
                path, f"its safetensors header lies: '{name}' has the sizes {shape} and the bytes {begin} to {end}"
            )
        place = end


def _offsets(path: Path, name: str, entry: Mapping[str, Any]) -> tuple[int, int]:
    found = entry["data_offsets"]
    if not isinstance(found, list) or len(found) != 2 or not all(type(n) is int and n >= 0 for n in found):
        raise damaged(path, f"its safetensors header gives '{name}' no offsets")
    return found[0], found[1]
