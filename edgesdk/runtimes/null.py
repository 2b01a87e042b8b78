"""A runtime that computes nothing: the public double for tests of what surrounds a runtime.

``lower`` writes the signature alone, ``run`` answers with zeros of the right shapes and dtypes. Never chosen by
``auto``; only ``--runtime null`` gets it.

    runtime = edgesdk.runtimes.find("null")
    runtime.lower(model, LowerConfig(), Path("x.null"))
    runtime.load(Path("x.null"), model.signature).run([array])
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from edgesdk.artifacts import Dim, Lowered, Model, Signature, TensorSpec
from edgesdk.errors import InputError
from edgesdk.runtimes._base import EdgeRuntime, LowerConfig, Runner

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

SCHEMA = "edgesdk.null/1"


class NullRuntime(EdgeRuntime):
    """Writes ``{"schema": "edgesdk.null/1", "inputs": […], "outputs": […]}`` and answers with zeros."""

    name: ClassVar[str] = "null"
    suffix: ClassVar[str] = ".null"

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return "1"

    def lower(self, model: Model, config: LowerConfig, out: Path) -> Lowered:
        text = json.dumps({"schema": SCHEMA, **model.signature.to_json()}, sort_keys=True)
        temporary = out.with_name(out.name + ".part")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(out)
        return Lowered(self.name, None, config.quantization, out, "full", min_runtime="1")

    def load(self, path: Path, signature: Signature, *, threads: int | None = None) -> Runner:
        """Load a file made by :meth:`lower`; the signature is the file's own.

        Raises:
            InputError: the file is missing or not one of ours.
        """
        return NullRunner(_read(path))


class NullRunner(Runner):
    """Answers every call with zeros; a dynamic size of the output follows the input with the same symbol."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.calls = 0

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        import numpy as np

        self.calls += 1
        sizes = _sizes(self.signature.inputs, [array.shape for array in inputs])
        return [np.zeros(_shape(spec, sizes), _numpy_dtype(spec.dtype)) for spec in self.signature.outputs]

    def reset(self) -> None:
        self.calls = 0


def _read(path: Path) -> Signature:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] == SCHEMA:
            return Signature.from_json(document)
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise _not_ours(path) from exc
    raise _not_ours(path)


def _not_ours(path: Path) -> InputError:
    return InputError(
        "not_a_null_file", f"{path.name} is no file of the null runtime.",
        why="It is missing, damaged, or was made for another runtime.",
        fix="Lower the model again with --runtime null.",
    )  # fmt: skip


def _sizes(specs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]]) -> Mapping[str, int]:
    return {
        dim.symbol: size
        for spec, shape in zip(specs, shapes, strict=True)
        for dim, size in zip(spec.shape or (), shape, strict=False)
        if isinstance(dim, Dim) and dim.symbol
    }


def _shape(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else sizes.get(d.symbol or "", d.min) for d in spec.shape or ())


def _numpy_dtype(name: str) -> str:
    """NumPy has no bfloat16; engines hand those over as float32."""
    return "float32" if name == "bfloat16" else name


RUNTIME = NullRuntime()
