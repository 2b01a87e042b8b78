"""From an ``nn.Module`` or a saved program to a :class:`~edgesdk.artifacts.Model` that every runtime can lower."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import HistoryStep, Model, Signature, TensorSpec, Warn
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.importing import _adopt
from edgesdk.importing._autocast import Held, full_precision, inline_modes, needs_autocast
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._capture import capture, plain_attention, why_pinned
from edgesdk.importing._check import check_program, is_stateful, state_lost
from edgesdk.importing._detector_head import at_head
from edgesdk.importing._dynamic import (
    Axis,
    axes,
    broken_guard,
    dimension_refused,
    dynamic_dims,
    output_shape,
    pinned,
    read_inputs,
    single_sizes,
    size_plans,
    taken_sizes,
    user_outputs,
    widen_to_one,
)  # fmt: skip
from edgesdk.importing._flat import flat_module, flat_program, only_tensors
from edgesdk.importing._inference_form import to_inference
from edgesdk.importing._inputs import Call, dtype_name, example, hinted_by_picture, match_inputs, sizes_of
from edgesdk.importing._int_ranges import int_ranges
from edgesdk.importing._names import name_outputs, unique
from edgesdk.importing._prepare import prepare
from edgesdk.importing._state import Snapshot, call_seeded, reassigned, refuse_hidden_state, write_in_place
from edgesdk.importing._translate import first_sentence, forward_failed, user_line

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from edgesdk.preprocess import PreprocessSpec


@dataclass(frozen=True)
class ModelHint:
    """What a source says about its model beside the weights; ``--input`` wins over ``inputs``."""

    inputs: tuple[TensorSpec, ...] = ()
    preprocess: PreprocessSpec | None = None
    labels: tuple[str, ...] | None = None
    task: str | None = None
    license: str | None = None
    warnings: tuple[Warn, ...] = ()
    history: tuple[HistoryStep, ...] = ()


@dataclass(frozen=True)
class Trial:
    """One call of the eager model that went well: what was fed at which sizes, and what came out."""

    call: Call
    sizes: dict[Axis, int]
    span: tuple[int, int]
    flat: tuple[Any, ...]
    found: Any
    before: Snapshot = field(repr=False)


def export_module(
    module: nn.Module, located: Located, options: ImportOptions, *, hint: ModelHint | None = None
) -> Model:
    """Export a module in inference form, check the program against the module, and describe both.

    The caller's module keeps its mode, device and dtype: a copy that shares the weights is used.

    Args:
        module: any ``nn.Module``; a ``ScriptModule`` takes the way of :mod:`edgesdk.importing.torchscript`.
        options: ``inputs`` by the names of ``forward()``'s parameters, nested ones dotted (``x.left``, ``x.0``).
        hint: what the source knows; its inputs serve where the user gave none.

    Raises:
        UsageError: an input name that ``forward()`` doesn't have, or one too few.
        InputError: no shape is known (the fix proposes one), or ``forward()`` fails on the described inputs.
        UnsupportedError: no graph can be made; names the user's line and the rewrite.
    """
    import torch

    hint = hint or ModelHint()
    if isinstance(module, torch.jit.ScriptModule):
        from edgesdk.importing.torchscript import import_script

        return import_script(module, located, options, hint=hint)
    module, warnings = prepare(module)
    module, cut = at_head(module)
    with full_precision() as held, plain_attention():
        model = _exported(module, located, options, hint, [*warnings, *cut], held)
    return replace(model, preprocess=hint.preprocess, labels=hint.labels, task=hint.task, license=hint.license,
                   history=hint.history, warnings=(*hint.warnings, *model.warnings))  # fmt: skip


def _exported(
    module: nn.Module, located: Located, options: ImportOptions, hint: ModelHint, warnings: list[Warn], held: Held
) -> Model:
    asked, said = (_as_widened(specs, warnings) for specs in (options.inputs, hint.inputs))
    if not asked and not said:
        said = hinted_by_picture(module, options.image)
    trial = _tried(module, match_inputs(module, asked, said), held)
    names, dropped = _outputs_of(trial.found)
    warnings += dropped
    exported = only_tensors(module) if _is_odd(trial.found) else module
    second = examples(trial.call.specs, trial.sizes, 100, trial.span)
    replaced = reassigned(trial.before.objects, module)
    kept = refuse_hidden_state(trial.before, flat_module(module, trial.call), trial.flat, second)
    if kept and replaced:
        write_in_place(module, replaced)
    program, inputs = _capture_dynamic(exported, trial)
    inline_modes(program)
    changed = to_inference(program)
    model = describe(program, inputs, names, located.source)
    face = flat_module(exported, trial.call)
    model = replace(model, module=flat_program(program) if changed or held.places else face)
    if kept and not model.stateful:
        raise state_lost()
    warnings += [*_padding(module, model.signature), *changed, *held.told()]
    warnings += check_program(model, trial.sizes, original=None if changed else face)
    return replace(model, warnings=tuple(warnings))


def _padding(module: nn.Module, signature: Signature) -> list[Warn]:
    """A word where PyTorch itself answers one thing or another at padded positions."""
    import torch

    nested = any(
        getattr(m, "use_nested_tensor", False) for m in module.modules() if isinstance(m, torch.nn.TransformerEncoder)
    )
    if not nested or all(spec.dtype != "bool" for spec in signature.inputs):
        return []
    return [Warn(
        "padded_positions", "nn.TransformerEncoder answers zeros at padded positions when it may use nested tensors (eval mode, "
        "torch.no_grad(), padding at the end), and other values in training. The file computes them as in training: mask the "
        "outputs before they are averaged, or build the encoder with enable_nested_tensor=False.",
    )]  # fmt: skip


def _tried(module: nn.Module, call: Call, held: Held) -> Trial:
    """:func:`try_forward`, and a word when the model fails only because autocast is held off."""
    try:
        return try_forward(module, call)
    except InputError as error:
        if held.places and _runs_as_written(module, call, held):
            raise needs_autocast(held, error.why) from error
        raise


def _runs_as_written(module: nn.Module, call: Call, held: Held) -> bool:
    with held.as_written(), contextlib.suppress(InputError, UnsupportedError):
        try_forward(module, call)
        return True
    return False


def _as_widened(specs: Sequence[TensorSpec], warnings: Sequence[Warn]) -> tuple[TensorSpec, ...]:
    """Half-precision inputs of a model whose weights became float32 are float32 too."""
    widened = any(w.code == "half_to_float32" for w in warnings)
    return tuple(replace(s, dtype="float32") if widened and s.dtype in ("float16", "bfloat16") else s for s in specs)


def adopt_program(ep: ExportedProgram, located: Located, options: ImportOptions) -> Model:
    """Take over a saved program: on the CPU, in inference form, with names and ranges read from it.

    Args:
        options: ``inputs`` that narrow a dynamic dimension or confirm a size.

    Raises:
        UsageError: an unknown input name.
        InputError: ``--input`` contradicts the program.
        UnsupportedError: inputs that are no tensors, or answers that chance decides.
    """
    merged = _adopt.merged_inputs(ep)
    ep, widened = _adopt.plain(_adopt.on_cpu(ep))
    inline_modes(ep)
    changed = to_inference(ep)
    inputs, warnings = _adopt.read_specs(ep, options.inputs)
    warnings = [*merged, *widened, *changed, *warnings]
    widen_to_one(ep, inputs)
    model = describe(ep, inputs, _adopt.output_names(ep), located.source)
    model = replace(model, module=flat_program(ep))
    sizes = next(size_plans(inputs, frozenset()), {})
    warnings += check_program(model, sizes, original=None)
    return replace(model, warnings=tuple(warnings))


def try_forward(module: nn.Module, call: Call) -> Trial:
    """Call the module at example sizes: different ones first, then equal ones where dimensions belong together.

    Raises:
        InputError: it fails whatever the sizes.
        UnsupportedError: it takes some size of an asked range, but not others.
    """
    failures: list[tuple[Exception, dict[Axis, int]]] = []
    taken = taken_sizes(module)
    for sizes in size_plans(call.specs, taken):
        trial = _attempt(module, call, sizes)
        if isinstance(trial, Trial):
            return trial
        failures.append((trial, sizes))
    failure, sizes = failures[0]
    for single in single_sizes(call.specs, taken):
        if isinstance(_attempt(module, call, single), Trial):
            raise _fits_only(failure, call, sizes, single) from failure
    raise forward_failed(failure, module, _fed(call, sizes)) from failure


def _attempt(module: nn.Module, call: Call, sizes: dict[Axis, int]) -> Trial | Exception:
    """One call; whole numbers are 0 and 1, or all 1 where 0 is refused (a length, a position less one)."""
    run = flat_face(module, call)
    failure: Exception | None = None
    for span in ((0, 2), (1, 2)):
        before = Snapshot(module)
        flat = examples(call.specs, sizes, 0, span)
        try:
            return Trial(call, sizes, span, flat, call_seeded(run, flat), before)
        except UnsupportedError:
            raise
        except Exception as exc:  # user code raises what it likes
            failure = failure or exc
            before.restore()
        if all(s.dtype.startswith(("float", "bool", "bfloat", "complex")) for s in call.specs):
            break
    return failure or RuntimeError("the model was not called")


def _fed(call: Call, sizes: dict[Axis, int]) -> str:
    return ", ".join(f"{s.name}={s.dtype}{list(sizes_of(s, sizes))}" for s in call.specs)


def _fits_only(failure: Exception, call: Call, sizes: dict[Axis, int], works: dict[Axis, int]) -> UnsupportedError:
    line = user_line(failure)
    return dimension_refused(
        f"forward() takes {_fed(call, works)}, but not {_fed(call, sizes)}" + (f" because of {line}." if line else "."),
        f"{type(failure).__name__}: {first_sentence(failure)}",
        details={"line": line},
    )


def flat_face(module: nn.Module, call: Call) -> Any:
    """Call the module with flat tensors; its own nested answer comes back."""

    def run(flat: Sequence[Any]) -> Any:
        args, kwargs = call.bind(flat)
        return module(*args, **kwargs)

    return run


def examples(
    specs: Sequence[TensorSpec], sizes: dict[Axis, int], seed: int, span: tuple[int, int] = (0, 2)
) -> tuple[Any, ...]:
    return tuple(example(s, sizes_of(s, sizes), seed + i, span) for i, s in enumerate(specs))


def _outputs_of(found: Any) -> tuple[list[str], list[Warn]]:
    """Names of the tensors that came out, and a word on what else did.

    Raises:
        UnsupportedError: an output is an object that holds no tensors we can see, or there is none at all.
    """
    import torch

    pairs = name_outputs(found)
    odd = [(n, v) for n, v in pairs if not isinstance(v, torch.Tensor)]
    objects = [f"{n} ({type(v).__name__})" for n, v in odd if not isinstance(v, (int, float, str, bool))]
    names = unique([n for n, v in pairs if isinstance(v, torch.Tensor)])
    if objects or not names:
        raise UnsupportedError(
            "unsupported_output_type",
            f"forward() returns {'no tensor' if not objects else 'an object that is no tensor: ' + ', '.join(objects)}.",
            why="A file on a phone returns named tensors.",
            fix="Return tensors, alone or in a dictionary, tuple, list or data class; wrap the model if it isn't yours.",
        )
    dropped = [Warn("output_dropped", f"Output '{n}' is the constant {v!r}, not a tensor, and was left out.") for n, v in odd]  # fmt: skip
    return names, dropped


def _is_odd(value: Any) -> bool:
    """Whether torch.export would refuse, or flatten in its own way, what ``forward()`` returned."""
    import torch
    from torch.utils import _pytree as pytree

    if isinstance(value, torch.Tensor):
        return False
    if type(value) not in pytree.SUPPORTED_NODES:  # a named tuple can be exported, but not saved
        return True
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return any(map(_is_odd, children))


def _capture_dynamic(module: nn.Module, trial: Trial) -> tuple[ExportedProgram, tuple[TensorSpec, ...]]:
    """Export at the trial's sizes and make sure that every dynamic dimension came out as asked (E-02)."""
    args, kwargs = trial.call.bind(trial.flat)
    shapes = _shapes(trial.call, module) if axes(trial.call.specs) else None
    program = capture(module, args, kwargs, shapes)
    trial.before.restore()
    inputs, faults = read_inputs(program, trial.call.specs)
    if faults:
        raise pinned(faults, why_pinned(module, args, kwargs, shapes))
    broken = broken_guard(program, inputs)
    if broken:
        raise _guarded(broken, inputs)
    widen_to_one(program, inputs)
    return program, inputs


def _shapes(call: Call, module: nn.Module) -> Any:
    """torch.export's ``dynamic_shapes`` for the nested arguments."""
    args, kwargs = call.bind([dynamic_dims(s) for s in call.specs])
    if type(module).__name__ == "OnlyTensors":
        return {"args": args, **({"kwargs": kwargs} if kwargs else {})}
    return {**dict(zip(call.positional, args, strict=True)), **kwargs}


def _guarded(condition: str, inputs: Sequence[TensorSpec]) -> UnsupportedError:
    names = {d.symbol: f"dimension {i} of '{n}'" for (n, i), d in axes(inputs)}
    about = " and ".join(text for symbol, text in names.items() if symbol and symbol in condition)
    for symbol, text in names.items():
        condition = condition.replace(symbol or "", f"({text})") if symbol else condition
    return dimension_refused(
        f"The model works only while {condition}, which doesn't hold for all sizes asked of {about}.",
        "forward() takes another path for other sizes, or a reshape needs sizes that divide evenly.",
    )


def describe(program: ExportedProgram, inputs: tuple[TensorSpec, ...], names: Sequence[str], source: Any) -> Model:
    """The model's data class: signature with the ranges of the outputs, safe integers, state."""
    values = user_outputs(program)
    outputs = tuple(
        TensorSpec(name, dtype_name(value.dtype), output_shape(program, value, name))
        for name, value in zip(names, values, strict=True)
    )
    return Model(
        source,
        Signature(inputs, outputs),
        program=program,
        int_ranges=int_ranges(program, inputs),
        stateful=is_stateful(program),
    )
