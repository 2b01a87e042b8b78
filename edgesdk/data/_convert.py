"""From the numbers that the data hold to the dtype that an input takes: only where no meaning is lost."""

from __future__ import annotations

import numpy as np

from edgesdk.artifacts import TensorSpec
from edgesdk.errors import InputError


def numpy_dtype(name: str) -> np.dtype:
    """NumPy has no bfloat16; its values are handed over as float32."""
    return np.dtype("float32" if name == "bfloat16" else name)


def convert(array: np.ndarray, spec: TensorSpec, where: str) -> np.ndarray:
    """The array in the input's dtype.

    Floats of another precision and integers for a float input are taken; integers of another width when all values fit;
    floats for an integer input never, since rounding ids changes what they mean.

    Raises:
        InputError: ``wrong_dtype`` or ``value_out_of_range``.
    """
    wanted = numpy_dtype(spec.dtype)
    have = array.dtype
    if have == wanted:
        return array
    if have.kind not in "biufc":
        raise _wrong(array, spec, where, f"Its values are {_words(have)}, not numbers.")
    if wanted.kind == "f" and have.kind in "biuf":
        return _to_float(array, wanted, spec, where)
    if wanted.kind == "c":
        return array.astype(wanted)
    if wanted.kind in "iu" and have.kind in "biu":
        return _to_int(array, wanted, spec, where)
    if wanted.kind == "b" and have.kind in "iu":
        if array.size and not np.isin(array, (0, 1)).all():
            raise _wrong(array, spec, where, "A bool input takes only 0 and 1 (or False and True).")
        return array.astype(wanted)
    why = (
        "Numbers with a fraction aren't rounded to ids by guess."
        if have.kind == "f"
        else "The conversion loses values."
    )
    raise _wrong(array, spec, where, why)


def _to_float(array: np.ndarray, wanted: np.dtype, spec: TensorSpec, where: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        values: np.ndarray = array.astype(wanted)
    if array.dtype.kind == "f" and not np.array_equal(np.isfinite(array), np.isfinite(values)):
        raise InputError(
            "value_out_of_range", f"{where}: input '{spec.name}' has values up to {np.nanmax(np.abs(array)):.3g}, too large for {wanted}.",
            why=f"The largest {wanted} is {np.finfo(wanted).max:.3g}.", fix="Scale the data as in training.",
        )  # fmt: skip
    return values


def _to_int(array: np.ndarray, wanted: np.dtype, spec: TensorSpec, where: str) -> np.ndarray:
    values: np.ndarray = array.astype(wanted)
    if array.size and array.dtype.kind != "b":
        low, high = int(array.min()), int(array.max())
        limits = np.iinfo(wanted)
        if low < limits.min or high > limits.max:
            raise InputError(
                "value_out_of_range", f"{where}: input '{spec.name}' has values {low}…{high}, which {wanted} can't hold.",
                why=f"It holds {limits.min}…{limits.max}.", fix="Correct the data, or the dtype with --input.",
            )  # fmt: skip
    return values


def _words(dtype: np.dtype) -> str:
    return {"U": "text", "S": "text", "O": "Python objects", "M": "dates", "m": "durations", "V": "records"}.get(
        dtype.kind, str(dtype)
    )


def _wrong(array: np.ndarray, spec: TensorSpec, where: str, why: str) -> InputError:
    return InputError(
        "wrong_dtype", f"{where}: input '{spec.name}' takes {spec.dtype}, the data are {array.dtype}.",
        why=why, fix=f"Save them as {numpy_dtype(spec.dtype)}: array.astype('{numpy_dtype(spec.dtype)}')",
    )  # fmt: skip


def as_label(value: object, where: str) -> np.ndarray | None:
    """A label as an int64 or float32 array; None for no label.

    Raises:
        InputError: ``bad_label``: it is neither a number nor an array of numbers.
    """
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    raise InputError(
        "bad_label", f"{where}: the label {str(value)[:60]!r} is no number.",
        why="A label is a class number counted from 0, or an array of the output's shape.",
        fix="Write class numbers, or hand in --labels FILE with the class names.",
    )  # fmt: skip
