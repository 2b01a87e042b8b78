"""MODEL as the user typed it, resolved without importing torch: what it is, where it is, and its checksum."""

from __future__ import annotations

import ast
import difflib
import hashlib
import os
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from edgesdk.artifacts import Source
from edgesdk.errors import InputError, UsageError
from edgesdk.importing import _protobuf
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._foreign import not_a_model
from edgesdk.importing._git import commit_of
from edgesdk.importing._sniff import sniff
from edgesdk.importing._zips import check_checksums

LIBRARIES: Final = ("torchvision", "timm", "hf")
_NAME: Final = re.compile(r"(torchvision|timm|hf):(.*)", re.DOTALL)
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_FACTORY: Final = re.compile(r"[A-Za-z_][\w.]*")
# Formats that share an importer with another one.
_IMPORTER_OF: Final = {"torchscript_lite": "torchscript", "ort": "onnx"}
_TAKES_ARCH: Final = ("state_dict", "lightning")


def locate(text: str, options: ImportOptions | None = None) -> Located:
    """Resolve MODEL: a path, ``file.pth#KEY``, ``file.py:factory``, ``package.module:factory``,
    ``torchvision:NAME[@WEIGHTS]``, ``timm:NAME[@TAG]``, ``hf:ORG/MODEL`` or a Hugging Face folder.

    The kind of a file comes from its bytes. Nothing is unpickled, imported or downloaded here.

    Raises:
        InputError: it doesn't exist, can't be read, is damaged, or is no model.
        UsageError: the text can't be read, or a name is incomplete.
    """
    options = options or ImportOptions()
    if not text.strip():
        raise UsageError(
            "no_model", "MODEL is empty.", why="Every run starts from a model.", fix="Name a file, e.g. model.pt2."
        )
    path = Path(text).expanduser()
    try:
        if path.exists() or path.is_symlink():
            return _locate_path(text, path, None, options)
        named = _NAME.fullmatch(text)
        if named:
            return _locate_name(text, named[1], named[2].strip())
        head, colon, factory = text.rpartition(":")
        if colon and head and (head.endswith(".py") or Path(head).expanduser().is_file()):
            return _locate_python(text, Path(head).expanduser(), factory)
        if colon and _DOTTED.fullmatch(head) and "/" not in text:
            return _locate_package(text, head, factory)
        head, mark, key = text.rpartition("#")
        if mark and Path(head).expanduser().is_file():
            return _locate_path(text, Path(head).expanduser(), key, options)
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    raise missing(path)


def missing(path: Path) -> InputError:
    """``missing_file``, with the nearest names in the same folder."""
    parent = path.parent
    near: list[str] = []
    if parent.is_dir():
        near = difflib.get_close_matches(path.name, [p.name for p in parent.iterdir()], n=3, cutoff=0.6)
        why = f"{parent if str(parent) != '.' else 'The current folder'} has no file of that name."
    else:
        why = f"The folder {parent} doesn't exist."
    hint = f"Did you mean {' or '.join(repr(str(parent / n)) for n in near)}? " if near else ""
    return InputError(
        "missing_file", f"{path} doesn't exist.", why=why,
        fix=f"{hint}Check the path; names of architectures are written torchvision:NAME, timm:NAME or hf:ORG/MODEL.",
    )  # fmt: skip


def _unreadable(path: Path, exc: OSError) -> InputError:
    path = Path(os.fsdecode(exc.filename)) if isinstance(exc.filename, (str, bytes)) else path
    if isinstance(exc, PermissionError):
        return InputError(
            "unreadable_file", f"{path} can't be read: permission denied.",
            why="The file or a folder above it belongs to another user, or its mode forbids reading.",
            fix=f"Allow it: chmod u+r {path}",
        )  # fmt: skip
    return InputError(
        "unreadable_file", f"{path} can't be read: {exc.strerror or exc}.", why="The operating system refused.",
        fix="Check the path and the disk.",
    )  # fmt: skip


def _locate_path(text: str, path: Path, key: str | None, options: ImportOptions) -> Located:
    if path.is_symlink() and not path.exists():
        raise InputError(
            "missing_file", f"{path} is a link to {path.readlink()}, which doesn't exist.",
            why="The file that it points to was moved or deleted.", fix="Restore the file or correct the link.",
        )  # fmt: skip
    if not path.is_dir() and not path.is_file():
        raise InputError(
            "not_a_file", f"{path} is a device or pipe, not a file.", why="A model is read more than once.",
            fix="Save it to a file first.",
        )  # fmt: skip
    if path.suffix == ".py" and path.is_file():
        raise _no_factory(path)
    form = sniff(path)
    if path.is_file() and zipfile.is_zipfile(path):
        check_checksums(path)
    if path.is_dir():
        files = transformers_files(path)
        source = Source(path.resolve().name, form, _digest_folder(path, files), git_commit=commit_of(path))
        return Located("transformers", text, source, path=path, files=files)
    source = Source(path.stem, form, _digest(path), git_commit=commit_of(path))
    kind = _IMPORTER_OF.get(form, form)
    return Located(kind, text, source, path=path, member=key, files=_files_of(kind, path, options))


def _files_of(kind: str, path: Path, options: ImportOptions) -> tuple[Path, ...] | None:
    """What the import will read; None when user code has a say in it."""
    if kind == "pickled_module":
        return None
    if kind == "onnx":
        return (path, *_protobuf.external_files(path))
    if kind in _TAKES_ARCH and options.arch:
        library, _, rest = options.arch.partition(":")
        if library == "transformers" and (Path(rest) / "config.json").is_file():
            return (path, Path(rest) / "config.json")
        return (path,) if library in ("torchvision", "timm") else None
    return (path,)


def arch_missing(located: Located, arch: str | None) -> InputError | None:
    """What an import of weights alone will refuse, as far as it is known from the file's kind: a network is needed, too."""
    if located.kind not in _TAKES_ARCH or arch:
        return None
    return InputError(
        "arch_missing", f"{located.text} holds weights without the network that they belong to, and no arch is given.",
        why="The code that makes the network isn't in the file.",
        fix="Say where it is: --arch file.py:FACTORY (or torchvision:NAME, timm:NAME), or arch under [model] in the recipe. "
        f"'edgesdk inspect {located.text}' tells what the names of the weights look like.",
    )  # fmt: skip


def _locate_name(text: str, library: str, name: str) -> Located:
    if not name or (library == "hf" and not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name)):
        raise UsageError(
            "bad_model_name", f"MODEL {text!r} is incomplete.", why=f"A name must follow '{library}:'.",
            fix="Write torchvision:mobilenet_v2, timm:mobilenetv4_conv_small or hf:ORG/MODEL.",
        )  # fmt: skip
    short = name.partition("@")[0].rsplit("/", 1)[-1]
    form = "transformers" if library == "hf" else "architecture"
    # Random weights are made from a fixed seed, so the result depends on no file; downloads depend on the library's cache.
    files = () if "@" not in name and library != "hf" and not (library == "timm" and "." in name) else None
    return Located("named", text, Source(short, form), member=name, files=files)


def _locate_python(text: str, path: Path, factory: str) -> Located:
    if not path.exists():
        raise missing(path)
    if not path.is_file():
        raise InputError(
            "is_a_folder",
            f"{path} is a folder.",
            why="FILE.py:FACTORY names a Python file.",
            fix="Name the file inside.",
        )
    if path.suffix != ".py":
        raise not_a_model(
            path, f"no Python source, so '{factory}' can't be called in it",
            fix=f"Give the file alone ({path}); weights inside a checkpoint are chosen with {path}#KEY.",
        )  # fmt: skip
    if not _FACTORY.fullmatch(factory):
        raise _no_factory(path)
    source = Source(factory.rsplit(".", 1)[-1], "python_factory", _digest(path), git_commit=commit_of(path))
    return Located("python_file", text, source, path=path, member=factory)


def _locate_package(text: str, package: str, factory: str) -> Located:
    if not _FACTORY.fullmatch(factory):
        raise UsageError(
            "bad_model_name", f"MODEL {text!r} is incomplete.", why="A function or class must follow the colon.",
            fix=f"Write {package}:FACTORY.",
        )  # fmt: skip
    return Located("python_file", text, Source(factory.rsplit(".", 1)[-1], "python_factory"), member=factory)


def _no_factory(path: Path) -> UsageError | InputError:
    offered = factories_in(path)
    return InputError(
        "no_factory", f"{path} is Python source; which function or class in it makes the model isn't said.",
        why=f"It defines {', '.join(offered)}." if offered else "It defines no function or class.",
        fix=f"Write {path}:{offered[0] if offered else 'FACTORY'}",
    )  # fmt: skip


def factories_in(path: Path) -> list[str]:
    """Public functions and classes that a Python file defines, in order; empty when it can't be parsed."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        return []
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


# --- Hugging Face folders ---------------------------------------------------------------------------------------------


def transformers_files(folder: Path) -> tuple[Path, ...]:
    """The files of a Hugging Face folder that make up the model: configuration, weights, tokenizer.

    Raises:
        InputError: it has no weights that can be read safely, or a weight file is damaged or a pointer.
    """
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    if not weights:
        raise InputError(
            "no_weights", f"{folder} has a config.json but no weights.",
            why="Neither *.safetensors nor pytorch_model.bin is in it; the download may be incomplete.",
            fix=f"Download the whole model: hf download ORG/MODEL --local-dir {folder}",
        )  # fmt: skip
    for file in weights:
        sniff(file)
    described = [p for suffix in ("*.json", "*.txt", "*.model") for p in folder.glob(suffix) if p.is_file()]
    return tuple(sorted({*weights, *described}))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_folder(folder: Path, files: Iterable[Path]) -> str:
    """sha256 over one line per file, ``NAME<NUL>SHA256``, sorted by name."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.relative_to(folder)}\0{_digest(file)}\n".encode())
    return whole.hexdigest()
