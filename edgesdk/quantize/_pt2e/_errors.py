"""How much noise each quantized layer makes, by running one graph in three ways: float, quantized, one layer quantized.

In a converted graph every quantization is a pair of nodes around a value. Passing the value by the pair gives the float
network; passing by all pairs but those of one layer gives the network in which only that layer is quantized. Samples are
taken one after the other, and only sums of squares are kept.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import LayerError, Model
from edgesdk.quantize._pt2e import _graph as graphs
from edgesdk.quantize._pt2e._fold import is_quantize
from edgesdk.quantize._pt2e._sites import Site, constants

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

MOST_ALONE = 64
"""Layers of which the effect on the outputs is measured; each costs a part of a run of the network per sample."""


@dataclass
class Power:
    """Sums of squares of a signal and of the error on it."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, wanted: Any, got: Any) -> None:
        wanted, got = wanted.double(), got.double()
        self.signal += float((wanted * wanted).sum())
        self.noise += float(((wanted - got) ** 2).sum())

    @property
    def db(self) -> float | None:
        """Ratio in dB; None when there is no error, -inf when there is nothing but error."""
        if self.noise == 0.0:
            return None
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


@dataclass
class Measured:
    """Sums for one layer; a weight that several operators read (an unrolled LSTM's) is one layer of several sites."""

    sites: list[Site]
    own: Power = field(default_factory=Power)
    outputs: list[Power] = field(default_factory=list)

    def error(self) -> LayerError:
        worst = [power.db for power in self.outputs if power.db is not None]
        first = self.sites[0]
        return LayerError(first.name, first.op, self.own.db, min(worst) if worst else None)


def measure(
    module: GraphModule,
    sites: Sequence[Site],
    weights: Mapping[str, Any],
    calls: Callable[[], Iterator[list[Any]]],
    alone: bool,
) -> tuple[LayerError, ...]:
    """Errors of the quantized layers, those that harm the outputs most first.

    Args:
        module: the converted graph.
        weights: float weights of the layers, by the operator's node name.
        calls: gives the flat arguments of calls, the same each time.
        alone: whether each layer is also quantized by itself.
    """
    import torch

    plan = _Plan(module, weights)
    found = _grouped([site for site in sites if plan.knows(site)])
    with torch.no_grad():
        for leaves in calls():
            _own_errors(plan, found, leaves)
        found.sort(key=lambda m: (_finite(m.own.db), m.sites[0].name))
        if alone and not plan.writes:
            for leaves in calls():
                _errors_alone(plan, found[:MOST_ALONE], leaves)
    return tuple(sorted((m.error() for m in found), key=_harm))


def _harm(error: LayerError) -> tuple[float, float, str]:
    """By the effect on the outputs where it was measured; a layer's own noise says little when one channel drowns others."""
    own = _finite(error.snr_db)
    return (own if error.alone_db is None else error.alone_db, own, error.name)


def _finite(ratio: float | None) -> float:
    return math.inf if ratio is None else ratio


def _grouped(sites: Sequence[Site]) -> list[Measured]:
    found: dict[str, Measured] = {}
    for site in sites:
        found.setdefault(site.name, Measured([])).sites.append(site)
    return list(found.values())


def _own_errors(plan: _Plan, found: Sequence[Measured], leaves: list[Any]) -> None:
    owners: dict[Node, list[Measured]] = {}
    for measured in found:
        for site in measured.sites:
            owners.setdefault(plan.output_of(site), []).append(measured)
    wanted = plan.run(leaves, frozenset(), set(owners))

    def compare(node: Node, value: Any) -> None:
        for measured in owners.get(node, ()):
            measured.own.add(wanted[node], value)
        wanted.pop(node, None)

    plan.run(leaves, None, set(), compare)


def _errors_alone(plan: _Plan, found: Sequence[Measured], leaves: list[Any]) -> None:
    base = plan.run(leaves, frozenset(), None)
    wanted = plan.outputs(base)
    for measured in found:
        active = frozenset(node for site in measured.sites for node in plan.active_of(site))
        got = plan.outputs(plan.rerun(base, active))
        measured.outputs = measured.outputs or [Power() for _ in wanted]
        for power, a, b in zip(measured.outputs, wanted, got, strict=True):
            power.add(a, b)


class _Plan:
    """A converted graph, its pairs, and who reads what for the last time."""

    def __init__(self, module: GraphModule, weights: Mapping[str, Any]) -> None:
        from edgesdk.runtimes import _ts_alias

        self.nodes = _when_needed(module)
        self.by_name = {node.name: node for node in self.nodes}
        self._done_after = _last_readers(self.nodes)
        self.writes = bool(_ts_alias.mutated(module.graph))
        self._module = module
        self._weights: dict[Node, Any] = {}
        for name, value in weights.items():
            for source in self.by_name[name].all_input_nodes if name in self.by_name else ():
                if _is_weight(source):
                    self._weights[source] = value
        self._state = {name: graphs.attribute(module, name).clone() for name in graphs.written_buffers(module)}
        self._centred = {node for node in self.nodes if _is_centred(module, node)}

    def knows(self, site: Site) -> bool:
        return site.last.name in self.by_name

    def output_of(self, site: Site) -> Node:
        """The node that holds the layer's result as those behind it see it."""
        last: Any = self.by_name[site.last.name]
        behind = [dq for q in last.users if is_quantize(q) for dq in q.users if _is_pair(dq)]
        found: Node = behind[0] if behind else last
        return found

    def active_of(self, site: Site) -> frozenset[Node]:
        """The pairs that belong to the layer."""
        node, last = self.by_name[site.node.name], self.by_name[site.last.name]
        before = {n for n in node.all_input_nodes if _is_pair(n) or n in self._weights}
        behind = {dq for q in last.users if is_quantize(q) for dq in q.users if _is_pair(dq)}
        return frozenset(before | behind)

    def run(
        self,
        leaves: list[Any],
        active: frozenset[Node] | None,
        watched: set[Node] | None,
        see: Callable[[Node, Any], None] = lambda node, value: None,
    ) -> dict[Node, Any]:
        """Values of the watched nodes (all when None) with the pairs of ``active`` at work (all when None); ``see`` is called
        with each value when it is there."""
        given = iter(leaves)
        values: dict[Node, Any] = {}
        for node in self.nodes:
            values[node] = next(given) if node.op == "placeholder" else self._value(node, values, active)
            see(node, values[node])
            if watched is None:
                continue
            for source in self._done_after[node]:
                if source not in watched:
                    values.pop(source, None)
        for name, value in self._state.items():
            graphs.attribute(self._module, name).copy_(value)
        return values

    def rerun(self, base: dict[Node, Any], active: frozenset[Node]) -> Mapping[Node, Any]:
        """The outputs of :meth:`run`, computing only what the pairs of ``active`` change."""
        changed: dict[Node, Any] = {}
        values = ChainMap(changed, base)
        for node in self.nodes:
            moved = any(source in changed for source in node.all_input_nodes)
            if node in active or moved:
                changed[node] = self._value(node, values, active)
            for source in self._done_after[node]:
                changed.pop(source, None)
        return values

    def outputs(self, values: Mapping[Node, Any]) -> list[Any]:
        import torch

        flat = torch.utils._pytree.tree_leaves(values[self.nodes[-1]])
        return [v for v in flat if isinstance(v, torch.Tensor) and v.is_floating_point()]

    def _value(self, node: Any, values: Any, active: frozenset[Node] | None) -> Any:
        import torch

        if active is not None:
            if is_quantize(node) and all(_is_pair(user) for user in node.users):
                return values[node.args[0]]  # its partner does both steps or none
            if _is_pair(node):
                return self._both(node, values) if node in active else values[node.args[0]]
            if node in self._weights and node not in active:
                return self._weights[node]
        if node.op == "get_attr":
            return graphs.attribute(self._module, str(node.target))
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
        if node.op == "output":
            return args[0]
        if node in self._centred:
            args = (*args[:2], None, *args[3:])
        target: Any = node.target
        return target(*args, **kwargs) if node.op == "call_function" else self._module.get_submodule(target)(*args)

    def _both(self, node: Any, values: Any) -> Any:
        import torch

        first: Any = node.args[0]
        steps: Any = torch.fx.node.map_arg((first.args[1:], node.args[1:]), lambda n: values[n])
        whole = first.target(values[first], *steps[0])
        return node.target(whole, *steps[1])


def _when_needed(module: GraphModule) -> list[Node]:
    """The nodes in an order of running, constants just before the first that reads them.

    In the graph they come first: a run would hold all weights dequantized.
    """
    fixed, ordered = constants(module), dict[Any, None]()

    def place(node: Node) -> None:
        for source in node.all_input_nodes:
            if source in fixed and source not in ordered:
                place(source)
        ordered[node] = None

    for node in module.graph.nodes:
        if node not in fixed:
            place(node)
    return list(ordered)


def _last_readers(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """For each node, those that nobody reads after it."""
    last: dict[Node, Node] = {}
    for node in nodes:
        last.update(dict.fromkeys(node.all_input_nodes, node))
    found: dict[Node, list[Node]] = {node: [] for node in nodes}
    for source, reader in last.items():
        found[reader].append(source)
    return found


def _name(node: Any) -> str:
    return str(node.target) if node.op == "call_function" else ""


def _is_dequantize(node: Any) -> bool:
    return _name(node).startswith(("quantized_decomposed.dequantize_per_", "torchao.dequantize_affine"))


def _is_pair(node: Any) -> bool:
    """The second node of a quantization of an activation."""
    return _is_dequantize(node) and is_quantize(node.args[0])


def _is_centred(module: GraphModule, node: Any) -> bool:
    """A weight with scales for each channel and zero points of 0, with which PyTorch computes in 64 bits."""
    if not _name(node).startswith("quantized_decomposed.dequantize_per_channel.") or not _is_weight(node):
        return False
    zero = node.args[2]
    return getattr(zero, "op", "") == "get_attr" and not graphs.attribute(module, str(zero.target)).any()


def _is_weight(node: Any) -> bool:
    """The dequantization of a stored weight."""
    return _is_dequantize(node) and node.args[0].op == "get_attr"


def layer_errors(model: Model, config: Any, samples: int, alone: bool) -> tuple[LayerError, ...]:
    """See ``EdgeRuntime.layer_errors``."""
    from edgesdk.data import Store
    from edgesdk.quantize._pt2e._apply import convert

    if config.calibration is None or config.quantization in ("none", "fp16") or model.program is None:
        return ()
    made = convert(model, config, keep_weights=True)
    store = Store(config.calibration)

    def calls() -> Iterator[list[Any]]:
        return (graphs.leaves_of(model, sample.feed) for sample in store.first(samples))

    with graphs.quiet():
        return measure(made.module, made.record.quantized, made.weights, calls, alone)
