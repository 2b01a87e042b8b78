"""Reading a saved ``ExportedProgram``: its names, its ranges, and what has to change before it can be lowered."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Dim, Size, TensorSpec, Warn
from edgesdk.errors import InputError, UnsupportedError, UsageError, nearest
from edgesdk.importing._capture import capture, quiet
from edgesdk.importing._dynamic import bounds, user_nodes
from edgesdk.importing._inputs import dtype_name
from edgesdk.importing._names import name_outputs, unique
from edgesdk.importing._state import Snapshot

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

_LOG = logging.getLogger(__name__)
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


def plain(ep: ExportedProgram) -> tuple[ExportedProgram, list[Warn]]:
    """The program without constant inputs and outputs (``forward(x, None, 3)``), and without half precision.

    Raises:
        UnsupportedError: an input is a number that changes from call to call.
    """
    import torch
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
    stores = (*ep.state_dict.values(), *ep.constants.values())
    halves = sorted({str(t.dtype)[6:] for t in stores if isinstance(t, torch.Tensor) and t.dtype in _halves()})
    if not halves and all(isinstance(a, TensorArgument) for a in (*given, *made)):
        return ep, []
    text = f"The model's {' and '.join(halves)} weights were widened to float32; --quantize fp16 stores them in half."
    return _again(ep, given), [Warn("half_to_float32", text)] if halves else []


def _halves() -> tuple[torch.dtype, ...]:
    import torch

    return (torch.float16, torch.bfloat16)


def _widened(ep: ExportedProgram) -> Any:
    """The program's graph module with float32 in place of half precision, weights and casts alike."""
    import torch

    module = ep.module(check_guards=False)

    def wide(value: Any) -> Any:
        return torch.float32 if isinstance(value, torch.dtype) and value in _halves() else value

    for graph_module in (m for m in module.modules() if isinstance(m, torch.fx.GraphModule)):
        for node in graph_module.graph.nodes:
            node.args = torch.fx.node.map_aggregate(node.args, wide)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, wide)
        graph_module.recompile()
    for layer in module.modules():
        for key, parameter in layer._parameters.items():
            if parameter is not None and parameter.dtype in _halves():
                layer._parameters[key] = torch.nn.Parameter(parameter.detach().float(), requires_grad=False)
        for store in (layer._buffers, vars(layer)):
            changed = {k: v.float() for k, v in store.items() if isinstance(v, torch.Tensor) and v.dtype in _halves()}
            store.update(changed)
    return module


def _again(ep: ExportedProgram, given: Sequence[Any]) -> ExportedProgram:
    """Export once more: constants bound inside, outputs that are tensors only, floats in float32."""
    import torch
    from torch.export.graph_signature import TensorArgument
    from torch.utils import _pytree as pytree

    names = argument_names(ep)
    slots = [None if isinstance(a, TensorArgument) else a for a in given]
    kept = [n for n, s in zip(names, slots, strict=True) if s is None]
    nodes = {n.name: n for n in ep.graph.nodes}
    values = [nodes[a.name].meta["val"] for a in given if isinstance(a, TensorArgument)]
    made = unique([n for n, _ in name_outputs(_output_tree(ep))])
    inner = _widened(ep)
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

    sizes = [[d if isinstance(d, int) else int(d.node.hint) for d in v.shape] for v in values]
    kinds = [torch.float32 if v.dtype in _halves() else v.dtype for v in values]
    feed = {n: torch.zeros(s, dtype=k) for n, s, k in zip(kept, sizes, kinds, strict=True)}
    shapes = {n: _auto(ep, v) for n, v in zip(kept, values, strict=True)}
    return capture(Bound(), (feed,), {}, (shapes,))


def _auto(ep: ExportedProgram, value: Any) -> dict[int, Any]:
    """The dynamic dimensions of an input with the ranges that they have."""
    from torch.export import Dim as TorchDim

    found = {}
    for i, d in enumerate(value.shape):
        if not isinstance(d, int):
            low, high = bounds(ep, d.node.expr)
            found[i] = TorchDim.AUTO(min=max(low, 1), max=high) if high < _NO_BOUND else TorchDim.AUTO(min=max(low, 1))
    return found


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


def merged_inputs(ep: ExportedProgram) -> list[Warn]:
    """A word on inputs for which one tensor served as the example: torch.export then takes them for one input."""
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves(ep.example_inputs)
    nodes, names = user_nodes(ep), argument_names(ep)
    if len(leaves) != len(nodes):
        return []
    first: dict[int, int] = {}
    warnings = []
    for i, leaf in enumerate(leaves):
        one = first.setdefault(id(leaf), i)
        if one != i and not (nodes[one].users and nodes[i].users):
            text = (
                f"Inputs '{names[one]}' and '{names[i]}' were one and the same tensor when the program was exported, and "
                "torch.export used one of them for both. Export again with an example tensor for each."
            )
            warnings.append(Warn("inputs_merged", text))
    return warnings


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
    takes_one = _takes_one(ep)
    specs = []
    for name, node in zip(names, user_nodes(ep), strict=True):
        value = node.meta["val"]
        own = TensorSpec(name, dtype_name(value.dtype), _own_shape(ep, value, takes_one))
        specs.append(_narrowed(own, said[name]) if name in said else _bounded(own, ep, node, warnings))
    return tuple(specs), warnings


def _own_shape(ep: ExportedProgram, value: Any, takes_one: bool) -> tuple[Size, ...]:
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
        least = max(low, 1) if low != 2 or not takes_one else 1
        shape.append(Dim(least, min(high, _NO_BOUND), str(expr)))
    return tuple(shape)


def _takes_one(ep: ExportedProgram) -> bool:
    """Whether the program runs with 1 in every dimension that is said to begin at 2.

    torch writes 2 for "dynamic" as well as for a least size of 2; only the latter is guarded.
    """
    import torch
    from torch.utils import _pytree as pytree

    def size(d: Any) -> int:
        if isinstance(d, int):
            return d
        low, _ = bounds(ep, d.node.expr)
        return 1 if low <= 2 else low

    values = [n.meta["val"] for n in user_nodes(ep)]
    if all(isinstance(d, int) or bounds(ep, d.node.expr)[0] != 2 for v in values for d in v.shape):
        return False
    feed = [torch.zeros([size(d) for d in v.shape], dtype=v.dtype) for v in values]
    args, kwargs = pytree.tree_unflatten(feed, ep.call_spec.in_spec)
    module = ep.module()
    before = Snapshot(module)
    try:
        with quiet(), torch.no_grad():
            found = module(*args, **kwargs)
    except Exception as exc:  # a guard, or an operator at that size
        _LOG.debug("the program refuses size 1", exc_info=exc)
        return False
    finally:
        before.restore_buffers()
    return all(bool(torch.isfinite(t).all()) for _, t in name_outputs(found) if isinstance(t, torch.Tensor))


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
            shape.append(replace(mine, min=low, max=high) if high > low else low)
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
