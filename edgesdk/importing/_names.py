"""Names for what flows in and out of a model, and the way between nested Python values and flat tensors.

Inputs keep the names of ``forward()``'s parameters; nested inputs and outputs are joined by dots (``boxes.scores``);
outputs without names are ``output``, or ``output_0, output_1, …``.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def name_outputs(value: Any) -> list[tuple[str, Any]]:
    """Flatten what ``forward()`` returned into (name, leaf) pairs, in the order of its own structure.

    Dictionaries, data classes (``ModelOutput``) and named tuples give their keys and fields; tuples and lists give
    positions. ``None`` leaves are left out, as they carry nothing.
    """
    if value is None:
        return []
    if _children(value) is None:
        return [("output", value)]
    positional = isinstance(value, (tuple, list)) and not hasattr(value, "_fields")
    pairs = [(name, leaf) for name, leaf in _walk(value, ()) if leaf is not None]
    if positional:
        if len(pairs) == 1 and len(pairs[0][0]) == 1:
            return [("output", pairs[0][1])]
        return [(".".join((f"output_{path[0]}", *path[1:])), leaf) for path, leaf in pairs]
    return [(".".join(path), leaf) for path, leaf in pairs]


def _walk(value: Any, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Any]]:
    children = _children(value)
    if children is None:
        yield path, value
        return
    for key, child in children:
        yield from _walk(child, (*path, key))


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """Named children in the order in which torch's pytree flattens them; None for a leaf."""
    if isinstance(value, Mapping):
        return [(str(k) or "_", v) for k, v in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields: tuple[str, ...] = getattr(value, "_fields", ())
        return [(k, getattr(value, k)) for k in fields]
    if isinstance(value, (tuple, list)):
        return [(str(i), v) for i, v in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    return None


def unique(names: Sequence[str]) -> list[str]:
    """The same names, a number appended where one occurs twice (a dict key may hold a dot)."""
    taken = set(names)
    result: list[str] = []
    for name in names:
        free = (f"{name}_{i}" for i in itertools.count(1))
        new = next(n for n in free if n not in taken) if name in result else name
        taken.add(new)
        result.append(new)
    return result


def numbered(count: int, stem: str) -> list[str]:
    """``input``, or ``input_0, input_1, …``."""
    return [stem] if count == 1 else [f"{stem}_{i}" for i in range(count)]
