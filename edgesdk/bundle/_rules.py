"""Rules that tie the manifest's fields to each other. The reader and the writer both apply them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from edgesdk.artifacts import DTYPES
from edgesdk.bundle import _names
from edgesdk.bundle import manifest as m


def violations(manifest: m.Manifest) -> Iterator[str]:
    """Everything that is wrong with a manifest whose file table is filled in; the first is enough to refuse it."""
    yield from _files(manifest)
    yield from _signature(manifest.signature)
    yield from _variants(manifest)
    yield from _golden(manifest)


def aligned(manifest: m.Manifest) -> frozenset[str]:
    """Entries that engines map: they lie on 16 KiB."""
    return frozenset(name for v in manifest.variants for name in (v.file, *v.extra_files))


def _files(manifest: m.Manifest) -> Iterator[str]:
    names = [f.name for f in manifest.files]
    for name in names:
        reason = _names.unsafe(name)
        if reason:
            yield f"the entry name {name!r} {reason}"
        if name.lower() in (m.MANIFEST, m.SIGNATURE):
            yield f"the file table names {name!r}"
    if names != sorted(set(names)):
        yield "the file table is not sorted by name, or names an entry twice"
    pair = _names.clash([*names, m.MANIFEST, m.SIGNATURE])
    if pair:
        yield f"the entries {pair[0]!r} and {pair[1]!r} can't lie side by side"
    used = aligned(manifest) | {t.file for g in manifest.golden for t in (*g.inputs, *g.outputs)}
    lost = sorted(used - set(names))
    if lost:
        yield f"it uses {lost[0]!r}, which is not in the file table"


def _signature(signature: m.SignaturePart) -> Iterator[str]:
    for kind, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        if _repeated(t.name for t in tensors):
            yield f"two {kind}s have one name"
        for tensor in tensors:
            problem = _shape(tensor, least=1 if kind == "input" else 0)
            if problem:
                yield f"{kind} {tensor.name!r} {problem}"


def _shape(tensor: m.TensorPart, least: int) -> str | None:
    most = 1
    for dim in tensor.shape or ():
        low, high = (dim, dim) if isinstance(dim, int) else map(int, dim.split(".."))
        if low < least or high < low or high > m.MAX_DIM:
            return f"has the dimension {dim}, which is empty, below {least} or above {m.MAX_DIM}"
        most *= high
    if most * DTYPES[tensor.dtype] > 2**63 - 1:
        return "can grow to more than 2^63 bytes"
    dynamic = {str(i) for i, dim in enumerate(tensor.shape or ()) if isinstance(dim, str)}
    if not set(tensor.symbols) <= dynamic:
        return "has a symbol on a dimension that is not dynamic"
    return None


def _variants(manifest: m.Manifest) -> Iterator[str]:
    table = {f.name: f for f in manifest.files}
    if _repeated(v.id for v in manifest.variants):
        yield "two variants have one id"
    if _repeated(name for v in manifest.variants for name in (v.file, *v.extra_files)):
        yield "one file belongs to two variants"
    outputs = {t.name for t in manifest.signature.outputs}
    for v in manifest.variants:
        entry = table.get(v.file)
        if entry and (v.sha256, v.size) != (entry.sha256, entry.size):
            yield f"variant {v.id!r} and the file table disagree on {v.file!r}"
        unknown = (set(v.tolerances) | {o.name for o in v.fidelity.outputs} | set(v.fidelity.tolerance)) - outputs
        if unknown:
            yield f"variant {v.id!r} names the unknown output {min(unknown)!r}"
        if manifest.golden and v.verified != "not_run" and outputs - set(v.tolerances):
            yield f"variant {v.id!r} has no tolerance for output {min(outputs - set(v.tolerances))!r}"
        if any(sorted(order) != list(range(len(order))) for order in v.dim_order):
            yield f"variant {v.id!r} has a dim_order that is no permutation"


def _golden(manifest: m.Manifest) -> Iterator[str]:
    sizes = {f.name: f.size for f in manifest.files}
    known = [
        {t.name: t.dtype for t in manifest.signature.inputs},
        {t.name: t.dtype for t in manifest.signature.outputs},
    ]
    if _repeated(g.id for g in manifest.golden) or _repeated((g.sequence, g.step) for g in manifest.golden):
        yield "two golden calls have one id or one place in a sequence"
    for g in manifest.golden:
        for tensors, names, kind in ((g.inputs, known[0], "inputs"), (g.outputs, known[1], "outputs")):
            if [t.name for t in tensors] != list(names):
                yield f"golden {g.id!r} has other {kind} than the signature"
        for t in (*g.inputs, *g.outputs):
            if math.prod(t.shape) * DTYPES[t.dtype] != sizes.get(t.file, -1):
                yield f"golden {g.id!r}: the size of {t.file!r} is not that of its dtype and shape"
        if any((known[0].get(t.name), t.dtype) not in _same_dtype(t.dtype) for t in g.inputs):
            yield f"golden {g.id!r} has an input of another dtype than the signature"


def _same_dtype(dtype: str) -> tuple[tuple[str, str], ...]:
    """(dtype in the signature, dtype stored) that go together: bfloat16 may be stored as float32."""
    return ((dtype, dtype), ("bfloat16", "float32")) if dtype == "float32" else ((dtype, dtype),)


def _repeated(values: Iterable[object]) -> bool:
    seen = list(values)
    return len(set(seen)) != len(seen)
