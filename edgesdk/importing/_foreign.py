"""Files that people hand in by mistake: what they really are, from their first bytes, and where the model may be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from edgesdk.errors import InputError

_RECOGNISED: Final = (
    "edgesdk reads .pt2, TorchScript, state dicts (.pth, .safetensors, with --arch), .onnx, Hugging Face folders, "
    "and file.py:factory."
)
_CONVERT_TF = "Convert it to ONNX first (tf2onnx converts TensorFlow and TFLite models), then package the .onnx."

# (offset, bytes, what it is, what to do)
_MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (4, b"TFL3", "a TensorFlow Lite model", _CONVERT_TF),
    (0, b"\x08\x01\x12", "probably a TensorFlow SavedModel", _CONVERT_TF),
    (0, b"GGUF", "a GGUF language model of llama.cpp", "Use the original Hugging Face folder with safetensors."),
    (0, b"ggml", "an old ggml model", "Use the original PyTorch weights."),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, probably a Keras model", _CONVERT_TF),
    (0, b"\x1f\x8b", "a gzip file", "Unpack it first: gunzip FILE (or tar xzf FILE), then give what it holds."),
    (0, b"BZh", "a bzip2 file", "Unpack it first: bunzip2 FILE."),
    (0, b"\xfd7zXZ\x00", "an xz file", "Unpack it first: unxz FILE."),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file", "Unpack it first: unzstd FILE."),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "Unpack it first."),
    (0, b"Rar!\x1a\x07", "a RAR archive", "Unpack it first."),
    (257, b"ustar", "a tar archive", "Unpack it first: tar xf FILE, then give the model inside."),
    (0, b"\x93NUMPY", "a NumPy array", "An array is data, not a model; give it to --calibration or --eval as .npz."),
    (0, b"\x89PNG", "a PNG picture", _RECOGNISED),
    (0, b"\xff\xd8\xff", "a JPEG picture", _RECOGNISED),
    (0, b"GIF8", "a GIF picture", _RECOGNISED),
    (0, b"RIFF", "a RIFF file (WebP, WAV or AVI)", _RECOGNISED),
    (0, b"%PDF", "a PDF document", _RECOGNISED),
    (0, b"\x7fELF", "a compiled program or library", _RECOGNISED),
    (0, b"MZ", "a Windows program", _RECOGNISED),
    (0, b"PAR1", "a Parquet table", "A table is data, not a model; give it to --calibration or --eval."),
    (0, b"SQLite format 3\x00", "an SQLite data base", _RECOGNISED),
)
_LFS = b"version https://git-lfs.github.com/spec/"


def refuse_foreign(path: Path, head: bytes) -> InputError:
    """The error for bytes that no importer takes; ``head`` is the first few kilobytes.

    The cause is named as precisely as the bytes allow: a Git-LFS pointer, a web page, another framework's model,
    a picture, text, or zeros.
    """
    for offset, magic, what, fix in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return not_a_model(path, what, fix=fix)
    if not head.strip(b"\0"):
        return not_a_model(
            path, "only zeros, no data",
            fix="The download was set up but never filled, or the disk was full. Get the file again.",
        )  # fmt: skip
    text = _as_text(head)
    if text is not None:
        return _refuse_text(path, text)
    return not_a_model(path, "no model format that edgesdk knows")


def _as_text(head: bytes) -> str | None:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as exc:
        if exc.start < len(head) - 4:  # a character cut in half at the end is no reason to doubt the text
            return None
        text = head[: exc.start].decode("utf-8")
    control = sum(ch < " " and ch not in "\t\n\r\f" for ch in text)
    return None if control else text.lstrip("\ufeff \t\r\n")


def _refuse_text(path: Path, text: str) -> InputError:
    low = text[:2000].lower()
    if text.startswith(_LFS.decode()):
        return not_a_model(
            path, "a Git-LFS pointer, not the model itself",
            why="The repository was cloned without Git LFS, so a small text file stands where the weights belong.",
            fix="Run 'git lfs install' and 'git lfs pull' in that repository, then try again.",
        )  # fmt: skip
    if low.startswith(("<!doctype html", "<html", "<head", "<body")) or "<html" in low:
        return not_a_model(
            path, "a web page (HTML), not a model",
            why="The download link led to a page (a log-in, an error, or the page around the file), and that was saved.",
            fix="Download the file itself: the 'raw' or 'download' link, with a token where one is needed.",
        )  # fmt: skip
    if low.startswith("<?xml"):
        return not_a_model(path, "an XML text, perhaps a download server's error message")
    if re.match(r"\{\s*[\"}]|\[\s*[\[{\"\d]", text):
        return not_a_model(
            path, "a JSON text",
            fix="If this is a Hugging Face config.json, give its folder instead of the file.",
        )  # fmt: skip
    if any(word in low for word in ("import torch", "def ", "class ", "import ")):
        return not_a_model(
            path, "Python source", fix=f"Name the function or class that makes the model: {path}:FACTORY"
        )
    return not_a_model(path, f"plain text that begins {text[:40]!r}")


def not_a_model(path: Path, what: str, *, why: str | None = None, fix: str | None = None) -> InputError:
    """``not_a_model``: the file is ``what``."""
    return InputError(
        "not_a_model", f"{path} is {what}.",
        why=why or "The kind of a file is found from its bytes; its name doesn't matter.",
        fix=fix or _RECOGNISED,
        details={"path": str(path), "what": what},
    )  # fmt: skip
