"""Half precision inside, float32 at the rim, and float32 wherever half's range isn't enough.

Every float32 operator is computed in float16, except those that a real input (or a constant such as a -1e9 mask) takes
beyond what float16 holds, or below its normal numbers altogether: they, and whatever reads their results, stay float32.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model
from edgesdk.errors import UnsupportedError
from edgesdk.runtimes import _ts_alias
from edgesdk.runtimes._ts_tables import source_line

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.export import ExportedProgram

    Feed = Mapping[str, np.ndarray]

_LARGEST = 65504.0  # IEEE 754 binary16
_SMALLEST = 2.0**-24  # its smallest number above zero; a smaller epsilon becomes 0
NORMAL = 2.0**-14
"""Below it binary16 has fewer than 11 bits, in the end none."""
_SHOWN = 8  # operators in a warning
_EXACT = 2048.0  # integers above it aren't exact in binary16: positions, token counts
_TURNS = 16.0  # above it binary16 steps by 1/64 and more: too coarse for an angle
_ANGLES = frozenset({"aten::sin", "aten::cos", "aten::tan"})
# These take their epsilon as an attribute and add it in float32.
_OWN_EPSILON = frozenset({
    "aten::layer_norm", "aten::native_layer_norm", "aten::batch_norm", "aten::group_norm", "aten::instance_norm",
    "aten::rms_norm", "aten::_native_batch_norm_legit_no_training", "aten::native_group_norm",
})  # fmt: skip


def to_half(model: Model, feeds: Sequence[Feed] = (), never: frozenset[str] = frozenset()) -> Model:
    """The model with weights and arithmetic in float16; inputs and outputs keep their dtypes, names and sizes.

    Args:
        feeds: real inputs by name; values that they take out of half's range stay float32. Without any, the inputs
            that the program was exported with are used.
        never: operators, as ``aten::name``, that the engine can't be trusted with in float16.

    Raises:
        UnsupportedError: the graph mixes dtypes in a way that float16 breaks.
    """
    if model.program is None or is_half(model.program):
        return model
    kept = _kept(model, feeds)
    refused = {n for n in _graph(model).graph.nodes if n.op == "call_function" and _name(n) in never}
    program = _exported(model.program, kept | refused)
    named = _described(kept)
    half = replace(model, program=program)
    if not named:
        return half
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    listed = ", ".join(named[:_SHOWN])
    return half.warned("fp16_kept_float32", f"Outside float16's range, and so computed in float32: {listed}{more}.")


def half_overflow(model: Model, feeds: Sequence[Feed]) -> tuple[str, ...]:
    """Operators whose values or constants float16 can't hold, each with the user's line: ``aten.exp at net.py:12``."""
    return () if model.program is None else _described(_overflowing(model, feeds))


def is_half(program: ExportedProgram) -> bool:
    """Whether any weight is float16 already."""
    import torch

    return any(t.dtype == torch.float16 for t in (*program.parameters(), *program.buffers()))


# -- what stays float32 -----------------------------------------------------------------------------------------------


def _kept(model: Model, feeds: Sequence[Feed]) -> set[torch.fx.Node]:
    import torch

    over = _overflowing(model, feeds)
    readers = {user for node in over for user in node.users if user.op == "call_function"}
    nodes = _graph(model).graph.nodes
    control = {n for n in nodes if n.op == "call_function" and isinstance(n.target, torch._ops.HigherOrderOperator)}
    return {n for n in over | readers | control if n.op == "call_function"}


_modules: dict[int, tuple[Any, Any]] = {}


def _graph(model: Model) -> torch.fx.GraphModule:
    """The program's module; one per program, since its nodes identify operators between the steps here."""
    program: Any = model.program
    held = _modules.get(id(program))
    if held is None or held[0] is not program:
        _modules.clear()
        _modules[id(program)] = held = (program, program.module(check_guards=False))
    module: torch.fx.GraphModule = held[1]
    return module


def _overflowing(model: Model, feeds: Sequence[Feed]) -> set[torch.fx.Node]:
    import torch

    module = _graph(model)
    found = {node for node in module.graph.nodes if _has_odd_number(node)}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _scan(module, found, _inputs(model, feeds))
    return found


def _has_odd_number(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or schema.name in _OWN_EPSILON or not _is_float(node):
        return False
    numbers = [abs(a) for a in (*node.args, *node.kwargs.values()) if isinstance(a, float)]
    return any((_LARGEST < n < float("inf")) or 0 < n < _SMALLEST for n in numbers)


def _is_float(node: torch.fx.Node) -> bool:
    import torch

    value = node.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return isinstance(first, torch.Tensor) and first.dtype == torch.float32


def _inputs(model: Model, feeds: Sequence[Feed]) -> Iterator[list[Any]]:
    import numpy as np
    import torch

    program: Any = model.program
    example = torch.utils._pytree.tree_leaves(program.example_inputs)
    names = [spec.name for spec in model.signature.inputs]
    for feed in feeds:
        given = iter([torch.from_numpy(np.array(feed[name])) for name in names])
        yield [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in example]
    if not feeds:
        yield example


def _scan(module: torch.fx.GraphModule, found: set[torch.fx.Node], inputs: Iterable[list[Any]]) -> None:
    """Run the float32 graph and add the nodes whose values leave half's range. State is put back afterwards."""
    import torch

    largest: dict[torch.fx.Node, float] = {}  # results and matrices, over all inputs; a small bias does no harm

    class Watch(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            values = [value for value in _tensors(result) if value.dtype == torch.float32 and value.numel()]
            if n.op == "output" or not values:
                return result
            if any(_leaves_range(n, value) for value in values):
                found.add(n)
            if n.op == "call_function" or (n.op == "get_attr" and values[0].dim() > 1):
                largest[n] = max(largest.get(n, 0.0), *map(_magnitude, values))
            return result

    kept = {name: buffer.clone() for name, buffer in module.named_buffers()} if _ts_alias.mutated(module.graph) else {}
    try:
        for values in inputs:
            Watch(module).run(*values, enable_io_processing=False)
    finally:
        buffers = dict(module.named_buffers())
        for name, value in kept.items():
            buffers[name].copy_(value)
    found |= {n for n, value in largest.items() if 0 < value < NORMAL}


def _magnitude(value: torch.Tensor) -> float:
    """The largest finite value, without its sign."""
    import torch

    finite = value[torch.isfinite(value)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _leaves_range(node: torch.fx.Node, value: torch.Tensor) -> bool:
    largest = _magnitude(value)
    if largest > _LARGEST:
        return True
    if largest > _EXACT and node.op == "call_function" and not any(map(_is_float, node.all_input_nodes)):
        return True
    return largest > _TURNS and any(_name(user) in _ANGLES for user in node.users)


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    import torch

    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if isinstance(item, torch.Tensor)]


def _name(node: torch.fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return schema.name if schema is not None else ""


def _described(nodes: Iterable[torch.fx.Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{_word(n)}{source_line(n)}" for n in sorted(nodes)))


def _word(node: torch.fx.Node) -> str:
    return str(node.target) if node.op != "placeholder" else f"input {node.name}"


# -- the half precision program ---------------------------------------------------------------------------------------


def _exported(program: ExportedProgram, kept: set[torch.fx.Node]) -> ExportedProgram:
    import torch

    held: Any = _modules[id(program)][1]
    module = copy.deepcopy(held)
    stay = {twin for node, twin in zip(held.graph.nodes, module.graph.nodes, strict=True) if node in kept}
    _narrow_weights(module, stay)
    leaves, _ = torch.utils._pytree.tree_flatten(program.example_inputs)
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    try:
        with torch.no_grad(), warnings.catch_warnings(), torch.fx.traceback.preserve_node_meta():
            warnings.simplefilter("ignore")
            wrapped = _half_inside(module, stay, leaves, program)
            return torch.export.export(wrapped, tensors, dynamic_shapes=_dynamic(program))
    except Exception as exc:  # torch.export raises anything
        first = next((line for line in str(exc).splitlines() if line.strip()), type(exc).__name__)
        raise UnsupportedError(
            "fp16_unsupported", "The model can't be computed in half precision.", why=first.strip()[:300],
            fix="Package it without --quantize fp16.",
        ) from exc  # fmt: skip


def _narrow_weights(module: torch.fx.GraphModule, stay: set[torch.fx.Node]) -> None:
    """Convert the weights that only half precision operators read; buffers that are written to keep their precision."""
    import torch

    written = _ts_alias.mutated(module.graph)
    by_target: dict[str, list[torch.fx.Node]] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            by_target.setdefault(node.target, []).append(node)
    for target, nodes in by_target.items():
        tensor = _attribute(module, target)
        readers = {user for node in nodes for user in node.users}
        if (
            not isinstance(tensor, torch.Tensor)
            or tensor.dtype != torch.float32
            or readers & stay
            or set(nodes) & written
        ):
            continue
        finite = tensor.detach()[torch.isfinite(tensor)]
        if not finite.numel() or float(finite.abs().max()) <= _LARGEST:
            tensor.data = tensor.data.half()


def _attribute(module: torch.nn.Module, target: str) -> Any:
    found: Any = module
    for part in target.split("."):
        found = getattr(found, part)
    return found


def _half_inside(
    module: torch.fx.GraphModule, stay: set[torch.fx.Node], leaves: list[Any], program: ExportedProgram
) -> torch.nn.Module:
    import torch

    specs = [s.arg for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    nodes = {node.name: node for node in program.graph.nodes}
    wanted = [getattr(getattr(nodes.get(getattr(s, "name", "")), "meta", {}).get("val"), "dtype", None) for s in specs]

    class HalfInside(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *tensors: torch.Tensor) -> Any:
            given = iter(tensors)
            values = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            found = _mixed(self.inner, stay).run(*values, enable_io_processing=False)
            return tuple(
                value.to(dtype) if isinstance(value, torch.Tensor) and dtype not in (None, value.dtype) else value
                for value, dtype in zip(found, wanted, strict=True)
            )

    return HalfInside()


def _mixed(module: torch.fx.GraphModule, stay: set[torch.fx.Node]) -> Any:
    """An interpreter that runs each operator in its precision."""
    import torch

    class Mixed(torch.fx.Interpreter):
        def __init__(self) -> None:
            super().__init__(module, garbage_collect_values=False)
            self.calls = _Calls(stay)

        def run_node(self, n: torch.fx.Node) -> Any:
            if n.op != "call_function":
                return super().run_node(n)
            with torch.fx.traceback.set_current_meta(n):
                return self.calls.call(n, self.env)

    return Mixed()


class _Calls:
    """Calls operators with their arguments cast to the precision they are computed in; each value is cast once."""

    def __init__(self, stay: set[torch.fx.Node]) -> None:
        import torch

        self.half, self.single = torch.float16, torch.float32
        self.stay = stay
        self.values: Mapping[torch.fx.Node, Any] = {}
        self.casts: dict[tuple[torch.fx.Node, torch.dtype], Any] = {}

    def call(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
        self.values = values
        target: Any = node.target
        place, writes = _view_or_write(node)
        if place is not None and not writes:  # a view shares memory: casting its source would break that
            return target(*self._look(node.args), **self._look(node.kwargs))
        dtype = self.single if node in self.stay else self.half
        if writes:
            dtype = getattr(self.values.get(place), "dtype", dtype)
            self.casts.clear()
        args, kwargs = self._look(node.args, dtype, place), self._look(node.kwargs, dtype, place)
        if dtype == self.half:
            args, kwargs = _half_dtypes(node, args, kwargs)
        return target(*args, **kwargs)

    def _look(self, value: Any, dtype: Any = None, untouched: Any = None) -> Any:
        import torch

        return torch.fx.node.map_arg(value, lambda m: self._one(m, dtype if m is not untouched else None))

    def _one(self, node: torch.fx.Node, dtype: Any) -> Any:
        value = self.values[node]
        if dtype is None or getattr(value, "dtype", dtype) in (dtype, None):
            return value
        if value.dtype not in (self.half, self.single):
            return value
        if (node, dtype) not in self.casts:
            self.casts[node, dtype] = value.to(dtype)
        return self.casts[node, dtype]


def _view_or_write(node: torch.fx.Node) -> tuple[Any, bool]:
    """(the argument whose memory the result shares, whether it is written to)"""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not any(r.alias_info is not None for r in schema.returns):
        return None, False
    for argument, value in zip(schema.arguments, node.args, strict=False):
        if argument.alias_info is not None:
            return value, bool(argument.alias_info.is_write)
    return None, False


def _half_dtypes(node: torch.fx.Node, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """float32 written into the call becomes float16; so does float32 by default."""
    import torch

    def change(value: Any) -> Any:
        return torch.float16 if value is torch.float32 else value

    args, kwargs = tuple(map(change, args)), {k: change(v) for k, v in kwargs.items()}
    schema = getattr(node.target, "_schema", None)
    names = [a.name for a in schema.arguments] if schema is not None else []
    makes = "dtype" in names and not any(isinstance(v, torch.Tensor) for v in (*args, *kwargs.values()))
    if makes and _is_float(node) and kwargs.get("dtype") is None and len(args) <= names.index("dtype"):
        kwargs["dtype"] = torch.float16
    return args, kwargs


def _dynamic(program: ExportedProgram) -> Any:
    """The dynamic sizes of the inputs with their ranges; None when all are fixed."""
    import torch
    from torch.export import Dim

    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    symbolic: Any = torch.SymInt  # mypy takes it for a kind of int
    shapes: list[dict[int, Any]] = []
    for name in program.graph_signature.user_inputs:
        value = nodes[name].meta.get("val") if isinstance(name, str) else None
        if not isinstance(value, torch.Tensor):
            continue
        dims: dict[int, Any] = {}
        for axis, size in enumerate(value.shape):
            if isinstance(size, symbolic):
                limits: Any = program.range_constraints.get(size.node.expr)
                dims[axis] = Dim.AUTO(min=_limit(limits, "lower"), max=_limit(limits, "upper"))
        shapes.append(dims)
    return (tuple(shapes),) if any(shapes) else None


def _limit(limits: Any, end: str) -> int | None:
    try:
        return int(getattr(limits, end))
    except (AttributeError, TypeError, ValueError, OverflowError):  # none, or infinite
        return None
