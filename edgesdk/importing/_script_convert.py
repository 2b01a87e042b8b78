"""A TorchScript module made into an exported program that answers as the script does, call after call."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Dim, Model, Signature, TensorSpec
from edgesdk.errors import UnsupportedError
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._dynamic import Axis, axes, other_plans, size_plans
from edgesdk.importing._export import ModelHint, examples, export_module, flat_face, try_forward
from edgesdk.importing._flat import flat_module, flat_program, tensors
from edgesdk.importing._inputs import Call, dtype_name, match_parameters
from edgesdk.importing._names import name_outputs, unique
from edgesdk.importing._script_module import interpreted
from edgesdk.importing._state import Snapshot, alike, call_seeded, seeded
from edgesdk.importing._translate import forward_failed

if TYPE_CHECKING:
    import torch
    from torch import nn

_STEPS = 3
"""Calls in a row that are compared: the first, one that sees its state, and one that sees the state after that."""


@dataclass(frozen=True)
class Script:
    """A script, the parameters of its ``forward()``, and how it is called."""

    module: torch.jit.ScriptModule
    parameters: Sequence[inspect.Parameter]
    call: Call


def convert(script: Script, located: Located, options: ImportOptions, hint: ModelHint) -> Model:
    """Convert; where that can't be done faithfully, describe the script for TorchScript Lite.

    Raises:
        InputError: the script itself fails on the described inputs.
    """
    try:
        module = interpreted(script.module, script.parameters)
        _settle(module, script.call)
        model = export_module(module, located, options, hint=hint)
        _same_as_script(model, script)
        return replace(model, script=script.module)
    except UnsupportedError as exc:
        return _script_only(script, located, hint, exc)


def _settle(module: nn.Module, call: Call) -> None:
    """Give state that the first call creates (``if self.h is None: self.h = zeros``) its shape before the export.

    Its value becomes what the first call stored first in that shape, or zeros when it stored only its result; whether
    that is right is found out by comparing several calls with the script's.
    """
    import torch

    before = Snapshot(module)
    sets: list[tuple[nn.Module, str, Any]] = []
    vars(module)["_edgesdk_sets"] = sets
    try:
        try_forward(module, call)
    finally:
        del vars(module)["_edgesdk_sets"]
    last = {(id(layer), name): (layer, name, value) for layer, name, value in sets}
    fitting: dict[tuple[int, str], list[Any]] = {}
    for layer, name, value in sets:
        final = last[id(layer), name][2]
        if isinstance(value, torch.Tensor) and isinstance(final, torch.Tensor) and value.shape == final.shape:
            fitting.setdefault((id(layer), name), []).append(value)
    before.restore()
    for key, (layer, name, final) in last.items():
        old = getattr(layer, name)
        if not isinstance(final, torch.Tensor):
            setattr(layer, name, final)
        elif not isinstance(old, torch.Tensor) or old.shape != final.shape:
            vars(layer).pop(name, None)
            layer._buffers.pop(name, None)
            values = fitting[key]
            start = values[0].detach().clone() if len(values) > 1 else torch.zeros_like(final)
            layer.register_buffer(name, start, persistent=False)


def _same_as_script(model: Model, script: Script) -> None:
    """Compare program and script over several calls in a row, also at other sizes.

    Raises:
        UnsupportedError: they differ.
    """
    if model.program is None or any(w.code == "set_to_inference" for w in model.warnings):
        return
    sizes = next(size_plans(model.signature.inputs, frozenset()), {})
    other = flat_program(model.program)
    before = Snapshot(other)
    for plan in (sizes, *other_plans(model.signature.inputs, sizes)):
        one = flat_module(copy.deepcopy(script.module), script.call)
        try:
            for step in range(_STEPS if model.stateful or not plan else 1):
                feed = _feed(model, plan, 400 + 10 * step)
                if not alike(_unoptimized(one, feed), seeded(_face(other), feed), 1e-4):
                    raise _differs(step)
        finally:
            before.restore_buffers()


def _unoptimized(module: nn.Module, feed: Sequence[Any]) -> list[torch.Tensor]:
    """Call without the profiling executor, which would compile kernels for a few calls."""
    import torch

    jit: Any = torch.jit
    with jit.optimized_execution(False):
        return seeded(_face(module), feed)


def _face(module: nn.Module) -> Any:
    return lambda flat: module(*flat)


def _feed(model: Model, plan: dict[Axis, int], seed: int) -> tuple[Any, ...]:
    from edgesdk.importing._inputs import example, sizes_of

    return tuple(
        example(s, sizes_of(s, plan), seed + i, model.int_ranges.get(s.name, (0, 2)))
        for i, s in enumerate(model.signature.inputs)
    )


def _differs(step: int) -> UnsupportedError:
    return UnsupportedError(
        "export_differs",
        f"The graph made from the TorchScript doesn't answer as it does in call {step + 1}.",
        why="It keeps state that its first call sets up differently, or takes a path that depends on values.",
        fix="Package the original module as file.py:factory, with the state as inputs and outputs.",
    )


def _script_only(script: Script, located: Located, hint: ModelHint, reason: UnsupportedError) -> Model:
    """The script as it is, with outputs found by running it at the ends of its ranges."""
    found = [_run_fresh(script, sizes) for sizes in _ends(script.call.specs)]
    pairs = name_outputs(found[0])
    names = unique([n for n, _ in pairs])
    outputs = tuple(
        TensorSpec(name, dtype_name(values[0].dtype), _span([tuple(v.shape) for v in values]))
        for name, *values in zip(names, *map(tensors, found), strict=True)
    )
    why = UnsupportedError(
        reason.code,
        reason.message,
        why=f"{reason.why} ExecuTorch and ONNX need a graph; TorchScript Lite takes the module as it is.",
        fix=f"Use --runtime torchscript, or: {reason.fix}",
        details=reason.details,
    )
    return Model(
        located.source, Signature(script.call.specs, outputs), script=script.module, no_program=why,
        preprocess=hint.preprocess, labels=hint.labels, task=hint.task, license=hint.license, history=hint.history,
        warnings=hint.warnings, stateful=_keeps_state(script),
    )  # fmt: skip


def _ends(specs: Sequence[TensorSpec]) -> list[dict[Axis, int]]:
    plans = list(size_plans(specs, frozenset()))
    low = {axis: d.min for axis, d in axes(specs)}
    high = {axis: d.max for axis, d in axes(specs)}
    return [low, high] if low else plans


def _run_fresh(script: Script, sizes: dict[Axis, int]) -> Any:
    import torch

    module = copy.deepcopy(script.module)
    try:
        jit: Any = torch.jit
        with jit.optimized_execution(False):
            return call_seeded(flat_face(module, script.call), examples(script.call.specs, sizes, 0))
    except Exception as exc:  # TorchScript reports what its code raised in a class of its own
        fed = ", ".join(map(str, script.call.specs))
        raise forward_failed(exc, module, fed) from exc


def _keeps_state(script: Script) -> bool:
    """Whether a second call answers another way than a first one would."""
    sizes = _ends(script.call.specs)[0]
    used = flat_module(copy.deepcopy(script.module), script.call)
    fresh = flat_module(copy.deepcopy(script.module), script.call)
    one, two = examples(script.call.specs, sizes, 0), examples(script.call.specs, sizes, 50)
    _unoptimized(used, one)
    return not alike(_unoptimized(used, two), _unoptimized(fresh, two), 0.0)


def _span(shapes: Sequence[tuple[int, ...]]) -> tuple[int | Dim, ...]:
    return tuple(d[0] if min(d) == max(d) else Dim(min(d), max(d)) for d in zip(*shapes, strict=True))


def call_of(
    script: torch.jit.ScriptModule,
    parameters: Sequence[inspect.Parameter],
    asked: Sequence[TensorSpec],
    hinted: Sequence[TensorSpec],
) -> Script:
    """The script with its inputs matched."""
    return Script(script, parameters, match_parameters(script, parameters, asked, hinted))
