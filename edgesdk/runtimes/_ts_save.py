"""Bytes of a ``.ptl``: save for the Lite interpreter, choose the bytecode version, leave out what isn't the model."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgesdk.errors import InputError, UnsupportedError, UsageError

# Bytecode version -> first PyTorch Mobile release that reads it. From kMaxSupportedBytecodeVersion (1.9:
# kProducedBytecodeVersion) in caffe2/serialize/versions.h and inline_container.h of the wheels 1.9.0 (5), 1.10.2 (7),
# 1.11.0 (8, but its archive version 6 is too old for what we write as 8), 1.12.1 and 2.1.2 (9).
RELEASES: Mapping[int, str] = {4: "1.9", 5: "1.9", 6: "1.10", 7: "1.10", 8: "1.12"}
DEFAULT_BYTECODE = 8
# kMaxSupportedFileFormatVersion up to 1.11. torch's own backport leaves 10, which those releases refuse. With 6, newer
# releases apply their upgraders for 7…10 (linspace, logspace, gelu), which change nothing when all arguments are given.
_OLD_ARCHIVE_VERSION = b"6\n"
_ALIGNMENT = 64  # caffe2::serialize::kFieldAlignment: tensors can be mapped
_PREFIX = "archive/"


@dataclass(frozen=True)
class Bytecode:
    """What a ``.ptl`` says about itself.

    Attributes:
        version: bytecode version.
        operators: arguments given, by ``namespace::name.overload``; -1 where the version doesn't record it.
        stateful: a call can change what later calls answer.
    """

    version: int
    operators: Mapping[str, int]
    stateful: bool


def archive(module: Any, bytecode: int | None) -> bytes:
    """Save a script module (``torch._C.ScriptModule``) for the Lite interpreter; to be rewritten by :func:`repack`.

    Raises:
        UsageError: there is no such bytecode version.
        UnsupportedError: the language has something that the Lite interpreter lacks, or no older form exists.
    """
    import torch

    wanted = DEFAULT_BYTECODE if bytecode is None else bytecode
    if wanted not in RELEASES:
        raise UsageError(
            "bad_bytecode", f"There is no bytecode version {wanted}.",
            why=f"PyTorch Mobile reads {', '.join(f'{v} (from {r})' for v, r in RELEASES.items())}.",
            fix="Choose one of these, or leave it out.",
        )  # fmt: skip
    try:
        data: bytes = module._save_to_buffer_for_mobile({})
        if wanted != DEFAULT_BYTECODE:
            backport: Any = torch._C._backport_for_mobile_from_buffer_to_buffer  # its stub asks for a file
            data = backport(data, wanted)
    except RuntimeError as exc:
        raise _cant_save(exc, wanted) from exc
    return data


def _cant_save(exc: RuntimeError, wanted: int) -> UnsupportedError:
    first = str(exc).strip().splitlines()[0]
    return UnsupportedError(
        "lite_unsupported", f"The model can't be saved for the Lite interpreter: {first[:200]}",
        why="The Lite interpreter knows fewer language features than TorchScript"
            + (f", and bytecode version {wanted} fewer still." if wanted != DEFAULT_BYTECODE else "."),
        fix="Package the model's PyTorch source instead of its TorchScript archive, or use --runtime executorch.",
    )  # fmt: skip


def repack(data: bytes, bytecode: int | None) -> bytes:
    """Rewrite the archive without debug information, with aligned records and one date.

    Two archives of one module give equal bytes: it is always called ``archive``, and debug information holds paths of this
    machine.
    """
    wanted = DEFAULT_BYTECODE if bytecode is None else bytecode
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name in source.namelist():
            inner = name.partition("/")[2]
            if inner.endswith(".debug_pkl") or inner == ".data/serialization_id":
                continue
            content = source.read(name)
            if inner in ("version", ".data/version") and wanted < DEFAULT_BYTECODE:
                content = _OLD_ARCHIVE_VERSION
            target.writestr(_entry(_PREFIX + inner, out.tell()), content)
    return out.getvalue()


def _entry(name: str, offset: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    fixed = 30 + len(name.encode()) + 4  # local header, name, and the header of the extra field that pads
    padding = -(offset + fixed) % _ALIGNMENT
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    return info


def write(data: bytes, out: Path) -> None:
    """Write beside the target and rename: a killed run leaves no half-written file under its name."""
    temporary = out.with_name(out.name + ".part")
    try:
        temporary.write_bytes(data)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_bytecode(path: Path) -> Bytecode:
    """What the file says about itself, without loading it. Nothing in it is executed.

    Raises:
        InputError: the file is missing, damaged, or no Lite archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            if "bytecode.pkl" not in names:
                raise _full_archive(path) if "constants.pkl" in names else _not_lite(path)
            document = _Plain(io.BytesIO(archive.read(names["bytecode.pkl"]))).load()
            tensors = b"_rebuild_tensor" in archive.read(names["data.pkl"]) if "data.pkl" in names else True
        version = int(document[0])
        operators, instructions = _functions(document[1:])
    except (OSError, zipfile.BadZipFile) as exc:
        raise _not_lite(path) from exc
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError) as exc:
        raise damaged(path) from exc
    writes = "SET_ATTR" in instructions or any(n.partition(".")[0].endswith("_") for n in operators)
    return Bytecode(version, operators, tensors and writes)


def is_quantized(operators: Iterable[str]) -> bool:
    """Whether any of these operators computes in int8, and so depends on the engine."""
    return any(name.startswith(("quantized::", "aten::quantize")) for name in operators)


def _functions(functions: Any) -> tuple[dict[str, int], set[str]]:
    operators: dict[str, int] = {}
    instructions: set[str] = set()
    for _, table, *_schema in functions:
        fields = dict(table)
        instructions |= {instruction[0] for instruction in fields["instructions"]}
        for name, overload, *arguments in fields["operators"]:
            full = f"{name}.{overload}" if overload else name
            operators[full] = max(operators.get(full, -1), arguments[0] if arguments else -1)
    return operators, instructions


class _Plain(pickle.Unpickler):
    """Reads the tuples of ``bytecode.pkl``. Whatever isn't plain data becomes None; no global is ever looked up."""

    def find_class(self, module: str, name: str) -> Any:
        return _Ignored

    def persistent_load(self, pid: Any) -> Any:
        return None


class _Ignored:
    """Stands for every object in the pickle."""

    def __new__(cls, *_: Any) -> _Ignored:
        return object.__new__(cls)

    def __setstate__(self, state: Any) -> None:
        """Forget it."""


def _not_lite(path: Path) -> InputError:
    return InputError(
        "not_torchscript_lite", f"{path.name} is no TorchScript Lite file.",
        why="It is missing, damaged, or of another kind.",
        fix="Package the model again, or give a file saved with _save_for_lite_interpreter.",
    )  # fmt: skip


def _full_archive(path: Path) -> InputError:
    return InputError(
        "full_torchscript", f"{path.name} is a full TorchScript archive without Lite bytecode.",
        why="It was saved with torch.jit.save; the Lite interpreter needs _save_for_lite_interpreter.",
        fix=f"Package it: edgesdk package {path.name} --runtime torchscript",
    )  # fmt: skip


def damaged(path: Path) -> InputError:
    """The file is a Lite archive, but its contents can't be read."""
    return InputError(
        "not_torchscript_lite", f"{path.name} is damaged: its bytecode can't be read.",
        why="The file was cut off or changed after it was written.", fix="Package the model again.",
    )  # fmt: skip
