"""A program compared with the model it was made from, before anybody lowers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model, TensorSpec, Warn
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.importing._dynamic import Axis, other_plans
from edgesdk.importing._flat import flat_program
from edgesdk.importing._inference_form import mutations, place, random_ops
from edgesdk.importing._inputs import example, sizes_of
from edgesdk.importing._state import Snapshot, alike, seeded
from edgesdk.importing._translate import first_sentence

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

_LARGEST = 2**24
"""Elements (64 MB of float32) above which a further size isn't tried here; verification runs the lowered file there."""


def check_program(model: Model, sizes: Mapping[Axis, int], original: nn.Module | None) -> list[Warn]:
    """Run the program, twice and at other sizes, and the original beside it.

    Args:
        original: a flat module to compare with; None when the graph was deliberately changed.

    Raises:
        InputError: tensors off the CPU, or the model itself fails at a size that was asked for.
        UnsupportedError: answers differ from run to run, or from the original's.
    """
    program = model.program
    if program is None:
        return []
    on_cpu_and_contiguous(program)
    flat = program_face(program)
    steps = 2 if model.stateful else 1
    feeds = [_feed(model, sizes, seed=200 + 10 * i) for i in range(steps)]
    answer = _run(flat, feeds)
    _same_twice(program, flat, feeds, answer)
    if original is None:
        return []
    sides = Sides(original, flat)
    _compare(model, sides, feeds, answer)
    for plan in other_plans(model.signature.inputs, sizes):
        feeds = [_feed(model, plan, seed=300 + 10 * i) for i in range(steps)]
        if sum(t.numel() for t in feeds[0]) <= _LARGEST:
            _compare(model, sides, feeds, None)
    return []


@dataclass(frozen=True)
class Sides:
    """The original and the program, both with flat faces."""

    original: nn.Module
    program: nn.Module


def program_face(program: ExportedProgram) -> nn.Module:
    return flat_program(program)


def _feed(model: Model, sizes: Mapping[Axis, int], seed: int) -> tuple[torch.Tensor, ...]:
    spans = model.int_ranges
    return tuple(
        example(s, sizes_of(s, sizes), seed + i, spans.get(s.name, (0, 2)))
        for i, s in enumerate(model.signature.inputs)
    )


Feeds = Sequence[Sequence[Any]]


def _run(module: nn.Module, feeds: Feeds, seed: int = 0) -> list[torch.Tensor]:
    """Calls in a row from the initial state, and back to it; the tensors of all of them."""
    before = Snapshot(module)
    try:
        return [t for feed in feeds for t in seeded(lambda flat: module(*flat), feed, seed)]
    finally:
        before.restore_buffers()


def _same_twice(program: ExportedProgram, flat: nn.Module, feeds: Feeds, answer: list[torch.Tensor]) -> None:
    drawn = random_ops(program)
    if not drawn or alike(answer, _run(flat, feeds, seed=1), 0.0):
        return
    places = ", ".join(dict.fromkeys(place(n) for n in drawn))
    raise UnsupportedError(
        "not_deterministic",
        f"The model draws random numbers at inference: {places}.",
        why="Two runs on the same input differ, so no lowered file can be checked against it.",
        fix="Pass the noise in as an input, or leave that step out in eval mode.",
    )


def _compare(model: Model, sides: Sides, feeds: Feeds, answer: list[torch.Tensor] | None) -> None:
    shapes = ", ".join(f"{s.name}={list(t.shape)}" for s, t in zip(model.signature.inputs, feeds[0], strict=True))
    try:
        expected = _run(sides.original, feeds)
    except Exception as exc:  # user code raises what it likes
        raise InputError(
            "forward_failed",
            f"The model itself fails at a size that was asked for: {shapes}.",
            why=f"{type(exc).__name__}: {first_sentence(exc)}",
            fix="Ask for the range of sizes that the model takes.",
        ) from exc
    try:
        found = answer if answer is not None else _run(sides.program, feeds)
    except Exception as exc:  # an assertion of the graph, of any kind
        raise _differs(shapes, f"the graph refuses that input ({first_sentence(exc)})") from exc
    for spec, value in zip(model.signature.outputs, expected, strict=False):
        if not _fits(spec, value):
            raise _other_shape(spec, value, shapes)
    if not alike(expected, found, 1e-4):
        raise _differs(shapes, _difference(expected, found))


def _fits(spec: TensorSpec, value: torch.Tensor) -> bool:
    if spec.shape is None or len(spec.shape) != value.dim():
        return False
    ends = [(d, d) if isinstance(d, int) else (d.min, d.max) for d in spec.shape]
    return all(low <= n <= high for (low, high), n in zip(ends, value.shape, strict=True))


def _other_shape(spec: TensorSpec, value: torch.Tensor, shapes: str) -> UnsupportedError:
    return UnsupportedError(
        "dimension_not_dynamic",
        f"At {shapes} the model's output '{spec.name}' has the shape {list(value.shape)}, which isn't of the form {spec}.",
        why="squeeze() without a dimension, or a test of the size in forward(), gives another shape at this size.",
        fix="Name the dimension (squeeze(-1)), or leave that size out of the range in --input.",
    )


def _difference(expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> str:
    for one, other in zip(expected, found, strict=False):
        if one.shape != other.shape:
            return f"the shape is {list(other.shape)} instead of {list(one.shape)}"
    gaps = [float((a.double() - b.double()).abs().max()) for a, b in zip(expected, found, strict=False) if a.numel()]
    return f"the largest difference is {max(gaps, default=0):.3g}"


def _differs(shapes: str, how: str) -> UnsupportedError:
    return UnsupportedError(
        "export_differs",
        f"The exported graph doesn't answer as the model does at {shapes}: {how}.",
        why="forward() depends on something a graph can't hold: NumPy or Python values computed from tensors, "
        "or another path for this size.",
        fix="Compute it with torch operators on tensors, or ask for sizes that take the same path.",
    )


def state_lost() -> UnsupportedError:
    return UnsupportedError(
        "hidden_state",
        "The model keeps state in a buffer, and torch.export lost it.",
        why="The buffer is replaced in a way that the graph doesn't see.",
        fix="Write into the buffer (self.h.copy_(new)), or make the state an input and an output of forward().",
    )


def is_stateful(program: ExportedProgram) -> bool:
    """Whether a call changes a buffer that later calls read."""
    from torch.export.graph_signature import OutputKind

    kinds = {s.kind for s in program.graph_signature.output_specs}
    if OutputKind.BUFFER_MUTATION in kinds:
        return True
    stored = set(program.graph_signature.inputs_to_buffers) | set(
        program.graph_signature.inputs_to_lifted_tensor_constants
    )
    return any(base.name in stored for _, base in mutations(program.graph_module))


def on_cpu_and_contiguous(program: ExportedProgram) -> None:
    """Make weights and constants contiguous, and refuse any that isn't on the CPU (E-09, E-16).

    Raises:
        InputError: a tensor on another device.
    """
    import torch

    for store in (program.state_dict, program.constants):
        for name, tensor in list(store.items()):
            if not isinstance(tensor, torch.Tensor):
                continue
            if tensor.device.type != "cpu":
                raise _off_cpu(name, tensor)
            if tensor.layout is torch.strided and not tensor.is_contiguous():
                dense = tensor.detach().contiguous()
                store[name] = torch.nn.Parameter(dense, False) if isinstance(tensor, torch.nn.Parameter) else dense


def _off_cpu(name: str, tensor: torch.Tensor) -> InputError:
    return InputError(
        "not_on_cpu",
        f"The tensor '{name}' of the model is on {tensor.device}.",
        why="Lowering reads all weights on the CPU.",
        fix="Move the model with model.cpu(), constants included, and export it again.",
    )
