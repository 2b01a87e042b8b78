"""Dynamic dimensions: example sizes that pin nothing, and what torch.export made of them, read back and checked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Dim, Size, TensorSpec
from edgesdk.errors import UnsupportedError

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

Axis = tuple[str, int]
"""Input name and dimension."""


def axes(specs: Sequence[TensorSpec]) -> list[tuple[Axis, Dim]]:
    """Every dynamic dimension of the inputs."""
    return [((s.name, i), d) for s in specs for i, d in enumerate(s.shape or ()) if isinstance(d, Dim)]


def size_plans(specs: Sequence[TensorSpec], taken: frozenset[int]) -> Iterator[dict[Axis, int]]:
    """Example sizes to try in turn: all different, then equal along equal axes, then equal for equal ranges.

    Sizes are at least 2 (torch takes 1 for a constant) and, where the range has room, unlike each other, unlike the
    fixed sizes of the inputs, and unlike the ``taken`` sizes of weights, so that no size is right by accident (E-02).
    """
    fixed = frozenset(d for s in specs for d in s.shape or () if isinstance(d, int))
    keys: tuple[Callable[[Axis, Dim], Any], ...] = (
        lambda axis, d: d.symbol or axis,
        lambda axis, d: d.symbol or axis[1],
        lambda axis, d: d.symbol or (d.min, d.max),
    )
    tried: list[dict[Axis, int]] = []
    for key in keys:
        shared: dict[Any, Dim] = {}
        for axis, d in axes(specs):
            one = shared.get(key(axis, d), d)
            shared[key(axis, d)] = Dim(max(one.min, d.min), min(one.max, d.max))
        if any(d.min > d.max for d in shared.values()):
            continue
        chosen: dict[Any, int] = {}
        for group, d in shared.items():
            chosen[group] = _pick(d, fixed | set(chosen.values()), taken)
        plan = {axis: chosen[key(axis, d)] for axis, d in axes(specs)}
        if plan not in tried:
            tried.append(plan)
            yield plan


def _pick(d: Dim, avoid: frozenset[int] | set[int], rather_not: frozenset[int]) -> int:
    """Near the middle, yet small: a size of 64 costs little, and is seldom the edge of what a network takes."""
    low = max(2, d.min)
    start = max(low, min((d.min + d.max) // 2, max(2 * d.min, 64)))
    nearby: list[int] = [*range(start, min(d.max, start + 64) + 1), *range(start - 1, max(low, start - 64) - 1, -1)]
    free = [n for n in nearby if n not in avoid] or [start]
    return next((n for n in free if n not in rather_not), free[0])


def other_plans(specs: Sequence[TensorSpec], used: Mapping[Axis, int]) -> list[dict[Axis, int]]:
    """Two further sets of sizes at which program and original are compared: the least ones, and larger ones.

    Dimensions that share a symbol keep one size.
    """
    plans: list[dict[Axis, int]] = []
    wishes: tuple[Callable[[Dim, int], int], ...] = (lambda d, n: d.min, lambda d, n: min(d.max, n + 1 + (n > 8)))
    for wish in wishes:
        sizes: dict[Any, int] = {}
        plan = {axis: sizes.setdefault(d.symbol or axis, wish(d, used[axis])) for axis, d in axes(specs)}
        if plan and plan != dict(used) and plan not in plans:
            plans.append(plan)
    return plans


def single_sizes(specs: Sequence[TensorSpec], taken: frozenset[int]) -> Iterator[dict[Axis, int]]:
    """Sizes a model may be pinned to, all its dynamic dimensions given the same one: ends, small ones, those of weights."""
    dims = [d for _, d in axes(specs)]
    if not dims:
        return
    low, high = max(d.min for d in dims), min(d.max for d in dims)
    wished = sorted({low, high, *range(low, min(low + 16, high) + 1), *(n for n in taken if low <= n <= high)})
    for size in wished[:40] if low <= high else ():
        yield {axis: size for axis, _ in axes(specs)}


def dynamic_dims(spec: TensorSpec) -> dict[int, Any]:
    """What torch.export is told of one input: it may relate dimensions, and edgesdk checks what it did."""
    from torch.export import Dim as TorchDim

    return {i: TorchDim.AUTO(min=d.min, max=d.max) for i, d in enumerate(spec.shape or ()) if isinstance(d, Dim)}


@dataclass(frozen=True)
class Fault:
    """A dimension that the program doesn't take in the asked range."""

    axis: Axis
    asked: Dim
    got: str
    expressions: tuple[str, ...]


def read_inputs(program: ExportedProgram, specs: Sequence[TensorSpec]) -> tuple[tuple[TensorSpec, ...], list[Fault]]:
    """The specs with the program's symbols, and the dimensions that came out narrower than asked."""
    values = [n.meta["val"] for n in user_nodes(program)]
    faults: list[Fault] = []
    read = []
    for spec, value in zip(specs, values, strict=True):
        shape: list[Size] = []
        for i, (asked, got) in enumerate(zip(spec.shape or (), value.shape, strict=True)):
            if not isinstance(asked, Dim):
                shape.append(asked)
                continue
            fault = _compare(program, (spec.name, i), asked, got)
            faults += [fault] if fault else []
            shape.append(replace(asked, symbol=str(_expr(got))) if fault is None else asked)
        read.append(replace(spec, shape=tuple(shape)))
    return tuple(read), faults


def _compare(program: ExportedProgram, axis: Axis, asked: Dim, got: Any) -> Fault | None:
    if isinstance(got, int) or _expr(got).is_number:
        return Fault(axis, asked, f"{int(got)}", ())
    expr = _expr(got)
    low, high = bounds(program, expr)
    if not expr.is_Symbol:
        factor = expr.as_coeff_Mul()[0]
        form = f"multiples of {factor}" if factor > 1 else f"sizes of the form {expr}"
        return Fault(axis, asked, form, tuple(map(str, expr.free_symbols)))
    if low > max(asked.min, 2) or high < asked.max:
        return Fault(axis, asked, f"{max(low, asked.min)}..{min(high, asked.max)}", (str(expr),))
    return None


def _expr(size: Any) -> Any:
    return size.node.expr


def bounds(program: ExportedProgram, expr: Any) -> tuple[int, int]:
    """Least and greatest value of an expression over the ranges of its symbols; -1 stands for "no bound"."""
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    ranges = dict(program.range_constraints)
    found = bound_sympy(expr, {s: ranges.get(s, ValueRanges.unknown_int()) for s in expr.free_symbols})
    limit = 2**62
    low = int(found.lower) if found.lower.is_number and found.lower > -limit else 0
    high = int(found.upper) if found.upper.is_number and found.upper < limit else limit
    return low, high


def user_nodes(program: ExportedProgram) -> list[Any]:
    """Placeholders of the user's inputs, in order."""
    by_name = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    return [by_name[name] for name in program.graph_signature.user_inputs if isinstance(name, str) and name in by_name]


def user_outputs(program: ExportedProgram) -> list[Any]:
    """Values (fake tensors) of the user's outputs, in order."""
    from torch.export.graph_signature import OutputKind

    nodes = program.graph.output_node().args[0]
    specs = program.graph_signature.output_specs
    pairs: Any = zip(nodes, specs, strict=True)
    return [getattr(n, "meta", {}).get("val", n) for n, s in pairs if s.kind is OutputKind.USER_OUTPUT]


def pinned(faults: Sequence[Fault], seen: Sequence[tuple[str, str | None, str | None]]) -> UnsupportedError:
    """The refusal of a dynamic dimension: which, to what it was pinned, and by which line or layer (E-02)."""
    fault = faults[0]
    name, i = fault.axis
    line, layer = _cause(fault, seen)
    place = f" because of {line}" if line else ""
    place += f" in {layer}" if layer and not layer.endswith("''") else ""
    why = "A reshape with constant sizes, a stored size or a test of the size in forward() pins it."
    takes, fix = f"the model takes only {fault.got}", None
    if any(word and re.search(r"\b(lstm|gru|rnn)\b", word, re.IGNORECASE) for word in (layer, line)):
        why = "torch unrolls a recurrent layer over its time steps, so their number is fixed in the graph."
        takes = "the number of steps is fixed"  # at whatever the export tried, which the user never wrote
        fix = "Give that dimension one size in --input and pad shorter inputs to it; attention and convolutions take any length."
    return dimension_refused(
        f"'{name}' can't have {fault.asked} as dimension {i}: {takes}{place}.",
        why,
        fix=fix,
        details={
            "input": name,
            "dimension": i,
            "asked": str(fault.asked),
            "takes": fault.got,
            "line": line,
            "layer": layer,
        },
    )


def dimension_refused(
    message: str, why: str, details: Mapping[str, Any] | None = None, fix: str | None = None
) -> UnsupportedError:
    return UnsupportedError(
        "dimension_not_dynamic",
        message,
        why=why,
        fix=fix
        or "Use x.shape or -1 there instead of a number, give dimensions that belong together one range, "
        "or ask for a fixed size in --input.",
        details=details,
    )


def _cause(fault: Fault, seen: Sequence[tuple[str, str | None, str | None]]) -> tuple[str | None, str | None]:
    wanted = ("Eq(", "set_replacement", "Mod(", "<", ">", "Ne(")
    about = [s for s in seen if (s[1] or s[2]) and any(w in s[0] for w in wanted)]
    named = [s for s in about if any(e in s[0] for e in fault.expressions)] or about
    pins = [s for s in named if "Eq(" in s[0] or "set_replacement" in s[0]] or named
    return pins[0][1:] if pins else (None, None)


def widen_to_one(program: ExportedProgram, specs: Sequence[TensorSpec]) -> None:
    """State the asked ranges in the program: torch starts every dynamic size at 2 though 1 was found to work."""
    from torch.utils._sympy.value_ranges import ValueRanges

    constraints = program._range_constraints
    for spec, node in zip(specs, user_nodes(program), strict=True):
        for asked, got in zip(spec.shape or (), node.meta["val"].shape, strict=True):
            if isinstance(got, int) or not _expr(got).is_Symbol:
                continue
            low, high = (asked, asked) if isinstance(asked, int) else (asked.min, asked.max)
            constraints[_expr(got)] = ValueRanges(low, high)
            _bound_above(got.node.shape_env, _expr(got), high)


def _bound_above(env: Any, symbol: Any, high: int) -> None:
    """State an upper bound where torch itself looks, too: ExecuTorch takes the example's size for one that has none."""
    from torch.utils._sympy.value_ranges import ValueRanges

    known = env.var_to_range.get(symbol)
    if known is not None and known.lower <= high < known.upper:
        env.var_to_range[symbol] = ValueRanges(known.lower, high)


def output_shape(program: ExportedProgram, value: Any, name: str) -> tuple[Size, ...]:
    """Sizes of one output; those that depend on inputs become the range they can take.

    Raises:
        UnsupportedError: a size depends on values and has no upper bound.
    """
    return tuple(d if isinstance(d, int) else _output_dim(program, _expr(d), name) for d in value.shape)


def _output_dim(program: ExportedProgram, expr: Any, name: str) -> Size:
    if expr.is_number:
        return int(expr)
    low, high = _exact(program, expr) or bounds(program, expr)
    if high >= 2**31:
        raise UnsupportedError(
            "unbounded_output",
            f"Output '{name}' can grow without bound.",
            why="Its size depends on the values fed in (non-zero, boolean mask, non-maximum suppression), "
            "and memory on a phone is planned ahead.",
            fix="Return a fixed number of rows (torch.topk), or return the values before that step.",
        )
    low = max(low, 0)
    return low if low == high else Dim(low, high, str(expr))


def _exact(program: ExportedProgram, expr: Any) -> tuple[int, int] | None:
    """Bounds by trying all sizes of a single symbol: intervals alone are too wide for ``s - s // 2``."""
    (symbol, *others) = expr.free_symbols
    known = program.range_constraints.get(symbol)
    if others or known is None or not known.upper.is_number or known.upper - known.lower > 4096:
        return None
    values = [int(expr.subs(symbol, n)) for n in range(int(known.lower), int(known.upper) + 1)]
    return min(values), max(values)


def broken_guard(program: ExportedProgram, specs: Sequence[TensorSpec]) -> str | None:
    """A condition on sizes that the export relied on and that fails somewhere inside the asked ranges, or None.

    Size 1 is left out, also of a derived size: torch's own "not 1" conditions only choose strides, and the least sizes
    are compared by running them.
    """
    env = next((d.node.shape_env for n in user_nodes(program) for d in n.meta["val"].shape if not isinstance(d, int)), None)  # fmt: skip
    ranges = {d.symbol: (max(2, d.min), d.max) for _, d in axes(specs)}
    if env is None:
        return None
    for guard in env.guards:
        expr = guard.expr
        if getattr(expr, "is_Relational", False) and expr.rel_op == "!=" and 1 in expr.args:
            continue
        names = sorted(map(str, getattr(expr, "free_symbols", ())))
        if not names or any(n not in ranges for n in names):
            continue
        for point in itertools.product(*(_samples(*ranges[n]) for n in names)):
            values = {s: point[names.index(str(s))] for s in expr.free_symbols}
            if expr.subs(values) == False:  # noqa: E712 - a sympy boolean
                return str(expr)
    return None


def _samples(low: int, high: int) -> list[int]:
    if high - low <= 32:
        return list(range(low, high + 1))
    step = (high - low) // 16
    return sorted({*range(low, high + 1, step), low + 1, high - 1, high})


def taken_sizes(module: nn.Module) -> frozenset[int]:
    """Sizes that occur in weights: an example size equal to one of them could fit by accident."""
    return frozenset(n for t in (*module.parameters(), *module.buffers()) for n in t.shape)
