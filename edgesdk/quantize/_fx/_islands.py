"""Operators without int8 kernels that stand between int8 layers: each costs two conversions (Q-02, Q-17)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edgesdk.artifacts import Warn
from edgesdk.quantize._fx._graph import Work, is_float, op_name

if TYPE_CHECKING:
    from torch.fx import Node

_FREE = frozenset({
    "dequantize", "quantize_per_tensor", "getitem", "reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze",
    "slice", "select", "split", "split_with_sizes", "chunk", "unbind", "contiguous", "clone", "expand", "sym_size", "copy",
})  # fmt: skip


def warn(work: Work) -> tuple[Warn, ...]:
    """One warning that counts them, or none."""
    counted = Counter(op_name(n.target) for n in islands(work))
    if not counted:
        return ()
    named = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in sorted(counted.items()))
    return (
        Warn("float_islands", f"Between int8 layers these are computed in float, with a conversion before and after: {named}."),
    )  # fmt: skip


def islands(work: Work) -> list[Node]:
    """Float operators that read, perhaps through others, an int8 result and feed an int8 operator."""
    behind: set[Node] = set()
    for node in work.graph.nodes:
        leaves = op_name(node.target) == "dequantize" or any(i in behind for i in node.all_input_nodes)
        if leaves and not _int8(node):
            behind.add(node)
    before: set[Node] = set()
    for node in reversed(list(work.graph.nodes)):
        enters = any(op_name(u.target) == "quantize_per_tensor" or u in before for u in node.users)
        if enters and not _int8(node):
            before.add(node)
    return [
        n for n in work.graph.nodes if n in behind and n in before and op_name(n.target) not in _FREE and is_float(n)
    ]


def _int8(node: Node) -> bool:
    return str(node.target).startswith("quantized.")
