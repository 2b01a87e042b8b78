"""Operators whose translation to ONNX by torch's exporters computes something else, or fails: written otherwise first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgesdk.errors import UnsupportedError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def own_divisors(program: ExportedProgram) -> ExportedProgram:
    """Average pools with a divisor of their own as plain ones and a factor: torch's exporters leave the divisor out."""
    import math

    import torch

    def divided(pool: Any, sides: int) -> Any:
        def call(
            x: Any, size: Any, stride: Any = (), padding: Any = 0, ceil: bool = False, *more: Any, **named: Any
        ) -> Any:
            divisor = named.get("divisor_override", more[1] if len(more) > 1 else None)
            if divisor is None:
                return NotImplemented
            if ceil:  # windows may reach beyond the padding, and count less there
                raise _no_divisor()
            window = math.prod(size) if len(size) > 1 else size[0] ** sides
            return pool(x, size, stride, padding, False, True) * (window / divisor)

        return call

    aten = torch.ops.aten
    pools = {aten.avg_pool2d.default: divided(aten.avg_pool2d, 2), aten.avg_pool3d.default: divided(aten.avg_pool3d, 3)}
    nodes = [n for n in program.graph.nodes if n.target in pools]
    if all(len(n.args) < 7 and "divisor_override" not in n.kwargs for n in nodes):
        return program
    rewritten: ExportedProgram = program.run_decompositions(pools)
    return rewritten


def _no_divisor() -> UnsupportedError:
    return UnsupportedError(
        "unsupported_op", "ONNX can't take an average pool with ceil_mode and divisor_override.",
        why="Its AveragePool divides by the number of elements in the window.",
        fix="Leave one of the two out, or use --runtime executorch.", details={"operators": ["aten::avg_pool2d"]},
    )  # fmt: skip


def typed_ranges(program: ExportedProgram) -> ExportedProgram:
    """``arange`` of a whole and a broken number says that it makes floats: torch's newer translation counts in integers."""
    import torch

    def count(*ends: Any, dtype: Any = None, **named: Any) -> Any:
        if dtype is not None or not any(isinstance(end, float) for end in ends):
            return NotImplemented
        return torch.ops.aten.arange(*ends, dtype=torch.get_default_dtype(), **named)

    aten = torch.ops.aten.arange
    counts = {aten.default: count, aten.start: count, aten.start_step: count}
    if not any(n.target in counts and any(isinstance(a, float) for a in n.args) for n in program.graph.nodes):
        return program
    typed: ExportedProgram = program.run_decompositions(counts)
    return typed


# -- attention --------------------------------------------------------------------------------------------------------


def four_dimensional(program: ExportedProgram) -> ExportedProgram:
    """Attention gets one dimension of samples and one of heads: torch's newer translation takes four dimensions only."""

    def attend(attention: Any, q: Any, k: Any, v: Any, mask: Any, *more: Any, **named: Any) -> Any:
        if q.dim() == 4:
            return NotImplemented
        if q.dim() < 4:
            missing = (None,) * (4 - q.dim())
            lifted = None if mask is None else mask[(None,) * (4 - mask.dim())]
            return attention(q[missing], k[missing], v[missing], lifted, *more, **named)[(0,) * len(missing)]
        lead = q.shape[:-2]
        if mask is not None and mask.dim() > 3:
            mask = mask.expand(*lead, *mask.shape[-2:]).flatten(0, -4)
        heads = [t.shape[-3] if named.get("enable_gqa") else lead[-1] for t in (q, k, v)]
        flat = (t.expand(*lead[:-1], n, *t.shape[-2:]).flatten(0, -4) for t, n in zip((q, k, v), heads, strict=True))
        return attention(*flat, mask, *more, **named).unflatten(0, lead[:-1])

    queries: list[Any] = [n.args[0] for n in _attentions(program)]
    if all(query.meta["val"].dim() == 4 for query in queries):
        return program
    return _rewritten(program, attend)


def blind_rows(program: ExportedProgram) -> ExportedProgram:
    """Attention whose mask leaves nothing to look at answers zeros, as torch does; its translations give a mean or NaN."""
    import torch

    def attend(attention: Any, q: Any, k: Any, v: Any, mask: Any, *more: Any, **named: Any) -> Any:
        if mask is None:
            return NotImplemented
        seen = mask if mask.dtype == torch.bool else mask != float("-inf")
        return attention(q, k, v, mask, *more, **named).masked_fill(~seen.any(-1, keepdim=True), 0.0)

    if not any(_may_be_blind(program, n) for n in _attentions(program)):
        return program
    return _rewritten(program, attend)


def _attentions(program: ExportedProgram) -> list[torch.fx.Node]:
    import torch

    return [n for n in program.graph.nodes if n.target is torch.ops.aten.scaled_dot_product_attention.default]


def _may_be_blind(program: ExportedProgram, node: torch.fx.Node) -> bool:
    """Whether a row of the mask may forbid everything; of a constant one that is known."""
    import torch

    mask: Any = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
    if mask is None:
        return False
    signature = program.graph_signature
    constant = {**signature.inputs_to_lifted_tensor_constants, **signature.inputs_to_buffers}.get(mask.name)
    known = program.constants.get(constant, program.state_dict.get(constant)) if constant else None
    if not isinstance(known, torch.Tensor) or constant in signature.buffers_to_mutate.values():
        return True
    return not bool((known if known.dtype == torch.bool else known != float("-inf")).any(-1).all())


def _rewritten(program: ExportedProgram, attend: Callable[..., Any]) -> ExportedProgram:
    """Each attention replaced by ``attend(attention, query, key, value, mask, …)``, which may call ``attention`` itself."""
    import torch

    attention: Any = torch.ops.aten.scaled_dot_product_attention
    inside = False

    def call(q: Any, k: Any, v: Any, attn_mask: Any = None, *more: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:
            return NotImplemented
        inside = True
        try:
            return attend(attention, q, k, v, attn_mask, *more, **named)
        finally:
            inside = False

    made: ExportedProgram = program.run_decompositions({attention.default: call})
    return made
