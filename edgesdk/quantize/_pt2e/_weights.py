"""Weight-only schemes: small weights in the file, for layers that XNNPACK or ExecuTorch's own kernels can run from them.

What really happens, found by running the engine (executorch 1.5.1):

* int8 linear: XNNPACK's ``f32-qc8w`` kernels, float inputs and int8 weights with a scale for each output. They multiply the
  bias by the weight's scale, so the bias becomes an addition of its own.
* int4 linear: XNNPACK has no kernel for float inputs and int4 weights in groups. Inputs are quantized to int8 for each row
  on the fly (``qd8-f32-qb4w``, torchao's "8da4w"); scales are kept in bfloat16. A layer whose inputs don't divide into
  groups gets int8 weights: with one int4 scale for each output half of the accuracy would go.
* embeddings: ``quantized_decomposed::embedding_byte``, int8 with a scale for each row, in both schemes.
* convolutions: no kernel takes int8 weights with float inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._pt2e._annotate import Annotated
from edgesdk.quantize._pt2e._finite import BEHIND, behind_broken, unfit
from edgesdk.quantize._pt2e._graph import attribute, operators
from edgesdk.quantize._pt2e._sites import (
    CONVS,
    ELEMENTWISE,
    EMBEDDING,
    LINEAR,
    TRANSPOSED,
    Site,
    constants,
    find_sites,
    short,
)

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Node

_INT8, _INT4 = 127, 7


@dataclass(frozen=True)
class Stored:
    """A quantized weight in the graph: the nodes that read the integers, the scales and the zero points."""

    whole: Node
    scale: Node
    zero: Node
    group: int | None


@dataclass
class Packed:
    """What was done: the record of layers, float weights by node names, and the precision of each layer."""

    record: Annotated = field(default_factory=Annotated)
    weights: dict[str, Any] = field(default_factory=dict)
    precisions: dict[str, str] = field(default_factory=dict)


def pack(
    module: GraphModule,
    bits: int,
    group: int,
    keep: Collection[str],
    refused: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
) -> Packed:
    """Replace the weights in place. Embeddings become lookups of dequantized tables; see :func:`embed`.

    Args:
        only: kinds of operators to look at; None means all.
    """
    return _Packer(module, bits, group, keep, refused or {}).run(only)


class _Packer:
    def __init__(
        self, module: GraphModule, bits: int, group: int, keep: Collection[str], refused: Mapping[str, str]
    ) -> None:
        self._module, self._bits, self._group, self._keep, self._refused = module, bits, group, keep, refused
        self._fixed = constants(module)
        self._broken = behind_broken(module, self._fixed) if bits == 4 else set()
        self._done = Packed()
        self._stored: dict[tuple[str, int, int | None], Stored] = {}

    def run(self, only: Collection[str] | None) -> Packed:
        record = self._done.record
        record.sites = [s for s in find_sites(self._module) if only is None or s.kind in only]
        for site in record.sites:
            reason = self._reason(site)
            if reason is None:
                self._replace(site)
                record.quantized.append(site)
            elif site.kind not in ELEMENTWISE or site.bytes:
                record.why.setdefault(site.name, reason)
        self._module.graph.eliminate_dead_code()
        self._module.recompile()
        return self._done

    def _reason(self, site: Site) -> str | None:
        if site.name in self._keep:
            return "restored to float: quantized it costs too much accuracy"
        if site.name in self._refused:
            return self._refused[site.name]
        if site.kind in CONVS | TRANSPOSED:
            return "no kernel takes small weights with float inputs in convolutions; static-int8 takes them"
        if site.kind not in LINEAR | EMBEDDING or site.kind == "embedding_bag.padding_idx":
            return f"there is no kernel for {site.op} with small weights"
        if site.weight is None:
            return "its weight is computed from the input"
        if reason := unfit(self._module, site, self._fixed, bias=False):
            return reason
        return BEHIND if self._four(site) and site.node in self._broken else None

    def _four(self, site: Site) -> bool:
        """Whether int4 fits; inputs are then quantized on the fly."""
        if self._bits != 4 or site.kind not in LINEAR:
            return False
        return _value(self._module, site.weight).shape[1] % self._group == 0  # type: ignore[arg-type]

    def _replace(self, site: Site) -> None:
        weight: Any = site.weight
        value = _value(self._module, weight)
        self._done.weights[site.node.name] = value
        four = self._four(site)
        stored = self._store(site, value, _INT4 if four else _INT8, self._group if four else None)
        self._done.precisions.setdefault(site.name, "int4" if four else "int8")
        with self._module.graph.inserting_before(site.node):
            back = self._dequantized(stored)
            if site.kind in LINEAR:
                self._linear(site, back, stored.group)
            else:
                site.node.replace_input_with(weight, back)
        if self._bits == 4:
            self._done.record.why.setdefault(site.name, self._remark(site, four))

    def _remark(self, site: Site, four: bool) -> str:
        if four:
            return (
                "its inputs are quantized to int8 on the fly; no kernel takes int4 weights in groups with float inputs"
            )
        if site.kind in LINEAR:
            return f"int8, since its inputs don't divide into groups of {self._group}"
        return "int8, since a lookup averages no errors out"

    def _store(self, site: Site, value: torch.Tensor, most: int, group: int | None) -> Stored:
        """Quantize a weight once, however many layers read it."""
        weight: Any = site.weight
        key = (_expression(weight), most, group)
        if key not in self._stored:
            whole, scale = _quantized(value, most, group)
            zero = _zeros(scale)
            # Before everything else: a layer further up may read the same weight later on.
            with self._module.graph.inserting_before(next(iter(self._module.graph.nodes))):
                nodes = [
                    self._attribute(f"{site.name}.{word}.{most}", tensor)
                    for word, tensor in (("whole", whole), ("scale", scale), ("zero", zero))
                ]
            self._stored[key] = Stored(nodes[0], nodes[1], nodes[2], group)
        return self._stored[key]

    def _attribute(self, name: str, value: torch.Tensor) -> Node:
        leaf = "packed_" + name.replace(".", "_")
        while hasattr(self._module, leaf):  # block.0 and block_0, or two slices of one weight
            leaf += "_"
        self._module.register_buffer(leaf, value)
        node: Node = self._module.graph.get_attr(leaf)
        node.meta["val"] = value
        return node

    def _dequantized(self, stored: Stored) -> Node:
        import torch

        ops, graph = operators(), self._module.graph
        head = (stored.whole, stored.scale, stored.zero)
        if stored.group is not None:
            args: tuple[Any, ...] = (*head, -8, 7, torch.int8, stored.group, torch.float32)
            return graph.call_function(ops.dequantize_per_channel_group.default, args)
        return graph.call_function(ops.dequantize_per_channel.default, (*head, 0, -127, 127, torch.int8))

    def _linear(self, site: Site, weight: Node, group: int | None) -> None:
        """The bias is added afterwards; see the module's text."""
        import torch

        node, graph = site.node, self._module.graph
        source, bias = node.args[0], node.args[2] if len(node.args) > 2 else None
        node.args = (source if group is None else self._rounded(source), weight)
        if bias is None:
            return
        with graph.inserting_after(node):
            added = graph.call_function(torch.ops.aten.add.Tensor)
        node.replace_all_uses_with(added)
        added.args = (node, bias)
        added.meta = {k: v for k, v in node.meta.items() if k in ("val", "stack_trace", "nn_module_stack")}

    def _rounded(self, source: Any) -> Node:
        """int8 and back with a scale and zero point for each row, found at run time."""
        import torch

        ops, graph = operators(), self._module.graph
        chosen = graph.call_function(ops.choose_qparams_per_token_asymmetric.default, (source, torch.int8))
        pair = [graph.call_function(_getitem(), (chosen, i)) for i in range(2)]
        limits = (-128, 127, torch.int8)
        whole = graph.call_function(ops.quantize_per_token.default, (source, *pair, *limits))
        return graph.call_function(ops.dequantize_per_token.default, (whole, *pair, *limits, torch.float32))


def embed(module: GraphModule) -> None:
    """Lookups in dequantized tables become lookups in int8 tables."""
    import executorch.exir.passes._quant_patterns_and_replacements  # noqa: F401 - defines the operator

    for node in list(module.graph.nodes):
        table: Any = node.args[0] if short(node) == "embedding.default" else None
        if table is None or "dequantize_per_channel" not in str(table.target):
            continue
        whole, scale = table.args[:2]
        args = (whole, scale, None, -128, 127, node.args[1])
        with module.graph.inserting_before(node):
            new = module.graph.call_function(operators().embedding_byte.default, args)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()


def without_unread(module: GraphModule) -> None:
    """Drop weights that no node reads any more: an export would carry them along."""
    read = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    held: Mapping[str, Any] = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    for name in held:
        if name not in read:
            owner, _, leaf = name.rpartition(".")
            delattr(module.get_submodule(owner), leaf)


def _getitem() -> Any:
    import operator

    return operator.getitem


def _expression(node: Node) -> str:
    """What a constant node computes, in words: equal for equal weights, however many nodes read them."""
    if node.op == "get_attr":
        return str(node.target)
    import torch

    def told(source: Node) -> Any:
        return _expression(source)

    return f"{node.target}{torch.fx.node.map_arg((node.args, node.kwargs), told)}"


def _value(module: GraphModule, node: Node) -> torch.Tensor:
    """A weight, also one that is computed from others (``weight.t()``)."""
    import torch

    if node.op == "get_attr":
        held: torch.Tensor = attribute(module, str(node.target)).detach()
        return held
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: _value(module, n))
    target: Any = node.target
    with torch.no_grad():
        computed: torch.Tensor = target(*args, **kwargs)
    return computed


def _quantized(value: torch.Tensor, most: int, group: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric integers and the scales of rows, or of groups within rows."""
    import torch

    parts = value.float() if group is None else value.float().reshape(value.shape[0], -1, group)
    scale = (parts.abs().amax(-1) / most).clamp_min(torch.finfo(torch.float32).tiny * 2**24)
    if group is not None:
        scale = scale.bfloat16().float()  # as XNNPACK keeps them; rounding to what they really are costs less
    whole = torch.clamp((parts / scale.unsqueeze(-1)).round(), -most - (most == _INT4), most).to(torch.int8)
    return whole.reshape(value.shape), scale


def _zeros(scale: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.zeros(scale.shape, dtype=torch.int64)
