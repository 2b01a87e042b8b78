"""Which columns of a table feed which input, and what a cell may hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from edgesdk.artifacts import Signature, TensorSpec
from edgesdk.data._npz import LABEL, like_label
from edgesdk.errors import InputError, nearest


@dataclass(frozen=True)
class Columns:
    """Names of columns, in the order of the values.

    Attributes:
        inputs: by input: one column (a number, list, path or picture), or one per value.
        label: none, one, or one per value of a vector.
    """

    inputs: dict[str, tuple[str, ...]]
    label: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(name for columns in (*self.inputs.values(), self.label) for name in columns)


def map_columns(columns: Sequence[str], signature: Signature, where: str) -> Columns:
    """An input takes the column of its name, or the columns ``name_0 … name_k``. With one input and no such column it
    takes the only other column, or all others when there are as many as the input has values.

    Raises:
        InputError: ``missing_input``, ``label_misnamed``, ``duplicate_column``, ``missing_column``.
    """
    twice = sorted({name for name in columns if list(columns).count(name) > 1})
    if twice:
        raise InputError(
            "duplicate_column", f"{where} has two columns called '{twice[0]}'.", why="Columns are found by name.",
            fix="Rename one of them.",
        )  # fmt: skip
    label = _named(LABEL, columns, where)
    inputs, missing = _inputs(signature, columns, label, where)
    used = {name for names in inputs.values() for name in names}
    stray = None if label else like_label([c for c in columns if c not in used])
    if stray and missing:  # the label's column may be all that is in the way
        missing = _inputs(signature, columns, (stray,), where)[1]
    if stray and not missing:
        raise InputError(
            "label_misnamed", f"{where} has no column '{LABEL}', and '{stray}' looks like it.",
            why=f"{_listed(columns)} Labels are found by the name '{LABEL}' alone.",
            fix=f"Rename the column '{stray}' to '{LABEL}'; if it holds no labels, drop it.",
        )  # fmt: skip
    if missing:
        raise InputError(
            "missing_input", f"{where} has no column for the model's input '{missing}'{_miscounted(signature, columns, label)}.",
            why=f"{_listed(columns)} {nearest(missing, list(columns)[:40])}"[:600],
            fix=f"Call the column '{missing}' (a number, a list, or the path of a file), or its values {missing}_0, {missing}_1, "
            f"…; labels stand in a column '{LABEL}', other columns must go.",
        )  # fmt: skip
    return Columns(inputs, label)


def _inputs(
    signature: Signature, columns: Sequence[str], label: tuple[str, ...], where: str
) -> tuple[dict[str, tuple[str, ...]], str | None]:
    """The columns of each input, and the first input that has none. An input may be called as the labels are."""
    inputs = {spec.name: _named(spec.name, columns, where) for spec in signature.inputs}
    missing = [spec for spec in signature.inputs if not inputs[spec.name]]
    if len(signature.inputs) == 1 and missing:
        inputs[missing[0].name] = _only(missing[0], [c for c in columns if c not in label])
        missing = [] if inputs[missing[0].name] else missing
    return inputs, missing[0].name if missing else None


def _listed(columns: Sequence[str]) -> str:
    """``Its columns are a, b, c.``, at most a dozen of them by name."""
    shown = list(columns)[:12]
    more = f" and {len(columns) - len(shown)} more" if len(columns) > len(shown) else ""
    return f"Its columns are {', '.join(map(repr, shown))}{more}." if shown else "It has no columns."


def _miscounted(signature: Signature, columns: Sequence[str], label: tuple[str, ...]) -> str:
    """How many columns there are and how many the one input takes; empty where they aren't counted."""
    size = _values(signature.inputs[0])
    count = len([c for c in columns if c not in label])
    if len(signature.inputs) > 1 or not size:
        return ""
    return f", which takes {size} values; the file has {count} columns{f' beside {LABEL!r}' if label else ''}"


def _named(name: str, columns: Sequence[str], where: str) -> tuple[str, ...]:
    if name in columns:
        return (name,)
    numbered = {int(m[1]): c for c in columns if (m := re.fullmatch(re.escape(name) + r"_(\d{1,7})", c))}
    if not numbered:
        return ()
    first = min(numbered)
    if first > 1 or sorted(numbered) != list(range(first, first + len(numbered))):
        gap = next((i for i in range(first, max(numbered)) if i not in numbered), 0)
        raise InputError(
            "missing_column", f"{where} has columns {name}_{first} … {name}_{max(numbered)}, but no {name}_{gap}.",
            why="The columns of one input are numbered without a gap, from 0.", fix="Add the column, or correct the names.",
        )  # fmt: skip
    return tuple(numbered[i] for i in sorted(numbered))


def _only(spec: TensorSpec, others: list[str]) -> tuple[str, ...]:
    if len(others) == 1:
        return (others[0],)
    return tuple(others) if others and len(others) == _values(spec) else ()


def _values(spec: TensorSpec) -> int:
    """Numbers of one sample; 0 where that isn't fixed."""
    size = 1
    for dim in (spec.shape or (0,))[1:]:
        size *= dim if isinstance(dim, int) else 0
    return size
