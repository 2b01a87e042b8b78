"""Static int8: measure ranges, then put int8 operators in the place of float ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Signature
from edgesdk.errors import InputError
from edgesdk.quantize._fx import _dynamic, _pack
from edgesdk.quantize._fx._graph import Player, Stopped, Work, is_float, op_name
from edgesdk.quantize._fx._normal import Constants
from edgesdk.quantize._fx._ranges import Histogram, QParams
from edgesdk.quantize._fx._report import Made
from edgesdk.quantize._fx._units import AVERAGES, FIXED, SATURATES, Plan, Unit, passes, plan, settle
from edgesdk.runtimes._ts_tables import source_line

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.fx import Node

    Feed = Mapping[str, np.ndarray]

Ranges = Mapping[str, Histogram]


@dataclass(frozen=True)
class Settings:
    """Of static int8, as ``edgesdk.quantize.static_int8.StaticInt8`` explains them."""

    per_channel: bool = True
    observer: str = "histogram"


def observe(work: Work, signature: Signature, feeds: Iterable[Feed]) -> Ranges:
    """Run the float graph on every feed and keep a histogram of each value that a unit reads or makes."""
    units = plan(work).units.values()
    nodes = {n for u in units for n in (*u.inputs, u.tail)}
    for node in work.graph.nodes:
        if op_name(node.target) in AVERAGES and passes(node):
            nodes |= {node, node.args[0]}
    ranges = {n.name: Histogram() for n in nodes}
    player = Player(work, signature)

    def see(node: Node, value: Any) -> None:
        seen = ranges.get(node.name)
        if seen is not None:
            seen.add(value)

    for number, feed in enumerate(feeds):
        try:
            player.play(feed, see)
        except Stopped as exc:
            raise _failed(number, exc) from exc
    return ranges


def place(
    work: Work,
    ranges: Ranges,
    settings: Settings,
    keep: Collection[str] = (),
    refused: Collection[str] = (),
    cache: dict[Any, _pack.Packed] | None = None,
    force: str | None = None,
) -> Made:
    """Edit ``work``: int8 operators wherever there is a kernel, and conversions where float and int8 meet.

    Args:
        keep: layers that stay float.
        refused: nodes that the engine turned out not to run.
        cache: packed weights from earlier calls with the same ranges.
        force: a layer that becomes int8 even where nothing around it is.

    Raises:
        InputError: a layer saw no data, or data that never changed.
    """
    placer = _Placer(work, ranges, settings, plan(work, keep, refused), cache if cache is not None else {})
    placer.refused, placer.force = frozenset(refused), force
    return placer.run()


class _Placer:
    def __init__(
        self, work: Work, ranges: Ranges, settings: Settings, made: Plan, cache: dict[Any, _pack.Packed]
    ) -> None:
        import torch

        self.q, self.aten = torch.ops.quantized, torch.ops.aten
        self.work, self.ranges, self.settings, self.plan, self.cache = work, ranges, settings, made, cache
        self.values = Constants(work)
        self.made = Made()
        self.why = dict(made.why)
        self.int8: dict[Node, tuple[Node, QParams]] = {}  # what an int8 operator made, by the float value
        self.entered: dict[Node, tuple[Node, QParams]] = {}  # float values that were quantized to be read
        self.finished: set[Node] = set()
        self.refused: frozenset[str] = frozenset()
        self.force: str | None = None
        self.wants: set[Node] = set()

    def run(self) -> Made:
        units = {n: u for n, u in self.plan.units.items() if self._usable(u)}
        kept, self.wants = settle(self.work, units)
        for node in list(self.work.graph.nodes):
            unit = units.get(node)
            if unit is not None and node not in kept and unit.name != self.force:
                unit = None
            if unit is not None and unit.shape is not None:
                self._layer(unit)
            elif unit is not None and self._between(unit):
                self._operator(unit)
            elif self._through(node):
                self._pass(node)
        self._leave()
        for node, unit in self.plan.candidates.items():
            if unit.name in self.why and node not in self.finished:
                self.made.float32(unit.name, unit.op, unit.bytes, self.why[unit.name])
        return self.made

    def _between(self, unit: Unit) -> bool:
        """Whether int8 goes in and is asked for behind; else two conversions would be all that is gained."""
        return unit.name == self.force or (unit.tail in self.wants and all(i in self.int8 for i in unit.inputs))

    # -- checks -------------------------------------------------------------------------------------------------------

    def _usable(self, unit: Unit) -> bool:
        made = self.ranges[unit.tail.name]
        read = [self.ranges[i.name] for i in unit.inputs]
        if not all(r.finite for r in (made, *read)):
            self.why[unit.name] = "some of its values are infinite, not a number or beyond 1e30"
            return False
        if any(r.faint for r in (made, *read)):
            self.why[unit.name] = "some of its values are too small for int8"
            return False
        if unit.shape is None:
            return not made.constant and made.seen > 0
        if not made.seen or any(not r.seen or r.constant for r in read):
            raise _untouched(unit, bool(made.seen))
        if made.constant:
            self.why[unit.name] = "its output never changed on the calibration data"
            return False
        return True

    # -- int8 operators -----------------------------------------------------------------------------------------------

    def _layer(self, unit: Unit) -> None:
        arguments: Any = unit.node.args
        shape = unit.shape or _pack.Geometry(0)
        if not shape.spatial and unit.inputs[0] not in self.int8 and unit.tail not in self.wants:
            self._alone(unit)
            return
        given, made = self._given(unit.inputs[0]), self._made(unit)
        key = (unit.node.name, given, made)  # the engine's object belongs to these scales
        if key not in self.cache:
            weight, bias = self.values.get(arguments[1]), self._bias(arguments)
            self.cache[key] = _pack.pack(weight, bias, shape, given, made, self.settings.per_channel)  # type: ignore[arg-type]
        packed = self.cache[key]
        if packed.why:
            self.why[unit.name] = packed.why
        if packed.value is None:
            return
        x, _ = self._enter(unit.inputs[0])
        target = _pack.call(shape, unit.relu)
        self._made_by(unit, target, (x, self.work.add(packed.value), made.scale, made.zero_point), made)

    def _alone(self, unit: Unit) -> None:
        """A linear layer between float operators: its output needn't pass through 8 bits, nor its input a fixed range.

        As in transformers, where few outliers set the range: all-MiniLM-L6-v2 keeps 17 dB in place of 6.
        """
        arguments: Any = unit.node.args
        weight: Any = self.values.get(arguments[1])
        new, tail = _dynamic.linear(self.work, unit.node, weight, self._bias(arguments), self.settings.per_channel)
        self.finished.add(unit.node)
        self.made.int8(unit.name, unit.op, unit.bytes, f"float on both sides: {_dynamic.ON_THE_FLY}", new, tail)

    def _bias(self, arguments: Any) -> torch.Tensor | None:
        return self.values.get(arguments[2]) if len(arguments) > 2 else None

    def _operator(self, unit: Unit) -> None:
        made = self._made(unit)
        out = (made.scale, made.zero_point)
        inputs = [self._enter(i)[0] for i in unit.inputs]
        arguments: Any = unit.node.args
        targets: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "add": (self.q.add_relu.default if unit.relu else self.q.add.default, (*inputs, *out)),
            "mul": (self.q.mul.default, (*inputs, *out)),
            "cat": (self.q.cat.default, (inputs, *(arguments[1:] or (0,)), *out)),
            "hardswish": (self.q.hardswish.default, (*inputs, *out)),
            "leaky_relu": (self.q.leaky_relu.default, (*inputs, *(arguments[1:] or (0.01,)), False, *out)),
        }
        behind = unit.tail
        if unit.op == "silu":  # no kernel of its own: x × sigmoid(x)
            behind = self.work.insert(unit.tail, self.aten.sigmoid.default, (inputs[0],))
            behind.meta["from"] = unit.node.name
            targets["silu"] = (self.q.mul.default, (inputs[0], behind, *out))
        if unit.op == "batch_norm":
            kernel = self.q.batch_norm2d_relu.default if unit.relu else self.q.batch_norm2d.default
            targets["batch_norm"] = (kernel, (*inputs, *arguments[1:5], arguments[7], *out))
        target, args = targets.get(unit.op) or (unit.node.target, tuple(inputs))
        self._made_by(unit, target, args, made, behind)

    def _made_by(
        self, unit: Unit, target: Any, args: tuple[Any, ...], made: QParams, behind: Node | None = None
    ) -> None:
        node = self.work.insert(behind or unit.tail, target, args)
        node.meta["from"] = unit.node.name
        self.int8[unit.tail] = (node, made)
        self.finished.add(unit.node)
        self.made.int8(unit.name, unit.op, unit.bytes, self.why.get(unit.name), node.name, unit.tail.name)

    def _made(self, unit: Unit) -> QParams:
        if unit.op in FIXED:
            return QParams(*FIXED[unit.op])
        if unit.tail not in self.wants and not unit.relu:  # (a fused clamp ends where the range does)
            return self.ranges[unit.tail.name].roomy()
        return self._measured(unit.tail, 0.0 if unit.relu else None)

    def _measured(self, value: Node, floor: float | None = None) -> QParams:
        names = {op_name(u.target) for u in value.users}
        bounds = [SATURATES[n] for n in names] if names and names <= set(SATURATES) else []
        low = min((b[0] for b in bounds), default=float("-inf"))
        high = max((b[1] for b in bounds), default=float("inf"))
        return self.ranges[value.name].params(
            self.settings.observer, max(low, floor) if floor is not None else low, high
        )

    def _given(self, value: Node) -> QParams:
        known = self.int8.get(value) or self.entered.get(value)
        return known[1] if known else self._measured(value)

    def _enter(self, value: Node) -> tuple[Node, QParams]:
        """The int8 form of a value that a layer reads."""
        import torch

        known = self.int8.get(value) or self.entered.get(value)
        if known:
            return known
        params = self._measured(value)
        args = (value, params.scale, params.zero_point, torch.quint8)
        node = self.work.insert(value, self.aten.quantize_per_tensor.default, args)
        self.entered[value] = (node, params)
        return node, params

    # -- operators that int8 goes through -----------------------------------------------------------------------------

    def _through(self, node: Node) -> bool:
        source: Any = node.args[0] if node.args else None
        if not passes(node) or node.name in self.refused or source not in self.int8 or node in self.int8:
            return False
        name = op_name(node.target)
        if name == "getitem":
            return True
        if name in AVERAGES and not self._as_wide(source, node):
            return False
        return node in self.wants or any(u in self.wants for u in node.users if op_name(u.target) == "getitem")

    def _as_wide(self, source: Node, node: Node) -> bool:
        """Whether averages use enough of the scale that they would share: at most one bit is lost."""
        before, after = self.ranges[source.name], self.ranges[node.name]
        if not (before.finite and after.finite and before.seen and after.seen):
            return False
        return 2 * (after.high - min(after.low, 0)) >= before.high - min(before.low, 0)

    def _pass(self, node: Node) -> None:
        source: Any = node.args[0]
        inner, params = self.int8[source]
        made = self.work.insert(node, node.target, (inner, *node.args[1:]), node.kwargs)
        made.meta["from"] = node.name
        self.int8[node] = (made, params)

    def _leave(self) -> None:
        """Whoever still reads a float value of an int8 operator gets it back from int8."""
        ours = {n for n, _ in self.int8.values()}
        replaced = set(self.int8)
        for value, (node, _) in self.int8.items():
            if not is_float(value):
                continue  # a list of tensors; its items leave one by one
            readers = [u for u in value.users if u not in ours and u not in replaced]
            if not readers:
                continue
            made = self.work.insert(node, self.aten.dequantize.self, (node,))
            made.meta.pop("from", None)
            for reader in readers:
                reader.replace_input_with(value, made)
        self.work.clean()


def _failed(number: int, exc: Stopped) -> InputError:
    return InputError(
        "calibration_failed", f"The model failed on calibration sample {number}, in {exc.node.name}"
        f"{source_line(exc.node)}: {str(exc.cause).strip().splitlines()[0][:200]}",
        why="The sample has a size or values that the model doesn't take.", fix="Leave it out, or correct it.",
    )  # fmt: skip


def _untouched(unit: Unit, changed: bool) -> InputError:
    what = "always the same value" if changed else "no data"
    return InputError(
        "observer_untouched", f"Layer '{unit.name}' ({unit.op}) saw {what} during calibration.",
        why="Its range can't be known: the samples are blank, all alike, or never reach this layer.",
        fix="Give --calibration samples like those of real use, at least 32 different ones.",
        details={"layer": unit.name, "op": unit.op},
    )  # fmt: skip
