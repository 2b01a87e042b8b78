"""Weights stored as int8 and turned into float where they are used: a quarter of the size, the arithmetic as it was.

Written with plain tensor operators (``to``, ``mul``, ``embedding``), which every PyTorch Mobile has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._fx._finite import INFINITE, finite
from edgesdk.quantize._fx._graph import Work, op_name
from edgesdk.quantize._fx._normal import WEIGHTED, Constants, layer_name
from edgesdk.quantize._fx._report import Made

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

SMALL = 256
"""Tensors with fewer elements stay float32: scales and operators would take more room than is saved."""

_LOOKED_UP = "rows are looked up, so only their storage is int8"


def store(work: Work, keep: Collection[str], made: Made) -> None:
    """Store every constant float matrix of ``work`` as int8, except of layers named in ``keep``."""
    values = Constants(work)
    for node in list(work.graph.nodes):
        if node.op not in ("placeholder", "get_attr") or not node.users:
            continue
        tensor = values.get(node)
        if tensor is None or not tensor.is_floating_point() or tensor.is_quantized or tensor.dim() < 2:
            continue
        rows = [u for u in node.users if _looks_up(u, node)]
        others = [u for u in node.users if u not in rows]
        name, op, size = _described(work, node, others or rows, tensor)
        if name in keep:
            made.kept(name, op, size)
            continue
        if tensor.numel() < SMALL:
            if op in WEIGHTED:
                made.float32(name, op, size, "so small that scales would take the room that is saved")
            continue
        if not finite(tensor):
            made.float32(name, op, size, INFINITE)
            continue
        small, scales = _rows(tensor, _axis(others))
        stored = work.add(small)
        shown = [_look_up(work, user, stored, scales) for user in rows]
        if others:
            _spread(work, node, others, stored, scales)
        first = (others or rows)[0].name
        why, result = (None, first) if others else (_LOOKED_UP, shown[0])
        made.int8(name, op, size, why, result, first)


def store_embeddings(work: Work, keep: Collection[str], made: Made) -> None:
    """Store tables of embeddings as int8 rows: no scheme multiplies them, all profit from the size."""
    values = Constants(work)
    for node in list(work.graph.nodes):
        if node.op != "call_function" or op_name(node.target) != "embedding" or "layer" not in node.meta:
            continue
        name, table = node.meta["layer"], values.get(node.args[0])
        if table is None or not _looks_up(node, node.args[0]):
            continue
        if name in keep:
            made.kept(name, "embedding", table.numel() * 4)
        elif not finite(table):
            made.float32(name, "embedding", table.numel() * 4, INFINITE)
        elif table.numel() >= SMALL:
            small, scales = _rows(table, 0)
            shown = _look_up(work, node, work.add(small), scales)
            made.int8(name, "embedding", table.numel() * 4, _LOOKED_UP, shown, node.name)


def _described(work: Work, node: Node, users: list[Node], tensor: torch.Tensor) -> tuple[str, str, int]:
    """Name, operator and bytes of the layer that a weight belongs to."""
    named = [u for u in users if "layer" in u.meta]
    if named:
        return str(named[0].meta["layer"]), op_name(named[0].target), named[0].meta["bytes"]
    targets = {n: str(spec.target) for n, spec in work.placeholders()}
    target = targets.get(node) or str(node.meta.get("target", node.name))
    return layer_name(target), op_name(users[0].target), tensor.numel() * 4


def _looks_up(user: Node, table: Any) -> bool:
    return op_name(user.target) == "embedding" and user.args[0] is table and len(user.args) < 4 and not user.kwargs


def _axis(users: list[Node]) -> int:
    """The dimension of the output channels."""
    names = {op_name(u.target) for u in users}
    return 1 if names and all(n.startswith("conv_transpose") for n in names) else 0


def _rows(tensor: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 values and the scales of each slice along ``axis``, in a shape that broadcasts."""
    import torch

    others = [d for d in range(tensor.dim()) if d != axis]
    scales = (tensor.abs().amax(others, keepdim=True) / 127).clamp_min(torch.finfo(torch.float32).tiny)
    return torch.clamp(torch.round(tensor / scales), -127, 127).to(torch.int8), scales


def _look_up(work: Work, user: Node, stored: Node, scales: torch.Tensor) -> str:
    import torch

    aten = torch.ops.aten
    index: Any = user.args[1]
    scale_rows = work.add(scales)
    product = work.insert(user, aten.mul.Tensor, ())
    user.replace_all_uses_with(product)
    rows = work.insert(user, aten.embedding.default, (scale_rows, index))
    wide = work.insert(user, aten.to.dtype, (user, scales.dtype))
    user.args = (stored, index)
    product.args = (wide, rows)
    for made in (product, rows, wide):
        made.meta.pop("layer", None)
    return product.name


def _spread(work: Work, node: Node, users: list[Node], stored: Node, scales: torch.Tensor) -> None:
    """Float weights again, right in front of the first operator that reads them."""
    import torch

    aten = torch.ops.aten
    order = {n: i for i, n in enumerate(work.graph.nodes)}
    first = min(users, key=order.__getitem__)
    factor = work.add(scales)
    with work.graph.inserting_before(first):
        wide = work.graph.call_function(aten.to.dtype, (stored, scales.dtype))
        product = work.graph.call_function(aten.mul.Tensor, (wide, factor))
    for made in (wide, product):
        made.meta = {"val": node.meta.get("val")}
    for user in users:
        user.replace_input_with(node, product)
