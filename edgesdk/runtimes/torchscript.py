"""TorchScript for PyTorch Mobile's Lite interpreter (``.ptl``). Deprecated upstream; ExecuTorch is the successor."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from edgesdk._memory import relieve
from edgesdk.artifacts import LayerError, Lowered, Model, Signature, Warn
from edgesdk.errors import EdgeError, InputError, UnsupportedError
from edgesdk.runtimes._base import EdgeRuntime, LowerConfig, Runner

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

DEPRECATED = Warn(
    "torchscript_deprecated",
    "TorchScript Lite is no longer developed upstream and its last mobile library is from 2023; "
    "ExecuTorch is its successor: --runtime executorch.",
)
OLD_LIBRARY = Warn(
    "old_mobile_library",
    "Operators are checked against PyTorch Mobile 2.1; a library older than 1.12, which this bytecode is for, may lack "
    "some of them. Test on the phone.",
)


class TorchScriptRuntime(EdgeRuntime):
    """``.ptl`` files for ``org.pytorch:pytorch_android_lite``."""

    name: ClassVar[str] = "torchscript"
    suffix: ClassVar[str] = ".ptl"
    quantizations: ClassVar[tuple[str, ...]] = (
        "none", "fp16", "weight-int8", "dynamic-int8", "static-int8", "qat-int8",
    )  # fmt: skip

    def missing(self) -> str | None:
        from importlib.util import find_spec

        return None if find_spec("torch") else "PyTorch is not installed."

    def version(self) -> str:
        from importlib.metadata import version

        return version("torch")

    def warm_up(self, *, lowering: bool) -> None:
        import torch  # noqa: F401

    def lower(self, model: Model, config: LowerConfig, out: Path) -> Lowered:
        """Write a ``.ptl``; the same model gives the same bytes.

        Raises:
            UnsupportedError: an operator that TorchScript or the published mobile library lacks.
            UsageError: ``config.bytecode`` isn't 4…8.
        """
        from edgesdk.runtimes import _ts_lower, _ts_ops, _ts_save

        lite = _ts_lower.lower(model, config)
        _ts_save.write(lite.data, out)
        lite = replace(lite, data=b"")
        relieve()  # before the file is loaded
        try:
            found = _ts_save.read_bytecode(out)
            _ts_ops.check(found.operators)
            self.load(out, model.signature).close()
        except EdgeError:
            out.unlink(missing_ok=True)
            raise
        release = _ts_save.RELEASES[found.version]
        old = (OLD_LIBRARY,) if found.version < _ts_save.DEFAULT_BYTECODE else ()
        return Lowered(
            self.name, None, config.quantization, out, config.rung,
            min_runtime=release, warnings=(DEPRECATED, *old, *lite.warnings), layers=lite.layers,
        )  # fmt: skip

    def layer_errors(
        self, model: Model, config: LowerConfig, samples: int, *, alone: bool = True
    ) -> tuple[LayerError, ...]:
        from edgesdk.quantize import _fx
        from edgesdk.runtimes._ts_lower import quantizable

        ready = replace(model, program=quantizable(model, config.quantization))
        return _fx.layer_errors(ready, config, samples, alone)

    def load(self, path: Path, signature: Signature, *, threads: int | None = None) -> Runner:
        from edgesdk.runtimes._ts_save import is_quantized, read_bytecode

        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        found = read_bytecode(path)
        return _Runner(path, found.stateful, is_quantized(found.operators))


class _Runner(Runner):
    def __init__(self, path: Path, stateful: bool, quantized: bool) -> None:
        self._path, self._stateful, self._quantized = path, stateful, quantized
        self._used = False
        self._module = self._open()

    def _open(self) -> Any:
        with self._engine():  # it packs the weights
            return _open(self._path)

    def _engine(self) -> AbstractContextManager[None]:
        from edgesdk.quantize._fx._engine import engine

        return engine() if self._quantized else nullcontext()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        import torch

        self._used = True
        try:
            with self._engine():
                result = self._module.forward(tuple(map(torch.from_numpy, inputs)))
        except RuntimeError as exc:
            raise _failed(exc) from exc
        return [_owned(tensor, inputs) for tensor in _flatten(result)]

    def reset(self) -> None:
        # The Lite interpreter can't set attributes; a freshly loaded module has the first values.
        if self._stateful and self._used:
            self._module = self._open()
        self._used = False

    def close(self) -> None:
        self._module = None


def _open(path: Path) -> Any:
    import torch

    # from_numpy warns once per process about read-only arrays; nothing of ours writes to an input.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(_read_only())
    try:
        return torch._C._load_for_lite_interpreter(str(path), None)
    except RuntimeError as exc:
        raise _cant_load(path, str(exc)) from exc


def _read_only() -> Array:
    import numpy as np

    array = np.zeros(1, np.float32)
    array.flags.writeable = False
    return array


def _cant_load(path: Path, text: str) -> EdgeError:
    from edgesdk.runtimes._ts_save import damaged

    if "ops cannot be found" in text or "Unknown builtin" in text:
        names = text.partition("{")[2].partition("}")[0] or text.splitlines()[0]
        return UnsupportedError(
            "unsupported_op", f"{path.name} needs operators that this engine lacks: {names.strip(' ,')}.",
            why="They come from a library that isn't loaded.", fix="Take that step out of the model.",
        )  # fmt: skip
    if "Lite Interpreter version number does not match" in text:
        return UnsupportedError(
            "bytecode_too_new", f"{path.name} has a bytecode version that this engine doesn't read.",
            why=text.strip().splitlines()[0][:200], fix="Save it again with an older bytecode version.",
        )  # fmt: skip
    return damaged(path)


def _failed(exc: RuntimeError) -> EdgeError:
    if "Could not run 'quantized::" in str(exc):
        name = str(exc).partition("Could not run '")[2].partition("'")[0]
        return UnsupportedError(
            "quantized_without_stubs", f"{name} got float data: the model was made int8 without QuantStub and DeQuantStub.",
            why="Eager-mode quantization only replaces layers; without stubs nothing turns the input into int8.",
            fix="Package the float model instead, with --quantize static-int8 --calibration PATH: it needs no stubs.",
        )  # fmt: skip
    lines = [line for line in str(exc).splitlines() if line.strip()]
    cause = next(
        (line for line in reversed(lines) if "Error" in line or "Expected" in line), lines[-1] if lines else ""
    )
    return InputError(
        "run_failed", f"The TorchScript file failed on this input: {cause.strip()[:300]}",
        why="An input has values or a size that the model doesn't take.",
        fix="Compare the inputs with the signature (edgesdk inspect).",
    )  # fmt: skip


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _flatten(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _flatten(item)]
    return [value]


def _owned(value: Any, inputs: Sequence[Array]) -> Array:
    """An array that is the caller's own; only a model that returns its input makes a copy necessary."""
    import numpy as np
    import torch

    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    array: Array = tensor.detach().contiguous().numpy()
    return array.copy() if any(np.may_share_memory(array, given) for given in inputs) else array


RUNTIME = TorchScriptRuntime()
