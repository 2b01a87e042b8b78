"""Wrong feeds are refused in words before the engine sees them; right ones reach it as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgesdk
from edgesdk.artifacts import Dim, Signature, TensorSpec
from edgesdk.errors import InputError
from tests.nets import (
    GOOD,
    PICTURE,
    null_bundle,
    recorded,
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return null_bundle(tmp_path / "net.edge", PICTURE)


WRONG: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "batch above the range": ({"input": np.zeros((9, 3, 6, 6), np.float32)}, "shape_mismatch", ("'input'", "[1..4, 3, 6, 6]", "[9, 3, 6, 6]", "--input 'input=float32[1..9,3,6,6]'")),
    "no samples": ({"input": np.zeros((0, 3, 6, 6), np.float32)}, "shape_mismatch", ("[0, 3, 6, 6]", "at least one element")),
    "another size": ({"input": np.zeros((1, 3, 8, 8), np.float32)}, "shape_mismatch", ("Dimension 2", "--input 'input=float32[1..4,3,6..8,6..8]'")),
    "channels": ({"input": np.zeros((1, 1, 6, 6), np.float32)}, "shape_mismatch", ("Dimension 1 is always 3",)),
    "channels last": ({"input": np.zeros((1, 6, 6, 3), np.float32)}, "shape_mismatch", ("channels second", "transpose(0, 3, 1, 2)")),
    "no batch": ({"input": np.zeros((3, 6, 6), np.float32)}, "shape_mismatch", ("4 dimensions", "array[None]")),
    "rank": ({"input": np.zeros((6, 6), np.float32)}, "shape_mismatch", ("4 dimensions, the array has 2",)),
    "scalar": ({"input": np.float32(1.0)}, "dtype_mismatch", ("float32, not a NumPy array", "numpy.asarray")),
    "double": ({"input": GOOD.astype(np.float64)}, "dtype_mismatch", ("wants float32 but got float64", ".astype(numpy.float32)", "NumPy makes float64")),
    "integers": ({"input": GOOD.astype(np.int64)}, "dtype_mismatch", ("wants float32 but got int64",)),
    "pixels": ({"input": GOOD.astype(np.uint8)}, "dtype_mismatch", ("wants float32 but got uint8",)),
    "half": ({"input": GOOD.astype(np.float16)}, "dtype_mismatch", ("got float16",)),
    "byte order": ({"input": GOOD.astype(">f4")}, "dtype_mismatch", ("other byte order",)),
    "objects": ({"input": np.array([None])}, "dtype_mismatch", ("got object",)),
    "list": ({"input": [[1.0]]}, "dtype_mismatch", ("is a list",)),
    "misspelt": ({"inptu": GOOD}, "unknown_input", ("'input' is missing", "'inptu' is unknown", "Did you mean 'input'?")),
    "missing": ({}, "input_missing", ("'input' is missing",)),
    "one too many": ({"input": GOOD, "mask": GOOD}, "unknown_input", ("'mask' is unknown",)),
    "number as name": ({0: GOOD}, "unknown_input", ("0 is unknown",)),
    "no dictionary": (GOOD, "unknown_input", ("ndarray, not a dictionary", "'input': …")),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_pitfall_e_12_a_05_wrong_feeds_are_refused_in_words(case: str, bundle: Path) -> None:
    """Before the native call, with name, wanted and got, on every engine alike: the check is the session's."""
    feed, code, words = WRONG[case]
    with edgesdk.load(bundle) as session:
        with pytest.raises(InputError) as caught:
            session.run(feed)
        assert caught.value.code == code
        for word in words:
            assert word in str(caught.value), str(caught.value)
        assert session.run({"input": GOOD})["scores"].shape == (2, 5), "the session still works"


def test_pitfall_a_05_a_torch_tensor_says_how_to_convert_it(bundle: Path) -> None:
    import torch

    with edgesdk.load(bundle) as session, pytest.raises(InputError, match=r"\.numpy\(\)"):
        session.run({"input": torch.zeros(2, 3, 6, 6)})  # type: ignore[dict-item]


def test_pitfall_a_05_token_numbers_as_floats(tmp_path: Path) -> None:
    signature = Signature((TensorSpec("ids", "int64", (1, Dim(1, 8))),), (TensorSpec("y", "float32", (1, 2)),))
    with edgesdk.load(null_bundle(tmp_path / "a.edge", signature)) as session:
        for array in (np.ones((1, 4)), np.ones((1, 4), np.int32)):
            with pytest.raises(InputError, match="'ids' of net wants int64"):
                session.run({"ids": array})
        session.run({"ids": np.ones((1, 4), np.int64)})


def test_dimensions_of_one_symbol_must_be_equal(tmp_path: Path) -> None:
    length = Dim(1, 9, "length")
    pair = (TensorSpec("ids", "int64", (1, length)), TensorSpec("mask", "int64", (1, length)))
    signature = Signature(pair, (TensorSpec("y", "float32", (1, 2)),))
    with edgesdk.load(null_bundle(tmp_path / "a.edge", signature)) as session:
        ids = np.ones((1, 4), np.int64)
        session.run({"ids": ids, "mask": ids})
        for _ in range(2):  # both shapes are known by now
            with pytest.raises(InputError, match=r"Dimension 1 of 'ids' is 4, dimension 1 of 'mask' is 5"):
                session.run({"ids": ids, "mask": np.ones((1, 5), np.int64)})
            session.run({"ids": np.ones((1, 5), np.int64), "mask": np.ones((1, 5), np.int64)})


def test_scalars_and_inputs_of_unknown_shape(tmp_path: Path) -> None:
    signature = Signature(
        (TensorSpec("t", "float32", ()), TensorSpec("x", "int32", None)), (TensorSpec("y", "float32", (1,)),)
    )
    with edgesdk.load(null_bundle(tmp_path / "a.edge", signature)) as session:
        for shape in ((), (3,), (2, 2)):
            assert session.run({"t": np.array(1, np.float32), "x": np.ones(shape, np.int32)})["y"].shape == (1,)
        with pytest.raises(InputError, match=r"wants the shape \[\] but got \[1\]"):
            session.run({"t": np.ones(1, np.float32), "x": np.ones(1, np.int32)})


def test_the_engine_gets_the_callers_own_memory() -> None:
    session, runner = recorded()
    for array in (GOOD, GOOD[:1], np.asarray(GOOD)):
        session.run({"input": array})
        assert np.shares_memory(runner.given[0], array)
    session.run({"input": GOOD})
    assert runner.given[0] is GOOD
    odd = np.zeros((3, 1, 6, 6), np.float32).transpose(1, 0, 2, 3)
    session.run({"input": odd})
    assert np.shares_memory(runner.given[0], odd)
    assert runner.given[0].strides == (432, 144, 24, 4)


def test_what_an_engine_throws_becomes_an_edge_error() -> None:
    for thrown in (RuntimeError("0x12\nlong trace"), ValueError(""), MemoryError()):
        session, _ = recorded(thrown)
        with pytest.raises(InputError) as caught:
            session.run({"input": GOOD})
        assert caught.value.code == "run_failed" and "\n" not in caught.value.message
        assert caught.value.__cause__ is thrown
    session, _ = recorded([])
    with pytest.raises(InputError, match="gave 0 outputs, not 1"):
        session.run({"input": GOOD})
