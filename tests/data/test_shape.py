"""Rows or complete batches, any signature: the model gets the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgesdk.artifacts import Dim, Signature, Size, TensorSpec
from edgesdk.data import ModelFacts
from edgesdk.errors import InputError

from .helpers import facts, signature, written

FIRST: list[Size] = [1, 4, Dim(1, 8, "n"), Dim(2, 6, "n")]


@pytest.mark.parametrize("form", ["rows", "whole"])
@pytest.mark.parametrize("inner", [(), (3,), (5, 7), (2, 4, 4)], ids=str)
@pytest.mark.parametrize("first", FIRST, ids=str)
def test_rows_and_batches_give_the_same_calls(tmp_path: Path, first: Size, inner: tuple[int, ...], form: str) -> None:
    known = ModelFacts(
        Signature((TensorSpec("x", "float32", (first, *inner)),), (TensorSpec("y", "float32", (first, 10)),))
    )
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, *inner)).astype(np.float32), rng.integers(0, 10, 24)
    batch = first if isinstance(first, int) else first.min
    if form == "rows":
        np.savez(tmp_path / "a.npz", x=x, label=y)
    else:
        np.savez(tmp_path / "a.npz", x=x.reshape(-1, batch, *inner), label=y.reshape(-1, batch))
    info, store = written(tmp_path / "a.npz", known, tmp_path)
    assert info.count == 24 // batch and info.labelled
    for i, sample in enumerate(store):
        part = slice(i * batch, (i + 1) * batch)
        assert np.array_equal(sample.feed["x"], x[part])
        assert sample.label is not None and np.array_equal(sample.label, y[part])


def test_an_input_without_a_batch_beside_one_with(tmp_path: Path) -> None:
    known = facts(signature(TensorSpec("x", "float32", (1, 4)), TensorSpec("state", "float32", (2, 1, 8))))
    state = np.random.default_rng(0).normal(size=(6, 2, 1, 8)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=np.ones((6, 4), np.float32), state=state)
    _, store = written(tmp_path / "a.npz", known, tmp_path)
    assert store[5].feed["x"].shape == (1, 4) and np.array_equal(store[5].feed["state"], state[5])


def test_rows_and_batches_can_t_be_mixed(tmp_path: Path) -> None:
    known = facts(signature(TensorSpec("x", "float32", (2, 4)), TensorSpec("z", "float32", (2, 3))))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=rng.normal(size=(6, 4)), z=rng.normal(size=(6, 2, 3)))
    with pytest.raises(InputError, match="'z' comes with its batch") as caught:
        written(tmp_path / "a.npz", known, tmp_path)
    assert caught.value.code == "mixed_batches"


def test_labels_of_the_output_s_shape_with_or_without_batch(tmp_path: Path) -> None:
    known = facts(signature(TensorSpec("x", "float32", (1, 4)), outputs=(TensorSpec("y", "float32", (1, 3)),)))
    y = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    for label in (y, y[:, None]):
        np.savez(tmp_path / "a.npz", x=np.ones((6, 4)), label=label)
        _, store = written(tmp_path / "a.npz", known, tmp_path)
        assert store[2].label is not None and np.array_equal(store[2].label, y[2:3])
