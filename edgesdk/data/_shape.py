"""From rows to complete calls of the model: batch dimension, grouping for fixed batches, shapes checked by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgesdk.artifacts import Dim, Signature, Size, TensorSpec
from edgesdk.data._convert import as_label, convert
from edgesdk.data._readers import Row
from edgesdk.data._store import Sample
from edgesdk.errors import InputError


@dataclass(frozen=True)
class _Part:
    """One row, its arrays converted; ``bare`` names the inputs that still lack the batch dimension."""

    arrays: dict[str, np.ndarray]
    bare: frozenset[str]
    label: np.ndarray | None
    where: str


class Shaper:
    """Makes samples of rows. Feed it every row, then call :meth:`finish`.

    Attributes:
        left_out: rows at the end that fill no batch.
        from_bytes: float inputs whose data are unsigned bytes.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._waiting: list[_Part] = []
        self._batch = batch_size(signature)
        self.left_out = 0
        self.from_bytes: set[str] = set()

    def add(self, row: Row) -> Iterator[Sample]:
        """The samples that this row completes: none while a batch fills, several when the row holds many.

        Raises:
            InputError: an input is missing, or its shape or dtype doesn't fit.
        """
        for part in self._parts(row):
            if not part.bare:
                yield self._sample([part])
                continue
            self._waiting.append(part)
            if len(self._waiting) == self._batch:
                group, self._waiting = self._waiting, []
                yield self._sample(group)

    def finish(self) -> None:
        self.left_out = len(self._waiting)
        self._waiting = []

    def _parts(self, row: Row) -> Iterator[_Part]:
        missing = [spec.name for spec in self._signature.inputs if spec.name not in row.inputs]
        if missing:
            raise InputError(
                "missing_input", f"{row.where} lacks the model's input '{missing[0]}'.",
                why=f"It has {', '.join(row.inputs) or 'nothing'}; the model takes {_listed(self._signature)}.",
                fix="Name the arrays or columns as the model's inputs.",
            )  # fmt: skip
        arrays: dict[str, np.ndarray] = {}
        forms: dict[str, str] = {}
        for spec in self._signature.inputs:
            array = np.asarray(row.inputs[spec.name])
            if array.dtype == np.uint8 and "float" in spec.dtype:
                self.from_bytes.add(spec.name)
            array = _laid_out(array, spec) if row.flat else array
            arrays[spec.name] = convert(array, spec, row.where)  # first: of text the shape says nothing
            forms[spec.name] = form_of(array.shape, spec, row.where)
        label = as_label(row.label, row.where)
        many = [name for name, form in forms.items() if form == "many"]
        if many:
            yield from _split(arrays, forms, label, row.where, many[0])
            return
        bare = frozenset(name for name, form in forms.items() if form == "row")
        yield _Part(arrays, bare, label, row.where)

    def _sample(self, parts: list[_Part]) -> Sample:
        first = parts[0]
        feed = {}
        for spec in self._signature.inputs:
            if spec.name in first.bare:
                feed[spec.name] = np.stack([part.arrays[spec.name] for part in parts])
                if spec.shape is not None and not fits(feed[spec.name].shape, spec.shape):
                    raise misfit(feed[spec.name].shape, spec, first.where)
            else:
                feed[spec.name] = first.arrays[spec.name]
                if len(parts) > 1 and any(not np.array_equal(feed[spec.name], p.arrays[spec.name]) for p in parts):
                    raise InputError(
                        "mixed_batches", f"{parts[1].where}: '{spec.name}' comes with its batch, other inputs without.",
                        why=f"The model takes batches of {self._batch}, put together from rows.",
                        fix="Give all inputs row by row, or all as complete batches.",
                    )  # fmt: skip
        where = first.where if len(parts) == 1 else f"{first.where} … {parts[-1].where}"
        _check_symbols(feed, self._signature, where)
        return Sample(feed, self._label(parts, feed), where)

    def _label(self, parts: list[_Part], feed: dict[str, np.ndarray]) -> np.ndarray | None:
        labels = [part.label for part in parts]
        if any(label is None for label in labels):
            return None
        if parts[0].bare:
            whole = labels[0]
            shapes = {label.shape for label in labels if label is not None}
            if len(shapes) > 1:
                raise InputError(
                    "label_shape", f"{parts[0].where}: the labels of one batch have different shapes {sorted(shapes)}.",
                    why="They are put together to one array.", fix="Give labels of one shape.",
                )  # fmt: skip
            if len(parts) == 1 and whole is not None and self._fits_output(whole):
                return whole
            return np.stack([label for label in labels if label is not None])
        label = labels[0]
        batch = next((a.shape[0] for a in feed.values() if a.ndim), 1)
        if label is None or label.ndim == 0:
            return None if label is None else label[None]
        if label.shape[0] == batch and (batch > 1 or label.shape == (1,) or self._fits_output(label)):
            return label
        return label[None]

    def _fits_output(self, label: np.ndarray) -> bool:
        """It already has the batch dimension of an output (a float label ``[1, …]``)."""
        if label.dtype.kind != "f" or label.ndim == 0 or label.shape[0] != 1:
            return False
        return any(s.shape is not None and fits(label.shape, s.shape) for s in self._signature.outputs)


def batch_size(signature: Signature) -> int:
    """How many rows make one call: 1, or what the first dimension demands at least."""
    shapes = [spec.shape for spec in signature.inputs if spec.shape]
    first = next((shape for shape in shapes if len(shape) > 1), shapes[0] if shapes else (1,))
    return least(first[0])


def least(size: Size) -> int:
    return size.min if isinstance(size, Dim) else size


def form_of(shape: tuple[int, ...], spec: TensorSpec, where: str) -> str:
    """``whole``: a complete input. ``row``: one without the batch dimension. ``many``: several rows in another batch size.

    Raises:
        InputError: none of them; the message holds both shapes.
    """
    wanted = spec.shape
    if wanted is None:
        return "row"
    if fits(shape, wanted):
        return "whole"
    if len(shape) == len(wanted) - 1 and fits(shape, wanted[1:]):
        return "row"
    if shape and len(shape) == len(wanted) and len(wanted) > 1 and shape[0] > 0 and fits(shape[1:], wanted[1:]):
        return "many"
    raise misfit(shape, spec, where)


def fits(shape: tuple[int, ...], wanted: tuple[Size, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        w.min <= s <= w.max if isinstance(w, Dim) else s == w for s, w in zip(shape, wanted, strict=True)
    )


def misfit(shape: tuple[int, ...], spec: TensorSpec, where: str) -> InputError:
    """Why an array can't be fed: channels last, another number of channels, or another size."""
    wanted = spec.shape or ()
    have = tuple(shape[1:]) if len(shape) == len(wanted) else tuple(shape)
    inner = wanted[1:]
    shown = f"[{','.join(map(str, wanted))}]"
    message = f"{where}: input '{spec.name}' takes {shown}, the data have {list(shape)}."
    if len(inner) == 3 and len(have) == 3:
        if fits((have[2], have[0], have[1]), inner):
            return _order(message, "last, the model wants them first", "array.transpose(0, 3, 1, 2)")
        if fits((have[1], have[2], have[0]), inner):
            return _order(message, "first, the model wants them last", "array.transpose(0, 2, 3, 1)")
        if fits(have[1:], inner[1:]) and least(inner[0]) <= 4:
            return _channels(message, have[0], str(inner[0]))
        if fits(have[:2], inner[1:]) and have[2] <= 4:
            return _channels(message, have[2], str(inner[0]))
    if len(inner) == 3 and len(have) == 2 and fits(have, inner[1:]):
        return InputError(
            "channel_count", message, why="The dimension of the channels is missing.",
            fix="Insert it: array[:, None] (and save it again)." if inner[0] == 1 else "Give pictures with their channels.",
            details={"shape": list(shape)},
        )  # fmt: skip
    return InputError(
        "shape_mismatch", message, why="Each row is one sample; the batch dimension may be left out.",
        fix="Prepare the data as in training, or give the model another shape with --input.",
        details={"shape": list(shape), "wanted": [str(d) for d in wanted]},
    )  # fmt: skip


def _order(message: str, found: str, code: str) -> InputError:
    return InputError(
        "channel_order", message, why=f"The channels come {found}.",
        fix=f"Reorder the array of all samples: {code}, and save it again.",
    )  # fmt: skip


def _channels(message: str, have: int, wanted: str) -> InputError:
    return InputError(
        "channel_count", message, why=f"The pictures have {have} channel(s), the model takes {wanted}.",
        fix="Convert them as in training: grey to RGB by repeating, RGBA to RGB by dropping alpha; or give image files.",
    )  # fmt: skip


def _laid_out(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Columns of a table in the shape of one row, when that shape is fixed and the number of values is right."""
    inner = spec.shape[1:] if spec.shape else ()
    sizes = [d for d in inner if isinstance(d, int)]
    if len(sizes) == len(inner) and array.size == int(np.prod(sizes, dtype=np.int64)):
        return array.reshape(sizes)
    return array


def _split(
    arrays: dict[str, np.ndarray], forms: dict[str, str], label: np.ndarray | None, where: str, many: str
) -> Iterator[_Part]:
    """A batch of another size than the model's, taken apart into rows."""
    count = arrays[many].shape[0]
    apart = {name for name, form in forms.items() if form == "many" or (form == "whole" and _rows(arrays[name], count))}
    wrong = [name for name, form in forms.items() if form == "many" and arrays[name].shape[0] != count]
    if wrong:
        raise InputError(
            "shape_mismatch", f"{where}: '{many}' has {count} rows, '{wrong[0]}' has {arrays[wrong[0]].shape[0]}.",
            why="The inputs of a batch belong together row by row.", fix="Give every input equally many rows.",
        )  # fmt: skip
    if label is not None and (label.ndim == 0 or label.shape[0] != count):
        raise InputError(
            "label_count", f"{where}: there are {count} rows, but the label has the shape {list(label.shape)}.",
            why="Each row has its own label.", fix="Give one label per row.",
        )  # fmt: skip
    for i in range(count):
        row: dict[str, Any] = {name: a[i] if name in apart else a for name, a in arrays.items()}
        yield _Part(row, frozenset(apart), None if label is None else label[i], f"{where}, row {i}")


def _rows(array: np.ndarray, count: int) -> bool:
    return array.ndim > 0 and array.shape[0] == count


def _check_symbols(feed: dict[str, np.ndarray], signature: Signature, where: str) -> None:
    """Dimensions with one symbol have one size in a call."""
    sizes: dict[str, tuple[int, str]] = {}
    for spec in signature.inputs:
        for i, dim in enumerate(spec.shape or ()):
            if not isinstance(dim, Dim) or not dim.symbol:
                continue
            size = feed[spec.name].shape[i]
            known, name = sizes.setdefault(dim.symbol, (size, spec.name))
            if known != size:
                raise InputError(
                    "shape_mismatch", f"{where}: '{name}' and '{spec.name}' must agree in a size, but have {known} and {size}.",
                    why=f"The model ties them together ({dim.symbol}).", fix="Pad or cut them to one length.",
                )  # fmt: skip


def _listed(signature: Signature) -> str:
    return ", ".join(str(spec) for spec in signature.inputs)
