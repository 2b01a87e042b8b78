"""Open a session of ONNX Runtime, and say in words what it refuses."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Signature
from edgesdk.errors import EdgeError, InputError, UnsupportedError
from edgesdk.runtimes._base import Runner

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

_FATAL_ONLY = 4
_EXACT = "session.x64quantprecision"
"""Weights as uint8: sums of int8 products are then exact on every x86 CPU, as on phones."""
_ORT_MAGIC = b"ORTM"  # file identifier of the flatbuffer, at byte 4 (onnxruntime/core/flatbuffers/schema/ort.fbs)


def options(*, optimize: bool = True, threads: int | None = None, exact: bool = True) -> Any:
    """Session options: quiet; without ``threads`` ONNX Runtime takes one per physical core.

    Args:
        exact: let int8 sums be exact on x86 CPUs that would cut them at 16 bits, so that checks show what phones do.
    """
    import onnxruntime

    made = onnxruntime.SessionOptions()
    made.log_severity_level = _FATAL_ONLY
    if exact and host() == "x86":
        made.add_session_config_entry(_EXACT, "1")
    if threads is not None:
        made.intra_op_num_threads = threads
    if not optimize:
        made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return made


@cache
def host() -> str:
    """How this machine's CPU multiplies int8: ``arm64``, ``x86-vnni`` or ``x86`` (sums saturate at 16 bits)."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "arm64"
    try:
        return "x86-vnni" if "vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8") else "x86"
    except OSError:  # not Linux
        return "x86"


def open_session(path: Path, settings: Any = None) -> Any:
    """Load ``.onnx`` or ``.ort``, told apart by content.

    Raises:
        InputError: the file is missing or damaged, or its second file is missing.
        UnsupportedError: an operator, dtype, opset or file version that this ONNX Runtime lacks.
    """
    import onnxruntime

    settings = settings or options()
    settings.add_session_config_entry("session.load_model_format", "ORT" if is_ort(path) else "ONNX")
    providers = ["CPUExecutionProvider"]
    try:
        return onnxruntime.InferenceSession(str(path), settings, providers=providers)
    except Exception as exc:  # its classes share no base; the table below tells them apart by message
        if "replace the existing tensor" not in str(exc):
            raise _translated(path, exc) from exc
    settings.add_session_config_entry(_EXACT, "0")  # fails where two nodes share a weight
    return onnxruntime.InferenceSession(str(path), settings, providers=providers)


def is_ort(path: Path) -> bool:
    """Whether the file is in ONNX Runtime's own format."""
    try:
        with path.open("rb") as file:
            return file.read(8)[4:] == _ORT_MAGIC
    except OSError as exc:
        raise _damaged(path) from exc


class OnnxRunner(Runner):
    """A session that feeds inputs and returns outputs in the order of the signature."""

    def __init__(self, session: Any, signature: Signature, path: Path) -> None:
        self._run = session.run
        self._inputs = _order([s.name for s in signature.inputs], [i.name for i in session.get_inputs()], path)
        own = [o.name for o in session.get_outputs()]
        wanted = [s.name for s in signature.outputs]
        self._outputs = wanted if set(wanted) == set(own) and len(wanted) == len(own) else own

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        try:
            found: list[Array] = self._run(self._outputs, {name: inputs[at] for name, at in self._inputs})
        except Exception as exc:  # as above
            raise _failed(exc) from exc
        return found

    def close(self) -> None:
        del self._run


def _order(wanted: Sequence[str], own: Sequence[str], path: Path) -> list[tuple[str, int]]:
    """(the graph's input, position in the signature); an input that the graph doesn't use is left out."""
    if set(own) <= set(wanted):
        return [(name, wanted.index(name)) for name in own]
    if not wanted or len(own) == len(wanted):
        return [(name, at) for at, name in enumerate(own)]
    raise InputError(
        "signature_mismatch", f"{path.name} has the inputs {', '.join(own)}, not {', '.join(wanted)}.",
        why="The file isn't the one that the signature describes.", fix="Lower the model again.",
    )  # fmt: skip


# -- errors -----------------------------------------------------------------------------------------------------------

_NO_KERNEL = re.compile(r"Could not find an implementation for ([\w.:]+\(\d+\))")
_NO_OPERATOR = re.compile(r"No Op registered for (\S+)|Fatal error: (\S+?)\(|is not a registered function/op")
_EXTERNAL = re.compile(r"[Ee]xternal data (?:path|file).*?\"([^\"]+)\"|GetFileLength for (\S+) failed")
_TOO_NEW = re.compile(r"Unsupported model IR version: (\d+)|[Oo]pset (\d+) is under development|ORT format version")


def _translated(path: Path, exc: Exception) -> EdgeError:
    from edgesdk.runtimes._onnx_source import external_missing

    text = str(exc)
    if found := _EXTERNAL.search(text):
        return external_missing(path, Path(found[1] or found[2] or "").name)
    if found := _NO_KERNEL.search(text):
        return UnsupportedError(
            "unsupported_op", f"ONNX Runtime has no kernel for {found[1]} with the types that {path.name} uses.",
            why="Its CPU build knows the operator, but not for this dtype (float64 convolutions, for example).",
            fix="Use float32 there, or use --runtime executorch.", details={"operators": [found[1]]},
        )  # fmt: skip
    if found := _NO_OPERATOR.search(text):
        name = found[1] or found[2] or "?"
        return UnsupportedError(
            "unsupported_op", f"{path.name} uses {name}, which ONNX Runtime doesn't have.",
            why="It is a custom operator, or newer than the installed ONNX Runtime.",
            fix="Replace it by standard operators.", details={"operators": [name]},
        )  # fmt: skip
    if _TOO_NEW.search(text):
        return UnsupportedError(
            "onnx_too_new", f"{path.name} was written for a newer ONNX Runtime than the installed one.",
            why=text.rpartition("] ")[2].rpartition("failed:")[2][-300:].strip(),
            fix="Lower it again with an older opset, or: pip install -U onnxruntime",
        )  # fmt: skip
    return _damaged(path)


def _damaged(path: Path) -> InputError:
    return InputError(
        "onnx_damaged", f"{path.name} can't be read as ONNX.", why="It is missing, cut off, or of another kind.",
        fix="Lower the model again, or fetch the file again.",
    )  # fmt: skip


def _failed(exc: Exception) -> EdgeError:
    text = str(exc).rpartition("] : ")[2]
    return InputError(
        "run_failed", f"ONNX Runtime failed on this input: {text[:300]}",
        why="An input has a name, dtype, size or value that the graph doesn't take.",
        fix="Compare the inputs with the signature (edgesdk inspect).",
    )  # fmt: skip
