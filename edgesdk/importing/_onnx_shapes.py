"""ONNX operators that move values about: reshape, slice, gather, pad and their kin."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from edgesdk.importing._onnx_ops import (
    Node,
    OnnxOperatorError,
    Value,
    axes_of,
    host,
    ints,
    known,
    light,
    operator,
    pick,
    tensor,
)  # fmt: skip


@operator("Shape")
def _shape(node: Node, values: list[Value]) -> Any:
    array = host(values[0])
    sizes = list(array.shape if array is not None else values[0].shape)
    chosen = sizes[node.get("start", 0) : node.get("end", len(sizes))]
    made = np.empty(len(chosen), dtype=object)
    made[:] = chosen
    return made if any(not isinstance(n, int) for n in chosen) else np.array(chosen, dtype=np.int64)


@operator("Size")
def _size(node: Node, values: list[Value]) -> Any:
    array = host(values[0])
    return np.asarray(array.size if array is not None else values[0].numel(), dtype=object)


@operator("Reshape")
def _reshape(node: Node, values: list[Value]) -> Any:
    wished = ints(values[1], "the shape of a Reshape")
    if light(values[0]):
        array = known(values[0], "")
        return array.reshape([array.shape[i] if n == 0 else n for i, n in enumerate(wished)])
    x = tensor(values[0])
    if not node.get("allowzero", 0):
        wished = [x.shape[i] if isinstance(n, int) and n == 0 else n for i, n in enumerate(wished)]
    return x.reshape(wished)


@operator("Flatten")
def _flatten(node: Node, values: list[Value]) -> Any:
    x = tensor(values[0])
    axis = node.get("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    return x.flatten(1) if axis == 1 and x.dim() > 1 else x.reshape(_product(x.shape[:axis]), _product(x.shape[axis:]))


def _product(sizes: Any) -> Any:
    total = 1
    for n in sizes:
        total = total * n
    return total


@operator("Transpose")
def _transpose(node: Node, values: list[Value]) -> Any:
    if light(values[0]):
        return known(values[0], "").transpose(node.get("perm"))
    x = tensor(values[0])
    return x.permute(node.get("perm") or list(range(x.dim()))[::-1])


@operator("Squeeze")
def _squeeze(node: Node, values: list[Value]) -> Any:
    axes = axes_of(node, values, 1)
    if light(values[0]):
        return np.squeeze(known(values[0], ""), axis=None if axes is None else tuple(axes))
    x = tensor(values[0])
    if axes is None:
        axes = [i for i, n in enumerate(x.shape) if isinstance(n, int) and n == 1]
    return x.squeeze(tuple(axes)) if axes else x


@operator("Unsqueeze")
def _unsqueeze(node: Node, values: list[Value]) -> Any:
    axes = axes_of(node, values, 1) or []
    if light(values[0]):
        return np.expand_dims(known(values[0], ""), tuple(axes))
    x = tensor(values[0])
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


@operator("Concat")
def _concat(node: Node, values: list[Value]) -> Any:
    import torch

    if light(*values):
        return np.concatenate([known(v, "") for v in values], axis=node.attrs["axis"])
    return torch.cat([tensor(v) for v in values], node.attrs["axis"])


@operator("Split")
def _split(node: Node, values: list[Value]) -> Any:
    axis = node.get("axis", 0)
    x = tensor(values[0])
    sizes = list(node.attrs["split"]) if "split" in node.attrs else None
    if pick(values, 1) is not None:
        sizes = ints(values[1], "the sizes of a Split")
    if sizes is None:
        parts = int(node.get("num_outputs", len(node.outputs)))
        return tuple(x.split(-(-x.shape[axis] // parts), axis))
    return tuple(x.split(sizes, axis))


@operator("Slice")
def _slice(node: Node, values: list[Value]) -> Any:
    if "starts" in node.attrs:
        starts, ends = list(node.attrs["starts"]), list(node.attrs["ends"])
        axes, steps = list(node.get("axes", range(len(starts)))), [1] * len(starts)
    else:
        starts, ends = ints(values[1], "the start of a Slice"), ints(values[2], "the end of a Slice")
        axes = ints(values[3]) if pick(values, 3) is not None else list(range(len(starts)))
        steps = ints(values[4]) if pick(values, 4) is not None else [1] * len(starts)
    if light(values[0]):
        return _cut_array(known(values[0], ""), list(zip(axes, starts, ends, steps, strict=True)))
    x = tensor(values[0])
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        x = _cut(x, axis, start, end, step)
    return x


def _cut_array(array: Any, cuts: list[tuple[int, Any, Any, int]]) -> Any:
    where = [slice(None)] * array.ndim
    for axis, start, end, step in cuts:
        where[axis] = slice(start, None if step < 0 and end < -array.shape[axis] else end, step)
    return array[tuple(where)]


def _cut(x: Any, axis: int, start: Any, end: Any, step: int) -> Any:
    size = x.shape[axis]
    if step < 0:
        if step == -1 and start in (-1,) and isinstance(end, int) and end < -(2**30):
            return x.flip(axis)
        indices = list(range(size))[slice(start, None if end < -size else end, step)]
        import torch

        return x.index_select(axis, torch.tensor(indices, dtype=torch.int64))
    where = [slice(None)] * x.dim()
    whole = isinstance(end, int) and end >= 2**31 - 1
    where[axis] = slice(start, None if whole else end, step)
    return x[tuple(where)]


@operator("Gather")
def _gather(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    axis = node.get("axis", 0)
    if light(*values):
        return np.asarray(np.take(known(values[0], ""), known(values[1], "").astype(np.int64), axis=axis))
    x, at = tensor(values[0]), host(values[1])
    axis = axis % x.dim()
    if at is not None and at.ndim == 0:
        return x.select(axis, int(at))
    if at is not None and at.dtype != object:
        size = x.shape[axis]
        where = tensor(np.where(at < 0, at + size, at).astype(np.int64)) if isinstance(size, int) else tensor(values[1])
    else:
        where = tensor(values[1])
    if axis == 0 and x.dim() == 2:
        return functional.embedding(where.long(), x)
    picked = x.index_select(axis, where.reshape(-1).long())
    return picked.reshape([*x.shape[:axis], *where.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def _gather_elements(node: Node, values: list[Value]) -> Any:
    return tensor(values[0]).gather(node.get("axis", 0), tensor(values[1]).long())


@operator("GatherND")
def _gather_nd(node: Node, values: list[Value]) -> Any:
    if node.get("batch_dims", 0):
        raise OnnxOperatorError("GatherND with batch_dims has no torch counterpart")
    x, at = tensor(values[0]), tensor(values[1]).long()
    return x[tuple(at[..., i] for i in range(at.shape[-1]))]


@operator("ScatterND")
def _scatter_nd(node: Node, values: list[Value]) -> Any:
    x, at, updates = tensor(values[0]), tensor(values[1]).long(), tensor(values[2])
    if node.get("reduction", "none") not in ("none", b"none"):
        raise OnnxOperatorError("ScatterND with a reduction has no torch counterpart")
    return x.index_put(tuple(at[..., i] for i in range(at.shape[-1])), updates)


@operator("ScatterElements", "Scatter")
def _scatter(node: Node, values: list[Value]) -> Any:
    return tensor(values[0]).scatter(node.get("axis", 0), tensor(values[1]).long(), tensor(values[2]))


@operator("Expand")
def _expand(node: Node, values: list[Value]) -> Any:
    wished = ints(values[1], "the shape of an Expand")
    if light(values[0]) and all(isinstance(n, int) for n in wished) and _product(wished) <= 256:
        array = known(values[0], "")
        return np.broadcast_to(array, np.broadcast_shapes(array.shape, tuple(wished)))
    x = tensor(values[0])
    pairs = list(itertools.zip_longest(reversed(x.shape), reversed(wished), fillvalue=1))[::-1]
    return x.expand([n if isinstance(w, int) and w == 1 else w for n, w in pairs])


@operator("Tile")
def _tile(node: Node, values: list[Value]) -> Any:
    return tensor(values[0]).repeat(ints(values[1], "the repeats of a Tile"))


@operator("ConstantOfShape")
def _constant_of_shape(node: Node, values: list[Value]) -> Any:
    import torch

    filler = np.asarray(node.get("value", np.zeros(1, np.float32))).reshape(-1)[0]
    shape = ints(values[0], "the shape of a ConstantOfShape")
    if all(isinstance(n, int) for n in shape) and _product(shape) <= 256:
        return np.full(shape, filler)
    return torch.full(shape, filler.item(), dtype=getattr(torch, filler.dtype.name))


@operator("Range")
def _range(node: Node, values: list[Value]) -> Any:
    import torch

    start, stop, step = (known(v, "the end of a Range").reshape(-1).tolist()[0] for v in values)
    if all(isinstance(v, int) for v in (start, stop, step)) and abs(stop - start) <= 256 * abs(step):
        return np.arange(start, stop, step, dtype=np.int64)
    return torch.arange(start, stop, step)


@operator("Trilu")
def _trilu(node: Node, values: list[Value]) -> Any:
    offset = ints(values[1])[0] if pick(values, 1) is not None else 0
    x = tensor(values[0])
    return x.triu(offset) if node.get("upper", 1) else x.tril(offset)


@operator("NonZero")
def _nonzero(node: Node, values: list[Value]) -> Any:
    if light(values[0]):
        return np.stack(np.nonzero(known(values[0], ""))).astype(np.int64)
    return tensor(values[0]).nonzero().t()


@operator("DepthToSpace")
def _depth_to_space(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    x, block = tensor(values[0]), node.attrs["blocksize"]
    if node.get("mode", "DCR") == "CRD":
        return functional.pixel_shuffle(x, block)
    n, c, h, w = x.shape
    y = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // block**2, h * block, w * block)


@operator("SpaceToDepth")
def _space_to_depth(node: Node, values: list[Value]) -> Any:
    x, block = tensor(values[0]), node.attrs["blocksize"]
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // block, block, w // block, block).permute(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * block**2, h // block, w // block)


@operator("Pad")
def _pad(node: Node, values: list[Value]) -> Any:
    from torch.nn import functional

    x = tensor(values[0])
    pads = list(node.attrs["pads"]) if "pads" in node.attrs else ints(values[1], "the width of a Pad")
    given = pick(values, 2)
    filler = (
        float(node.get("value", 0.0)) if given is None else known(given, "the value of a Pad").reshape(-1)[0].item()
    )
    chosen = ints(values[3]) if pick(values, 3) is not None else list(range(len(pads) // 2))
    half = len(pads) // 2
    widths = {axis % x.dim(): (pads[i], pads[i + half]) for i, axis in enumerate(chosen)}
    mode = node.get("mode", "constant")
    if mode == "constant":
        flat = [n for axis in reversed(range(x.dim())) for n in widths.get(axis, (0, 0))]
        return functional.pad(x, flat, value=filler)
    for axis, (before, after) in widths.items():
        x = _mirror(x, axis, before, after, mode) if before or after else x
    return x


def _mirror(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    """Reflect, repeat the edge or wrap along any axis: torch knows these for the last axes only."""
    import torch

    size = x.shape[axis]
    if not isinstance(size, int):
        raise OnnxOperatorError(f"Pad with mode '{mode}' along a dynamic dimension has no torch counterpart")
    numpy_mode: Any = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode]
    where = np.pad(np.arange(size), (before, after), mode=numpy_mode)
    return x.index_select(axis, torch.from_numpy(where))
