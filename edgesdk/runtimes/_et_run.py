"""Load and run a ``.pte`` on the native library."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.errors import EdgeError, InputError, UnsupportedError
from edgesdk.runtimes import _et_native as native
from edgesdk.runtimes._base import Runner

if TYPE_CHECKING:
    import numpy as np
    import torch

    from edgesdk.artifacts import Signature

    Array = np.ndarray

# ScalarType of runtime/core/portable_type/scalar_type.h (executorch 1.5.1), as NumPy calls it.
DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
    9: "complex64", 11: "bool", 15: "bfloat16", 27: "uint16",
}  # fmt: skip


_open: weakref.WeakSet[ExecutorchRunner] = weakref.WeakSet()
_pool: list[int] = []
"""The number of threads that was set last."""


def set_threads(threads: int) -> None:
    """Size the process's one pool of threads, unless a program is open.

    Loaded programs keep pointers into the pool: with a new one under them the next call ends the process.
    """
    if _open or _pool[-1:] == [threads]:
        return
    native.library()._unsafe_reset_threadpool(threads)
    _pool[:] = [threads]


class ExecutorchRunner(Runner):
    """One loaded program. Inputs are not copied; outputs are copies that belong to the caller."""

    def __init__(self, path: Path, signature: Signature) -> None:
        import torch

        self._path = path
        self._names = [spec.name for spec in signature.inputs]
        self._torch = torch
        self._used = False
        self._program, self._method = load_method(path)
        self._inputs = wanted_inputs(self._method)
        self._feeds: list[Callable[[Array], Any]] = [self._feed(dtype) for dtype, _ in self._inputs]
        _open.add(self)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        if len(inputs) != len(self._feeds):
            # The library itself runs with too few inputs and computes with whatever was in memory.
            raise InputError(
                "wrong_inputs", f"The program takes {len(self._feeds)} inputs, {len(inputs)} were given.",
                why="Every input of the signature is needed.", fix=f"Give {', '.join(self._names)} in this order.",
            )  # fmt: skip
        self._used = True
        try:
            outputs = self._method([feed(array) for feed, array in zip(self._feeds, inputs, strict=True)])
        except RuntimeError as error:
            raise self._translated(error, inputs) from error
        return [self._array(value) for value in outputs]

    def reset(self) -> None:
        """Load the program anew: a method's mutable buffers live as long as its program."""
        if self._used:
            self._method = self._program = None  # at first: two of them hold the weights twice
            self._program, self._method = load_method(self._path)
            self._used = False

    def close(self) -> None:
        self._program = self._method = None
        _open.discard(self)

    def _feed(self, dtype: str) -> Callable[[Array], Any]:
        if dtype == "scalar":
            return lambda array: array.item()
        if dtype == "bfloat16":  # NumPy has none: such values are held as float32
            return lambda array: self._tensor(array).to(self._torch.bfloat16)
        return self._tensor

    def _tensor(self, array: Array) -> torch.Tensor:
        """The array's own memory as a tensor, in row-major order whatever the array's order is."""
        flags = array.flags
        return self._torch.from_numpy(array if flags.c_contiguous and flags.writeable else array.copy("C"))

    def _array(self, value: Any) -> Array:
        if isinstance(value, self._torch.Tensor):
            value = value.float() if value.dtype is self._torch.bfloat16 else value
        else:
            value = self._torch.tensor(value, dtype=self._torch.float64 if isinstance(value, float) else None)
        array: Array = value.numpy() if value.is_contiguous() else value.contiguous().numpy()
        return array

    def _translated(self, error: RuntimeError, inputs: Sequence[Array]) -> EdgeError:
        """Compare with the program's metadata to name the input; the library gives only a number (pitfall E-12)."""
        for name, array, (dtype, sizes) in zip(self._names, inputs, self._inputs, strict=False):
            held = "float32" if dtype == "bfloat16" else dtype
            given = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            wanted = f"{dtype}[{','.join(map(str, sizes))}]"
            if dtype != "scalar" and (held != str(array.dtype) or len(sizes) != array.ndim):
                return _misfit(name, given, wanted, error)
            if any(size > bound for size, bound in zip(array.shape, sizes, strict=False)):
                return _misfit(name, given, f"at most {wanted}", error)
        given = ", ".join(
            f"{n}={a.dtype}[{','.join(map(str, a.shape))}]" for n, a in zip(self._names, inputs, strict=False)
        )
        return InputError(
            "run_failed", f"{self._path.name} did not run on {given}.",
            why=f"ExecuTorch reports {native.in_words(error)} ({error}).",
            fix="Give shapes and dtypes as the signature says; a size that varies must be packaged so: "
            "--input 'NAME=float32[1..8,3,224,224]'.",
        )  # fmt: skip


def _misfit(name: str, given: str, wanted: str, error: RuntimeError) -> InputError:
    return InputError(
        "shape_mismatch", f"The input '{name}' is {given}, but the program takes {wanted}.",
        why=f"Sizes and dtypes are fixed when the model is packaged ({error}).",
        fix=f"Convert the input, or package with a dynamic size: --input '{name}=float32[1..8,…]'.",
    )  # fmt: skip


def wanted_inputs(method: Any) -> list[tuple[str, tuple[int, ...]]]:
    """dtype and sizes (upper bounds where dynamic) of each input; the dtype ``scalar`` for a plain number."""
    meta = method.method_meta()
    found: list[tuple[str, tuple[int, ...]]] = []
    for index in range(meta.num_inputs()):
        try:
            tensor = meta.input_tensor_meta(index)
        except RuntimeError:  # the library's way to say that this input is no tensor
            found.append(("scalar", ()))
            continue
        found.append((DTYPES.get(tensor.dtype(), f"dtype {tensor.dtype()}"), tuple(tensor.sizes())))
    return found


def load_method(path: Path) -> tuple[Any, Any]:
    """The native program of a file, which owns the memory, and its method ``forward``.

    Raises:
        InputError: missing, damaged, or of another kind.
        UnsupportedError: it needs a back end or an operator that this library lacks.
    """
    if not path.is_file():
        raise InputError(
            "file_missing", f"There is no file {path.name}.", why="It was moved or never made.", fix="Check the path."
        )  # fmt: skip
    library = native.library()
    failure: RuntimeError | None = None
    names: list[str] = []
    with native.captured() as log:
        try:
            check = library.Verification.InternalConsistency
            program = library._load_program(str(path), program_verification=check)
            names = [program.get_method_name(i) for i in range(program.num_methods())]
            method = program.load_method("forward") if "forward" in names else None
        except RuntimeError as error:
            failure = error
    if failure is not None and "quantized_decomposed::" in log.text and native.register_quantized_kernels():
        return load_method(path)
    if failure is not None:
        raise _load_error(path, failure, log) from failure
    if method is None:
        raise UnsupportedError(
            "no_forward", f"{path.name} has no method 'forward'.", why=f"Its methods are: {', '.join(names)}.",
            fix="Export the model with a method called forward.",
        )  # fmt: skip
    return program, method


_NO_KERNEL = re.compile(r"Missing operator: \[\d+\] (\S+)")
_NO_BACKEND = re.compile(r"Backend (\S+) is not registered")


def _load_error(path: Path, error: RuntimeError, log: native.Log) -> EdgeError:
    kernels, backend = _NO_KERNEL.findall(log.text), _NO_BACKEND.search(log.text)
    if kernels:
        return UnsupportedError(
            "unsupported_op", f"{path.name} needs operators that this library has no kernel for: {', '.join(kernels)}.",
            why="It was made for another build of ExecuTorch.", fix="Make it anew with 'edgesdk package'.",
            details={"operators": kernels},
        )  # fmt: skip
    if backend:
        return UnsupportedError(
            "backend_missing", f"{path.name} needs the delegate {backend[1]}, which this library does not have.",
            why=f"Built in are: {', '.join(native.library()._get_registered_backend_names())}.",
            fix="Run it on the device that it was made for, or package with --backend xnnpack.",
        )  # fmt: skip
    said = "; ".join(dict.fromkeys(log.lines)) or f"{native.in_words(error)} ({error})"
    return InputError(
        "bad_pte", f"{path.name} can't be loaded as an ExecuTorch program.",
        why=f"It is damaged, cut short, or another kind of file: {said}.",
        fix="Copy the file again, or make it anew with 'edgesdk package'.",
    )  # fmt: skip
