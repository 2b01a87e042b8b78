"""Which whole numbers may be fed: found by following integer inputs to the tables they index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import DTYPES, TensorSpec
from edgesdk.importing._dynamic import bounds, user_nodes

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

Range = tuple[int, int]

FLAG: Range = (0, 2)
_UNKNOWN: Range = (0, 2)
"""Fed where no table was found: 0 and 1 are the values most arithmetic, masks and lengths take."""

# Values pass these unchanged.
_SAME = frozenset(
    [
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "permute",
        "transpose",
        "t",
        "expand",
        "contiguous",
        "clone",
        "alias",
        "detach",
        "slice",
        "select",
        "narrow",
        "flatten",
        "unflatten",
        "cat",
        "stack",
        "repeat",
        "movedim",
        "to",
        "_to_copy",
        "type_as",
        "lift_fresh_copy",
        "lift_fresh",
        "alias_copy",
        "view_copy",
        "expand_copy",
        "unsqueeze_copy",
        "slice_copy",
        "select_copy",
        "split",
        "chunk",
        "unbind",
        "pad",
        "constant_pad_nd",
        "roll",
        "flip",
        "index_put",
        "_assert_tensor_metadata",
    ]
)
# (operator, argument holding the indices, argument holding the table, argument holding the dimension or its number)
_TABLES: Mapping[str, tuple[int, int, int | None]] = {
    "embedding": (1, 0, None),
    "_embedding_bag": (1, 0, None),
    "embedding_bag": (1, 0, None),
    "index_select": (2, 0, 1),
    "gather": (2, 0, 1),
    "take_along_dim": (1, 0, 2),
}
_COMPARE = frozenset(
    [
        "eq",
        "ne",
        "gt",
        "ge",
        "lt",
        "le",
        "where",
        "masked_fill",
        "logical_and",
        "logical_not",
        "logical_or",
        "bitwise_and",
    ]
)


def int_ranges(program: ExportedProgram, specs: tuple[TensorSpec, ...]) -> dict[str, Range]:
    """Half-open ranges of safe values for every integer input, by name."""
    found = {}
    for spec, node in zip(specs, user_nodes(program), strict=True):
        if spec.dtype.startswith(("int", "uint")):
            found[spec.name] = _range_of(program, node, spec)
    return found


def _range_of(program: ExportedProgram, node: Node, spec: TensorSpec) -> Range:
    tables = list(_tables(program, node, 0, set()))
    if tables:
        low, high = max(t[0] for t in tables), min(t[1] for t in tables)
        return (low, high) if low < high else FLAG
    if spec.dtype == "uint8":
        return (0, 256)
    if spec.dtype == "int8":
        return (-128, 128)
    if "mask" in spec.name or _only_compared(node):
        return FLAG
    return _UNKNOWN if DTYPES[spec.dtype] >= 4 else (0, 100)


def _tables(program: ExportedProgram, node: Node, shift: int, seen: set[Node]) -> Iterator[Range]:
    """Ranges imposed by the tables that ``node + shift`` indexes, directly or through views and casts."""
    if node in seen:
        return
    seen.add(node)
    for user in node.users:
        name = _name(user)
        if name in _SAME:
            yield from _tables(program, user, shift, seen)
        elif name in ("add", "sub") and isinstance(user.args[1], int) and user.args[0] is node:
            step = user.args[1] if name == "add" else -user.args[1]
            yield from _tables(program, user, shift + step, seen)
        elif str(user.target) == "<built-in function getitem>":
            yield from _tables(program, user, shift, seen)
        else:
            rows = _rows(program, user, node, name)
            if rows is not None:
                yield (max(0, -shift), max(0, rows - shift))


def _rows(program: ExportedProgram, user: Node, node: Node, name: str) -> int | None:
    """Number of rows of the table that this operator looks ``node`` up in; None when it does no look-up."""
    if name == "one_hot":
        count = user.args[1] if len(user.args) > 1 else -1
        return int(count) if isinstance(count, int) and count > 0 else None
    if name == "index":
        indices: Any = user.args[1]
        return next((_size(program, user.args[0], i) for i, v in enumerate(indices) if v is node), None)
    if name in _TABLES:
        at, table, dim = _TABLES[name]
        if at >= len(user.args) or user.args[at] is not node:
            return None
        axis: Any = 0 if dim is None or dim >= len(user.args) else user.args[dim]
        return _size(program, user.args[table], axis)
    return None


def _size(program: ExportedProgram, table: Any, axis: int) -> int:
    size = table.meta["val"].shape[axis]
    return size if isinstance(size, int) else bounds(program, size.node.expr)[0]


def _only_compared(node: Node) -> bool:
    names = {_name(user) for user in node.users}
    return bool(names) and names <= _COMPARE


def _name(node: Node) -> str:
    import torch

    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return ""
    return target._schema.name.split("::")[-1]
