"""Reading a saved ``ExportedProgram``: its names, its ranges, and what has to change before it can be lowered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Dim, Size, TensorSpec, Warn
from edgesdk.errors import InputError, UnsupportedError, UsageError, nearest
from edgesdk.importing._dynamic import bounds, user_nodes
from edgesdk.importing._inputs import dtype_name
from edgesdk.importing._names import name_outputs, unique

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_NO_BOUND = 2**31


def on_cpu(ep: ExportedProgram) -> ExportedProgram:
    """The program with its weights, constants and device arguments on the CPU (E-16)."""
    import torch

    stores = (*ep.state_dict.values(), *ep.constants.values())
    values = [n.meta.get("val") for n in ep.graph.nodes]
    devices = {t.device.type for t in (*stores, *values) if isinstance(t, torch.Tensor)}
    if devices <= {"cpu"}:
        return ep
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(ep, "cpu")


def only_tensor_inputs(ep: ExportedProgram) -> ExportedProgram:
    """The program without inputs and outputs that are constants (``forward(x, None, 3)``).

    Raises:
        UnsupportedError: an input is a number that changes from call to call.
    """
    from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

    signature = ep.graph_signature
    given = [s.arg for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    made = [s.arg for s in signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    odd = [a.name for a in given if not isinstance(a, (TensorArgument, ConstantArgument))]
    if odd:
        raise UnsupportedError(
            "scalar_input",
            f"Input '{odd[0]}' of the program is a number, not a tensor.",
            why="A file on a phone takes tensors.",
            fix="Export with a constant, or with a tensor of one element in its place.",
        )
    if all(isinstance(a, TensorArgument) for a in (*given, *made)):
        return ep
    return _without_constants(ep, given)


def _without_constants(ep: ExportedProgram, given: Sequence[Any]) -> ExportedProgram:
    """Export once more, the constants bound inside, outputs that are tensors only."""
    import torch
    from torch.export.graph_signature import TensorArgument
    from torch.utils import _pytree as pytree

    from edgesdk.importing._capture import capture

    names = argument_names(ep)
    slots = [None if isinstance(a, TensorArgument) else a for a in given]
    kept = [n for n, s in zip(names, slots, strict=True) if s is None]
    nodes = {n.name: n for n in ep.graph.nodes}
    values = [nodes[a.name].meta["val"] for a in given if isinstance(a, TensorArgument)]
    made = unique([n for n, _ in name_outputs(_output_tree(ep))])
    inner = ep.module(check_guards=False)
    in_spec = ep.call_spec.in_spec

    class Bound(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = inner

        def forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            rest = iter(inputs.values())
            flat = [next(rest) if s is None else s.value for s in slots]
            args, kwargs = pytree.tree_unflatten(flat, in_spec)
            pairs = name_outputs(self.model(*args, **kwargs))
            return dict(zip(made, (t for _, t in pairs if isinstance(t, torch.Tensor)), strict=True))

    hints = [tuple(d if isinstance(d, int) else int(d.node.hint) for d in v.shape) for v in values]
    feed = {n: torch.zeros(s, dtype=v.dtype) for n, s, v in zip(kept, hints, values, strict=True)}
    auto = torch.export.Dim.AUTO
    shapes = {n: {i: auto for i, d in enumerate(v.shape) if not isinstance(d, int)} for n, v in zip(kept, values, strict=True)}  # fmt: skip
    return capture(Bound(), (feed,), {}, (shapes,))


def argument_names(ep: ExportedProgram) -> list[str]:
    """Flat input names: ``forward()``'s parameters, nested ones dotted."""
    from torch.utils import _pytree as pytree

    signature = ep.graph_signature
    count = len([s for s in signature.input_specs if s.kind.name == "USER_INPUT"])
    given = [s.arg.name for s in signature.input_specs if s.kind.name == "USER_INPUT"]
    try:
        args, kwargs = pytree.tree_unflatten([_Slot(i) for i in range(count)], ep.call_spec.in_spec)
    except (ValueError, TypeError):
        return [str(n) for n in given]
    called = _forward_names(ep)
    if len(args) == 1 and isinstance(args[0], dict) and called[:1] == ["inputs"] and not kwargs:
        return [name for name, _ in name_outputs(args[0])]
    names: dict[int, str] = {}
    for root, value in (*_rooted(args, called, given), *kwargs.items()):
        for path, slot in name_outputs(value):
            names[slot.index] = root if isinstance(value, _Slot) else f"{root}.{path.removeprefix('output_')}"
    return [names[i] for i in range(count)]


class _Slot:
    """Stands for the tensor at one flat position."""

    def __init__(self, index: int) -> None:
        self.index = index


def _rooted(args: Sequence[Any], called: Sequence[str], given: Sequence[str]) -> list[tuple[str, Any]]:
    roots = []
    for i, value in enumerate(args):
        fallback = given[value.index] if isinstance(value, _Slot) else f"input_{i}"
        roots.append((called[i] if i < len(called) else fallback, value))
    return roots


def _forward_names(ep: ExportedProgram) -> list[str]:
    entry = ep.module_call_graph[0].signature
    names = getattr(entry, "forward_arg_names", None) if entry is not None else None
    return list(names or [])


def _output_tree(ep: ExportedProgram) -> Any:
    from torch.export.graph_signature import TensorArgument
    from torch.utils import _pytree as pytree

    made = [s.arg for s in ep.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    slots = [_Slot(i) if isinstance(a, TensorArgument) else None for i, a in enumerate(made)]
    return pytree.tree_unflatten(slots, ep.call_spec.out_spec)


def output_names(ep: ExportedProgram) -> list[str]:
    """Flat output names, from the structure that ``forward()`` returned."""
    return unique([name for name, _ in name_outputs(_output_tree(ep))])


def read_specs(ep: ExportedProgram, asked: Sequence[TensorSpec]) -> tuple[tuple[TensorSpec, ...], list[Warn]]:
    """Inputs with dtype, sizes and ranges, narrowed to what ``--input`` says.

    Raises:
        UsageError: ``--input`` names an input that the program doesn't have.
        InputError: it contradicts the program's dtype, rank, a fixed size or a range.
    """
    warnings: list[Warn] = []
    names = argument_names(ep)
    said = {s.name: s for s in asked}
    for name in said:
        if name not in names:
            raise UsageError(
                "unknown_input", f"The program has no input '{name}'.",
                why=nearest(name, names), fix="Name one of its inputs in --input, or leave --input out.",
            )  # fmt: skip
    specs = []
    for name, node in zip(names, user_nodes(ep), strict=True):
        value = node.meta["val"]
        own = TensorSpec(name, dtype_name(value.dtype), _own_shape(ep, value))
        specs.append(_narrowed(own, said[name]) if name in said else _bounded(own, ep, node, warnings))
    return tuple(specs), warnings


def _own_shape(ep: ExportedProgram, value: Any) -> tuple[Size, ...]:
    shape: list[Size] = []
    for size in value.shape:
        if isinstance(size, int):
            shape.append(size)
            continue
        expr = size.node.expr
        low, high = bounds(ep, expr)
        if not expr.is_Symbol:
            raise UnsupportedError(
                "derived_dimension",
                f"A dimension of the program takes only sizes of the form {expr}.",
                why="A range in a manifest holds every size between its ends.",
                fix="Export the program with that dimension fixed, or independent of the others.",
            )
        shape.append(Dim(1 if low <= 2 else low, min(high, _NO_BOUND), str(expr)))
    return tuple(shape)


def _narrowed(own: TensorSpec, said: TensorSpec) -> TensorSpec:
    if said.dtype != own.dtype or len(said.shape or ()) != len(own.shape or ()):
        raise _contradiction(own, said)
    shape: list[Size] = []
    for mine, wish in zip(own.shape or (), said.shape or (), strict=True):
        low, high = (wish, wish) if isinstance(wish, int) else (wish.min, wish.max)
        if isinstance(mine, int):
            if (low, high) != (mine, mine):
                raise _contradiction(own, said)
            shape.append(mine)
        elif low < mine.min or high > mine.max:
            raise _contradiction(own, said)
        else:
            shape.append(replace(mine, min=low, max=high) if high > low else Dim(low, high, mine.symbol))
    return replace(own, shape=tuple(shape))


def _contradiction(own: TensorSpec, said: TensorSpec) -> InputError:
    return InputError(
        "input_contradicts_file",
        f"--input '{said}' doesn't fit the file, which was exported with '{own}'.",
        why="A saved program takes the dtype and the sizes that it was exported with.",
        fix="Leave --input out or narrow a range, or export the model again with those sizes.",
    )


def _bounded(own: TensorSpec, ep: ExportedProgram, node: Any, warnings: list[Warn]) -> TensorSpec:
    """Upper bounds for dimensions that have none: memory on a phone is planned ahead (E-13)."""
    shape: list[Size] = []
    for i, (size, value) in enumerate(zip(own.shape or (), node.meta["val"].shape, strict=True)):
        if not isinstance(size, Dim) or size.max < _NO_BOUND:
            shape.append(size)
            continue
        hint = value.node.hint or size.min
        high = max(int(hint) * (1 if i == 0 else 2), 8, size.min)
        shape.append(replace(size, max=high))
        text = (
            f"Dimension {i} of '{own.name}' has no upper bound in the file; {size.min}..{high} was taken. "
            f"Say another range with --input."
        )
        warnings.append(Warn("bound_chosen", text))
    return replace(own, shape=tuple(shape))
