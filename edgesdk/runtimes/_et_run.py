"""Load and run a ``.pte`` on the native library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.errors import InputError, UnsupportedError
from edgesdk.runtimes import _et_native as native
from edgesdk.runtimes._base import Runner

if TYPE_CHECKING:
    import numpy as np

    from edgesdk.artifacts import Signature

    Array = np.ndarray


class ExecutorchRunner(Runner):
    """One loaded program. Inputs are not copied; outputs are copies that belong to the caller."""

    def __init__(self, path: Path, signature: Signature) -> None:
        self._path = path
        self._names = [spec.name for spec in signature.inputs]
        self._module = load_module(path)
        meta = self._module.method_meta("forward")
        self._wanted: int = meta.num_inputs()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        import torch

        if len(inputs) != self._wanted:
            # The library itself runs with too few inputs and computes with whatever was in memory.
            raise InputError(
                "wrong_inputs", f"The program takes {self._wanted} inputs, {len(inputs)} were given.",
                why="Every input of the signature is needed.", fix=f"Give {', '.join(self._names)} in this order.",
            )  # fmt: skip
        tensors = [torch.from_numpy(a if a.flags.c_contiguous and a.flags.writeable else a.copy("C")) for a in inputs]
        try:
            outputs = self._module.run_method("forward", tensors)
        except RuntimeError as error:
            raise self._translated(error, inputs) from error
        return [o.numpy() if isinstance(o, torch.Tensor) else _scalar(o) for o in outputs]

    def _translated(self, error: RuntimeError, inputs: Sequence[Array]) -> InputError:
        given = ", ".join(
            f"{name}={a.dtype}[{','.join(map(str, a.shape))}]" for name, a in zip(self._names, inputs, strict=False)
        )
        return InputError(
            "run_failed", f"{self._path.name} did not run on {given}.",
            why=f"ExecuTorch says: {native.in_words(error)} ({error}).",
            fix="Give the shapes and dtypes of the signature, or package with a dynamic dimension: --input 'NAME=float32[1..8,…]'.",
        )  # fmt: skip

    def reset(self) -> None:
        self._module = load_module(self._path)

    def close(self) -> None:
        self._module = None


def _scalar(value: object) -> Any:
    import numpy as np

    return np.asarray(value)


def load_module(path: Path) -> Any:
    """The native module of a file.

    Raises:
        InputError: missing, damaged, or of another kind.
        UnsupportedError: a back end or operator is absent here.
    """
    lib = native.library()
    with native.captured() as log:
        try:
            module = lib._load_for_executorch(str(path))
            names = module.method_names()
            if "forward" in names:
                module.method_meta("forward")
        except RuntimeError as error:
            failure: RuntimeError | None = error
        else:
            failure = None
    if failure is not None:
        raise damaged(path, failure, log) from failure
    if "forward" not in names:
        raise UnsupportedError(
            "no_forward", f"{path.name} has no method 'forward'.", why=f"Its methods are: {', '.join(names)}.",
            fix="Export the model with a method called forward.",
        )  # fmt: skip
    return module


def damaged(path: Path, error: RuntimeError, log: native.Log) -> InputError:
    """The error for a file that the library can't read."""
    said = "; ".join(log.lines) or str(error)
    return InputError(
        "bad_pte", f"{path.name} can't be loaded as an ExecuTorch program.",
        why=f"It is damaged, cut short, or another kind of file: {said}.",
        fix="Copy the file again, or make it anew with 'edgesdk package'.",
    )  # fmt: skip
