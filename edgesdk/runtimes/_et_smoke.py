"""Load and run a fresh file once, where this machine can: what fails here would fail on the phone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model
from edgesdk.errors import EdgeError, UnsupportedError
from edgesdk.runtimes import _et_native as native
from edgesdk.runtimes._et_kernels import Place

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_KERNEL = re.compile(r"KernelCall failed at instruction \S+ in operator (\S+):")
_DETAIL = re.compile(r"Check failed \(.*\): *(.*)")


class SmokeError(Exception):
    """The file does not load or run; another rung of the ladder may give one that does."""


def smoke(path: Path, model: Model, edge: ExportedProgram) -> None:
    """Run the file once on the example inputs; ``edge`` is the lowered program, which knows the user's lines.

    Raises:
        UnsupportedError: a kernel refuses its arguments, which no other rung would change.
        SmokeError: anything else.
    """
    from edgesdk.runtimes._et_run import ExecutorchRunner

    failure: Exception | None = None
    with native.captured() as log:
        try:
            runner = ExecutorchRunner(path, model.signature)
            inputs = example_arrays(model.program)
            if inputs is not None:
                runner.run(inputs)
            runner.close()
        except EdgeError as error:
            failure = error
    if failure is None:
        return
    kernels = _KERNEL.findall(log.text)
    if kernels:
        raise _refused(kernels[0], log, edge) from failure
    raise SmokeError("; ".join(dict.fromkeys(log.lines)) or str(failure)) from failure


def _refused(kernel: str, log: native.Log, edge: ExportedProgram) -> UnsupportedError:
    place = Place.of(kernel, edge)
    details = [text for text in _DETAIL.findall(log.text) if text]
    said = f" It says: {details[0].rstrip('.')}." if details else ""
    return UnsupportedError(
        "unsupported_op", f"ExecuTorch's kernel does not take what the model gives to {place}.",
        why=f"There is a kernel for the operator, but not for these shapes or dtypes.{said}",
        fix="Rewrite that line, or choose --runtime onnx or --runtime torchscript, which take more operators.",
        details={"operators": [kernel], "lines": [place.line]},
    )  # fmt: skip


def example_arrays(program: ExportedProgram | None) -> list[Any] | None:
    """The example inputs as arrays in the order of the signature; None when the program carries none."""
    import numpy as np
    import torch

    if program is None or program.example_inputs is None:
        return None
    leaves = [v for v in torch.utils._pytree.tree_leaves(program.example_inputs) if v is not None]
    return [_array(v) if isinstance(v, torch.Tensor) else np.asarray(v) for v in leaves]


def _array(tensor: Any) -> Any:
    import torch

    held = tensor.detach().cpu().contiguous()
    return held.float().numpy() if held.dtype == torch.bfloat16 else held.numpy()
