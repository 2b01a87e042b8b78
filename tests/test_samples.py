"""Samples cover the signature: sizes, content, integer ranges, steps; and travel through files unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgesdk.artifacts import Dim, Signature, TensorSpec
from edgesdk.preprocess import PreprocessSpec
from edgesdk.samples import load_cases, load_outputs, make_cases, save_cases, save_outputs

OUT = (TensorSpec("y", "float32", (1,)),)


def _signature(*inputs: TensorSpec) -> Signature:
    return Signature(inputs, OUT)


def test_dynamic_sizes_are_tried_at_both_ends_and_between() -> None:
    cases = make_cases(_signature(TensorSpec("x", "float32", (Dim(1, 9, "s0"), 3))), int_ranges={})
    assert {case.feeds[0]["x"].shape[0] for case in cases} == {1, 5, 9}


def test_dimensions_of_one_symbol_have_one_size() -> None:
    both = (Dim(1, 32, "s0"), 4), (2, Dim(1, 32, "s0"))
    cases = make_cases(
        _signature(TensorSpec("a", "float32", both[0]), TensorSpec("b", "float32", both[1])), int_ranges={}
    )
    assert all(case.feeds[0]["a"].shape[0] == case.feeds[0]["b"].shape[1] for case in cases)


@pytest.mark.slow
def test_a_huge_upper_bound_is_halved_until_it_fits_in_memory() -> None:
    cases = make_cases(_signature(TensorSpec("x", "float32", (1, 3, Dim(32, 65536), Dim(32, 65536)))), int_ranges={})
    assert max(case.feeds[0]["x"].size for case in cases) <= 2**24


def test_integers_stay_in_their_range_and_use_it() -> None:
    tokens = TensorSpec("tokens", "int64", (1, 500))
    cases = make_cases(_signature(tokens), int_ranges={"tokens": (0, 50)})
    values = np.concatenate([case.feeds[0]["tokens"].ravel() for case in cases])
    assert values.dtype == np.int64 and values.min() == 0 and values.max() == 49


def test_a_stateful_model_gets_sequences() -> None:
    cases = make_cases(_signature(TensorSpec("x", "float32", (1, 3))), int_ranges={}, stateful=True)
    assert [len(case.feeds) for case in cases] == [4, 2]


def test_pictures_go_through_the_preprocessing() -> None:
    spec = PreprocessSpec.from_options(16, mean=(0.5,), std=(0.5,))
    cases = make_cases(_signature(TensorSpec("x", "float32", (2, 3, 16, 16))), int_ranges={}, preprocess=spec)
    picture = cases[0].feeds[0]["x"]
    assert picture.shape == (2, 3, 16, 16) and np.abs(picture).max() <= 1.0
    steps = np.unique(np.round((picture * 0.5 + 0.5) * 255, 3) % 1)
    assert set(steps) == {0.0}  # 8-bit pixels, so a real picture and no noise


def test_samples_of_one_size_differ_and_repeat_with_the_seed() -> None:
    signature = _signature(TensorSpec("x", "float32", (1, 8, 8)))
    first, again, other = (make_cases(signature, int_ranges={}, seed=s) for s in (0, 0, 1))
    assert all(np.array_equal(a.feeds[0]["x"], b.feeds[0]["x"]) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].feeds[0]["x"], other[0].feeds[0]["x"])
    assert not np.array_equal(first[0].feeds[0]["x"], first[1].feeds[0]["x"])


def test_scalars_and_booleans_are_fed() -> None:
    cases = make_cases(_signature(TensorSpec("s", "float32", ()), TensorSpec("m", "bool", (1, 4))), int_ranges={})
    assert cases[0].feeds[0]["s"].shape == () and cases[0].feeds[0]["m"].dtype == bool


def test_cases_and_outputs_travel_through_files(tmp_path: Path) -> None:
    signature = _signature(TensorSpec("file", "float32", (1, 3)), TensorSpec("a.b", "int64", (2,)))
    cases = make_cases(signature, int_ranges={}, stateful=True)
    save_cases(tmp_path / "c.npz", cases)
    for one, other in zip(cases, load_cases(tmp_path / "c.npz"), strict=True):
        assert one.label == other.label
        for a, b in zip(one.feeds, other.feeds, strict=True):
            assert list(a) == list(b) and all(np.array_equal(a[n], b[n]) and a[n].dtype == b[n].dtype for n in a)
    outputs = [[{"logits.x": np.arange(3.0)}, {"logits.x": np.ones(2)}], [{"logits.x": np.zeros(0)}]]
    save_outputs(tmp_path / "o.npz", outputs)
    found = load_outputs(tmp_path / "o.npz")
    assert [[list(s["logits.x"]) for s in c] for c in found] == [[[0, 1, 2], [1, 1]], [[]]]
