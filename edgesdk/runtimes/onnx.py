"""ONNX for ONNX Runtime (``.onnx``, or ``.ort`` on request)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from edgesdk.artifacts import Lowered, Model, Signature
from edgesdk.runtimes._base import EdgeRuntime, LowerConfig, Runner

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray


class OnnxRuntime(EdgeRuntime):
    name: ClassVar[str] = "onnx"
    suffix: ClassVar[str] = ".onnx"

    def missing(self) -> str | None:
        from importlib.util import find_spec

        absent = [n for n in ("torch", "onnx", "onnxscript", "onnxruntime") if find_spec(n) is None]
        return f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed." if absent else None

    def version(self) -> str:
        from importlib.metadata import version

        return version("onnxruntime")

    def lower(self, model: Model, config: LowerConfig, out: Path) -> Lowered:
        from edgesdk.runtimes import _onnx_export, _onnx_write

        return _onnx_write.write(_onnx_export.graph_of(model, config), model, config, out)

    def load(self, path: Path, signature: Signature) -> Runner:
        from edgesdk.runtimes import _onnx_run

        return _Runner(_onnx_run.open_session(path))


class _Runner(Runner):
    def __init__(self, session: object) -> None:
        self._session = session
        self._names = [i.name for i in session.get_inputs()]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return self._session.run(None, dict(zip(self._names, inputs, strict=True)))

    def close(self) -> None:
        del self._session


RUNTIME = OnnxRuntime()
