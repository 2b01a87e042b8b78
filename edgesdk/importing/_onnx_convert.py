"""An ONNX file made into a model: run by ONNX Runtime, converted where possible, the two compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgesdk.artifacts import Dim, Model, Signature, Size, TensorSpec
from edgesdk.errors import EdgeError, InputError, UnsupportedError, missing_library
from edgesdk.importing import _onnx_file
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._dynamic import Axis, axes, other_plans, size_plans
from edgesdk.importing._inputs import example, sizes_of
from edgesdk.importing._onnx_ranges import graph_ranges

Feed = Mapping[str, np.ndarray[Any, Any]]
_TOLERANCE = 1e-3
"""Relative to the largest value: two engines sum in different orders; a wrong conversion is off by far more."""


def import_onnx(located: Located, options: ImportOptions) -> Model:
    """Read the file, describe it, and convert it to PyTorch; where that can't be done, say so in ``no_program``.

    Raises:
        UsageError, InputError: see :mod:`edgesdk.importing._onnx_file`; or ONNX Runtime refuses the file or the sizes.
        UnsupportedError: inputs that are no tensors.
    """
    proto = _onnx_file.read(located)
    inputs, warnings = _onnx_file.input_specs(proto, options.inputs)
    path = located.path or Path(located.text)
    ranges = graph_ranges(proto, inputs)
    unsized = tuple(TensorSpec(v.name, _onnx_file.dtype_of(v), None) for v in proto.graph.output)
    try:
        engine = Engine(path, inputs, unsized)
    except InputError as exc:  # ONNX Runtime is the judge, the checker finds the words
        raise _onnx_file.damaged(located, _onnx_file.complaint(path) or exc.message) from exc
    outputs = _run_outputs(engine, inputs, ranges, [s.name for s in unsized])
    model = Model(
        located.source,
        Signature(inputs, outputs),
        onnx=path,
        int_ranges=ranges,
        warnings=tuple(warnings),
    )
    if not options.needs_program:
        return model
    try:
        return _converted(model, proto, engine, located)
    except EdgeError as exc:
        return replace(model, no_program=_reason(exc))


class Engine:
    """The user's own file in ONNX Runtime."""

    def __init__(self, path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        from edgesdk.runtimes import find

        runtime = find("onnx")
        missing = runtime.missing()
        if missing:
            raise missing_library("onnxruntime", "onnx", "running ONNX files")
        self.inputs = inputs
        self.runner = runtime.load(path, Signature(tuple(inputs), tuple(outputs)))

    def run(self, feed: Feed) -> list[np.ndarray[Any, Any]]:
        """Outputs in the order of the graph.

        Raises:
            InputError: ONNX Runtime refuses the input.
        """
        try:
            return self.runner.run([feed[s.name] for s in self.inputs])
        except InputError as exc:
            fed = ", ".join(f"{n}={a.dtype}{list(a.shape)}" for n, a in feed.items())
            raise InputError(
                "forward_failed", f"The ONNX model fails when it is given {fed}.",
                why=exc.message, fix="Correct the sizes in --input.",
            ) from exc  # fmt: skip


def feed_of(specs: Sequence[TensorSpec], sizes: Mapping[Axis, int], ranges: Mapping[str, tuple[int, int]], seed: int) -> dict[str, np.ndarray[Any, Any]]:  # fmt: skip
    """Seeded inputs by name."""
    return {
        s.name: example(s, sizes_of(s, sizes), seed + i, ranges.get(s.name, (0, 2))).numpy()
        for i, s in enumerate(specs)
    }


def _run_outputs(
    engine: Engine, inputs: tuple[TensorSpec, ...], ranges: Mapping[str, tuple[int, int]], names: Sequence[str]
) -> tuple[TensorSpec, ...]:
    """Outputs with the sizes that they take at the ends of the asked ranges."""
    dims = axes(inputs)
    ends: list[dict[Axis, int]] = [{a: d.min for a, d in dims}, {a: d.max for a, d in dims}] if dims else [{}]
    found = [engine.run(feed_of(inputs, plan, ranges, 0)) for plan in ends]
    for name, *arrays in zip(names, *found, strict=True):
        _same_rank(name, arrays)
    return tuple(
        TensorSpec(name, str(arrays[0].dtype), _span([a.shape for a in arrays]))
        for name, *arrays in zip(names, *found, strict=True)
    )


def _same_rank(name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    """Refuse an output that loses a dimension at some of the sizes, as ``Squeeze`` without axes does at 1."""
    least, most = arrays[0], arrays[-1]
    if least.ndim != most.ndim:
        raise UnsupportedError(
            "rank_varies", f"The output '{name}' has {least.ndim} dimensions at the least sizes and {most.ndim} at the greatest.",
            why="An output keeps its number of dimensions; a Squeeze without axes, for one, drops each that happens to be 1.",
            fix="Leave such sizes out of the range in --input, or export the model with the axes written down.",
        )  # fmt: skip


def _span(shapes: Sequence[tuple[int, ...]]) -> tuple[Size, ...]:
    return tuple(d[0] if min(d) == max(d) else Dim(min(d), max(d)) for d in zip(*shapes, strict=True))


def _converted(model: Model, proto: Any, engine: Engine, located: Located) -> Model:
    """The model with a program that answers as ONNX Runtime does.

    Raises:
        UnsupportedError: no graph can be made, or it answers otherwise.
    """
    from edgesdk.importing._export import ModelHint, export_module
    from edgesdk.importing._onnx_module import converted, parameters

    specs = model.signature.inputs
    words = parameters([s.name for s in specs])
    module = converted(proto, words)
    asked = tuple(replace(s, name=word) for s, word in zip(specs, words, strict=True))
    made = export_module(module, located, ImportOptions(asked), hint=ModelHint(warnings=model.warnings))
    real = dict(zip(words, (s.name for s in specs), strict=True))
    inputs = tuple(replace(s, name=real[s.name]) for s in made.signature.inputs)
    ranges = {real[n]: r for n, r in made.int_ranges.items()} | dict(model.int_ranges)
    names = [v.name for v in proto.graph.output]
    outputs = tuple(replace(s, name=n) for s, n in zip(made.signature.outputs, names, strict=True))
    result = replace(made, signature=Signature(inputs, outputs), int_ranges=ranges, onnx=model.onnx)
    _same_as_engine(result, engine)
    return result


def _same_as_engine(model: Model, engine: Engine) -> None:
    import torch

    from edgesdk.importing._flat import flat_program
    from edgesdk.importing._state import alike, seeded

    if model.program is None:
        return
    flat = flat_program(model.program)
    specs = model.signature.inputs
    sizes = next(size_plans(specs, frozenset()), {})
    for seed, plan in enumerate((sizes, sizes, *other_plans(specs, sizes))):
        feed = feed_of(specs, plan, model.int_ranges, 500 + 10 * seed)
        expected = [torch.from_numpy(np.asarray(a)) for a in engine.run(feed)]
        found = seeded(lambda values: flat(*values), [torch.from_numpy(a) for a in feed.values()])
        if not alike(expected, found, _TOLERANCE):
            raise UnsupportedError(
                "conversion_differs", "The PyTorch graph made from the ONNX file answers otherwise than ONNX Runtime.",
                why="An operator of the file behaves in a way that its torch counterpart doesn't.",
                fix="Use --runtime onnx, or package the model that the file was exported from.",
            )  # fmt: skip


def _reason(exc: EdgeError) -> UnsupportedError:
    if isinstance(exc, UnsupportedError):
        return exc
    return UnsupportedError(exc.code, exc.message, why=exc.why, fix="Use --runtime onnx.", details=exc.details)
