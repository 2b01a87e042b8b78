"""TorchScript for PyTorch Mobile's Lite interpreter (``.ptl``). Deprecated upstream; ExecuTorch is the successor."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from edgesdk.artifacts import Lowered, Model, Signature, Warn
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.runtimes._base import EdgeRuntime, LowerConfig, Runner

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

DEPRECATED = Warn(
    "torchscript_deprecated",
    "TorchScript Lite is no longer developed upstream and its last mobile library is from 2023; "
    "prefer ExecuTorch, its successor: --runtime executorch.",
)


class TorchScriptRuntime(EdgeRuntime):
    name: ClassVar[str] = "torchscript"
    suffix: ClassVar[str] = ".ptl"

    def missing(self) -> str | None:
        from importlib.util import find_spec

        return None if find_spec("torch") else "PyTorch is not installed."

    def version(self) -> str:
        from importlib.metadata import version

        return version("torch")

    def lower(self, model: Model, config: LowerConfig, out: Path) -> Lowered:
        from edgesdk.runtimes import _ts_save

        data = _ts_save.lower(model, config)
        _ts_save.write(data, out)
        return Lowered("torchscript", None, config.quantization, out, "full", warnings=(DEPRECATED,))

    def load(self, path: Path, signature: Signature) -> Runner:
        return _Runner(path, signature)


class _Runner(Runner):
    def __init__(self, path: Path, signature: Signature) -> None:
        from edgesdk.runtimes import _ts_save

        self._data = path.read_bytes()
        self._module = _ts_save.open_lite(self._data, path)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        import torch

        result = self._module.forward(tuple(torch.from_numpy(a) for a in inputs))
        return [t.contiguous().numpy() for t in _flatten(result)]


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _flatten(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _flatten(item)]
    return [value]


RUNTIME = TorchScriptRuntime()
