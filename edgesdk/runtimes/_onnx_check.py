"""Does a freshly translated graph answer as the graph it came from? At the example's size and at one other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Dim, Signature, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.export import ExportedProgram

    Array = np.ndarray

_RELATIVE = 1e-3
"""A wrong translation is off by the size of the answer; float32 rounding through a deep net by less than 1e-4 of it."""


def agrees(script: Any, document: Path, program: ExportedProgram, signature: Signature) -> bool:
    """Run both on seeded inputs.

    Args:
        script: TorchScript module of plain tensors, the reference.
        document: the ONNX file.
    """
    import onnxruntime

    from edgesdk.runtimes._onnx_run import options

    settings = options(optimize=False)
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(document), settings, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return all(
        _equal(session.run(None, dict(zip(names, feed, strict=True))), answer)
        for feed, answer in _answers(script, program, signature)
    )


def _answers(script: Any, program: ExportedProgram, signature: Signature) -> Iterator[tuple[list[Array], list[Array]]]:
    import torch

    example = example_tensors(program)
    for number, arrays in enumerate((_seeded(example), _resized(_seeded(example), signature))):
        if arrays is None:
            continue
        try:
            with torch.no_grad():
                result = script.forward(*map(torch.from_numpy, arrays))
        except RuntimeError:
            if number == 0:
                raise
            continue  # the second size was our guess; a relation between sizes may forbid it
        answers = result if isinstance(result, tuple) else (result,)
        yield arrays, [a.detach().numpy() for a in answers]


def example_tensors(program: ExportedProgram) -> list[torch.Tensor]:
    """The tensors that the program was exported with, in the order of its inputs."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(program.example_inputs)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _seeded(example: list[torch.Tensor]) -> list[Array]:
    """The example itself, or noise where it is constant: zeros would hide most mistakes."""
    import numpy as np

    rng = np.random.default_rng(0)
    arrays = [t.detach().cpu().contiguous().numpy() for t in example]
    return [
        rng.standard_normal(a.shape).astype(a.dtype) if a.dtype.kind == "f" and a.size > 1 and a.min() == a.max() else a
        for a in arrays
    ]


def _resized(arrays: list[Array], signature: Signature) -> list[Array] | None:
    """The same values at another size of every dynamic dimension; None when there is none."""
    import numpy as np

    if not signature.dynamic:
        return None
    chosen: dict[str, int] = {}
    return [
        np.resize(array, tuple(_other(spec, axis, size, chosen) for axis, size in enumerate(array.shape)))
        for array, spec in zip(arrays, signature.inputs, strict=True)
    ]


def _other(spec: TensorSpec, axis: int, size: int, chosen: dict[str, int]) -> int:
    dim = (spec.shape or ())[axis] if spec.shape else size
    if not isinstance(dim, Dim):
        return size
    wanted = dim.min if size != dim.min else min(dim.max, 2 * size + 1)
    return chosen.setdefault(dim.symbol or f"{spec.name}.{axis}", wanted)


def _equal(found: list[Array], answer: list[Array]) -> bool:
    return len(found) == len(answer) and all(_same(a, b) for a, b in zip(found, answer, strict=True))


def _same(found: Array, answer: Array) -> bool:
    import numpy as np

    if found.shape != answer.shape or found.dtype != answer.dtype:
        return False
    if answer.dtype.kind != "f":
        return bool(np.array_equal(found, answer))
    finite = np.abs(answer[np.isfinite(answer)])
    scale = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(found, answer, rtol=0, atol=_RELATIVE * scale + 1e-9, equal_nan=True))
