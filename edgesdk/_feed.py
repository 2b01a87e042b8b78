"""Check a feed against the signature before an engine sees it: names, dtypes, shapes, symbols, memory order.

Engines answer a wrong feed with a bare number, with a crash, or with a wrong answer. The usual feed is checked in about
a microsecond per input; only when something does not fit is time spent on saying what.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgesdk.artifacts import Dim, Signature, TensorSpec
from edgesdk.errors import InputError, nearest

_MOST_SHAPES = 256


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's dtype for a canonical name. NumPy has no bfloat16: such values are held, and handed over, as float32."""
    return np.dtype("float32" if name == "bfloat16" else name)


@dataclass(frozen=True)
class _Wanted:
    """One input. ``admitted`` maps each shape that was found to fit to the strides that C order gives it."""

    name: str
    dtype: np.dtype[Any]
    admitted: dict[tuple[int, ...], tuple[int, ...]]
    spec: TensorSpec


class Feed:
    """Turns ``{"name": array}`` into the list of C-contiguous arrays that a runner takes."""

    def __init__(self, signature: Signature, source: str) -> None:
        """``source`` is what the messages call the model: the name of the bundle."""
        self._source = source
        self._wanted = tuple(_wanted(spec) for spec in signature.inputs)
        self._count = len(self._wanted)
        self._ties = _ties(signature.inputs)

    def bind(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The arrays in the signature's order; copied only where their memory order asks for it.

        Raises:
            InputError: a name, dtype or shape is not that of the signature.
        """
        feed = []
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise self._no_mapping(inputs)
        for want in self._wanted:
            array = inputs.get(want.name)
            if type(array) is not np.ndarray or array.dtype != want.dtype:
                array = self._array(inputs, want)
            strides = want.admitted.get(array.shape) or self._admit(array, want)
            feed.append(array if array.strides == strides else _contiguous(array))
        if len(inputs) != self._count:
            raise self._wrong_names(inputs)
        if self._ties:
            self._check_ties(feed)
        return feed

    def _array(self, inputs: Mapping[str, np.ndarray], want: _Wanted) -> np.ndarray:
        """Off the fast path: a subclass of ndarray is taken as the array it is; everything else is refused."""
        if want.name not in inputs:
            raise self._wrong_names(inputs)
        array: Any = inputs[want.name]
        if not isinstance(array, np.ndarray):
            raise InputError(
                "dtype_mismatch", f"Input '{want.name}' of {self._source} is a {type(array).__name__}, not a NumPy array.",
                why="Nothing is converted unasked: a list has no dtype, and a tensor may live on another device.",
                fix=_conversion(array, want),
            )  # fmt: skip
        if array.dtype != want.dtype:
            raise InputError(
                "dtype_mismatch",
                f"Input '{want.name}' of {self._source} wants {want.spec.dtype} but got {_words(array.dtype)}.",
                why="Nothing is converted unasked, since a cast can lose values"
                + ("; NumPy makes float64 unless told otherwise." if array.dtype == np.float64 else "."),
                fix=f"Convert it yourself: array.astype(numpy.{want.dtype.name})",
                details={"input": want.name, "wanted": want.spec.dtype, "got": _words(array.dtype)},
            )  # fmt: skip
        return np.asarray(array)

    def _wrong_names(self, inputs: Mapping[str, np.ndarray]) -> InputError:
        known = [want.name for want in self._wanted]
        strange = [name for name in inputs if name not in known]
        lacking = [name for name in known if name not in inputs]
        facts = [f"'{name}' is missing" for name in lacking] + [f"{name!r} is unknown" for name in strange]
        return InputError(
            "unknown_input" if strange else "input_missing", f"The inputs of {self._source} don't fit: {', '.join(facts)}.",
            why=nearest(str(strange[0]), known) if strange and known else f"The inputs are: {', '.join(known) or 'none'}.",
            fix=f"Call run({{{', '.join(f'{name!r}: …' for name in known)}}}).",
            details={"missing": lacking, "unknown": [str(name) for name in strange]},
        )  # fmt: skip

    def _no_mapping(self, inputs: object) -> InputError:
        names = ", ".join(f"{want.name!r}: …" for want in self._wanted)
        return InputError(
            "unknown_input", f"{self._source} was given a {type(inputs).__name__}, not a dictionary.",
            why="Inputs go by name, so that two can't be swapped.", fix=f"Call run({{{names}}}).",
        )  # fmt: skip

    def _admit(self, array: np.ndarray, want: _Wanted) -> tuple[int, ...]:
        """Check a shape that was not seen before, and remember its strides."""
        shape = want.spec.shape
        if shape is None or (len(shape) == array.ndim and _fits(shape, array.shape)):
            if len(want.admitted) == _MOST_SHAPES:
                want.admitted.clear()
            want.admitted[array.shape] = _strides(array.shape, array.itemsize)
            return want.admitted[array.shape]
        raise InputError(
            "shape_mismatch",
            f"Input '{want.name}' of {self._source} wants the shape {_shape(shape)} but got {_shape(array.shape)}.",
            why=_shape_reason(shape, array.shape), fix=_shape_fix(want.spec, array.shape),
            details={"input": want.name, "wanted": want.spec.to_json()["shape"], "got": list(array.shape)},
        )  # fmt: skip

    def _check_ties(self, feed: list[np.ndarray]) -> None:
        for symbol, (first, *others) in self._ties.items():
            size = feed[first[0]].shape[first[1]]
            for index, axis in others:
                if feed[index].shape[axis] == size:
                    continue
                names = self._wanted[first[0]].name, self._wanted[index].name
                raise InputError(
                    "shape_mismatch",
                    f"Dimension {first[1]} of '{names[0]}' is {size}, dimension {axis} of '{names[1]}' is"
                    f" {feed[index].shape[axis]}; {self._source} needs them equal.",
                    why=f"The model was exported with one size '{symbol}' for both.", fix="Give both the same size.",
                    details={"symbol": symbol},
                )  # fmt: skip


def _wanted(spec: TensorSpec) -> _Wanted:
    return _Wanted(spec.name, dtype_of(spec.dtype), {}, spec)


def _strides(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """Strides of a C-contiguous array."""
    return tuple(itertools.accumulate((item, *reversed(shape[1:])), lambda a, b: a * b))[::-1] if shape else ()


def _contiguous(array: np.ndarray) -> np.ndarray:
    """The same values in C order and with the strides that belong to it.

    NumPy calls an array with a dimension of size 1 contiguous whatever that dimension's stride says; an engine that
    derives the memory order from strides would take such an array for channels-last.
    """
    return array.reshape(-1).reshape(array.shape) if array.flags.c_contiguous else array.copy(order="C")


def _ties(inputs: tuple[TensorSpec, ...]) -> dict[str, list[tuple[int, int]]]:
    """Places (input, axis) of each symbol that occurs more than once."""
    places: dict[str, list[tuple[int, int]]] = {}
    for index, spec in enumerate(inputs):
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, Dim) and dim.symbol:
                places.setdefault(dim.symbol, []).append((index, axis))
    return {symbol: found for symbol, found in places.items() if len(found) > 1}


def _shape(shape: tuple[int | Dim, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _words(dtype: np.dtype[Any]) -> str:
    return f"{dtype.name} in the other byte order" if not dtype.isnative else dtype.name


def _conversion(value: object, want: _Wanted) -> str:
    if type(value).__module__.split(".")[0] == "torch":
        return "Pass tensor.detach().cpu().numpy()."
    return f"Pass numpy.asarray(value, dtype='{want.spec.dtype}')."


def _shape_reason(wanted: tuple[int | Dim, ...], got: tuple[int, ...]) -> str:
    if len(wanted) != len(got):
        return f"The model takes {len(wanted)} dimensions, the array has {len(got)}."
    if len(got) == 4 and _fits(wanted, (got[0], got[3], got[1], got[2])):
        return "The array looks like batch, height, width, channels; the model takes channels second."
    if len(got) == 4 and _fits(wanted, (got[0], got[2], got[3], got[1])):
        return "The array looks like batch, channels, height, width; the model takes channels last."
    axis = next(i for i, (d, n) in enumerate(zip(wanted, got, strict=True)) if not _fits((d,), (n,)))
    dim = wanted[axis]
    allowed = f"lies in {dim}" if isinstance(dim, Dim) else f"is always {dim}"
    return f"Dimension {axis} {allowed}, as the model was packaged."


def _fits(wanted: tuple[int | Dim, ...], got: tuple[int, ...]) -> bool:
    return all(d.min <= n <= d.max if isinstance(d, Dim) else d == n for d, n in zip(wanted, got, strict=True))


def _shape_fix(spec: TensorSpec, got: tuple[int, ...]) -> str:
    shape = spec.shape or ()
    if len(shape) != len(got):
        missing_batch = len(got) + 1 == len(shape) and _fits(shape[1:], got)
        return "Add the batch dimension: array[None]" if missing_batch else "Give an array of that rank."
    if len(got) == 4 and _fits(shape, (got[0], got[3], got[1], got[2])):
        return "Reorder it: array.transpose(0, 3, 1, 2)"
    if len(got) == 4 and _fits(shape, (got[0], got[2], got[3], got[1])):
        return "Reorder it: array.transpose(0, 2, 3, 1)"
    if 0 in got:
        return "Give an array with at least one element."
    dims = ",".join(str(d) if _fits((d,), (n,)) else _widened(d, n) for d, n in zip(shape, got, strict=True))
    return (
        f"Give the shape {_shape(shape)}, or package the model with dynamic dimensions: "
        f"edgesdk package MODEL --input '{spec.name}={spec.dtype}[{dims}]'"
    )


def _widened(dim: int | Dim, size: int) -> str:
    low, high = (dim.min, dim.max) if isinstance(dim, Dim) else (dim, dim)
    return f"{min(low, size)}..{max(high, size)}"
