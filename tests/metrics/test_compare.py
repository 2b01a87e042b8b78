"""Two models compared while the samples stream by."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.fidelity import fidelity_of
from edgesdk.metrics import MAX_FLIPS, Agreement, Fidelity

N = Dim(1, 64, "n")
OUTPUTS = (TensorSpec("boxes", "float32", (N, 4, 4, 4)), TensorSpec("scores", "float32", (N, 10)))


@pytest.mark.parametrize("noise", [0.0, 1e-3, 1.0])
def test_running_fidelity_equals_that_of_all_samples_at_once(noise: float) -> None:
    rng = np.random.default_rng(0)
    ref = [rng.normal(size=(2, 10)).astype(np.float32) for _ in range(30)]
    got = [(a + noise * rng.normal(size=a.shape)).astype(np.float32) for a in ref]
    if noise:
        ref[3][0, 1] = got[3][0, 1] = np.inf
    running = Fidelity("scores")
    for one, other in zip(ref, got, strict=True):
        running.update(one, other)
    wanted, found = fidelity_of("scores", ref, got), running.result()
    assert found.top1_agreement == wanted.top1_agreement and found.name == "scores"
    for name in ("max_abs_error", "mean_abs_error", "max_abs_reference", "cosine"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-9), name
    assert found.snr_db == (None if noise == 0 else pytest.approx(wanted.snr_db, rel=1e-9))


def test_shapes_may_differ_from_sample_to_sample_and_nothing_is_no_fault() -> None:
    running = Fidelity("tokens")
    for length in (1, 5, 9):
        running.update(np.ones((1, length, 3), np.float32), np.full((1, length, 3), 1.1, np.float32))
    assert running.result().snr_db == pytest.approx(20, abs=1e-4) and running.result().top1_agreement is None
    assert Fidelity("none").result().mean_abs_error == 0 and Fidelity("none").result().cosine is None


def test_agreement_and_the_list_of_flips() -> None:
    rng = np.random.default_rng(0)
    ref = rng.normal(size=(200, 10)).astype(np.float32)
    got = ref + rng.normal(size=ref.shape).astype(np.float32) * 0.5
    agreement = Agreement(OUTPUTS)
    for i in range(200):
        agreement.update({"scores": ref[i : i + 1]}, {"scores": got[i : i + 1]}, f"file {i}")
    found = agreement.result()
    assert found is not None and found.output == "scores" and found.rows == 200
    same = ref.argmax(1) == got.argmax(1)
    near = [r.argmax() in np.argsort(g)[-5:] for r, g in zip(ref, got, strict=True)]
    assert found.top1 == same.mean() and found.top5 == np.mean(near) and found.flipped == (~same).sum()
    assert len(found.flips) == MAX_FLIPS < found.flipped
    first = int(np.flatnonzero(~same)[0])
    flip = found.flips[0]
    assert (flip.where, flip.was, flip.became) == (f"file {first}", ref[first].argmax(), got[first].argmax())
    assert flip.margin == pytest.approx(float(np.diff(np.sort(ref[first])[-2:])[0]), abs=1e-6)
    assert json.loads(json.dumps(found.to_json()))["flips"][0]["where"] == f"file {first}"


def test_rows_of_a_batch_are_told_apart_and_nan_is_a_flip() -> None:
    ref, got = np.eye(3, 10, dtype=np.float32), np.eye(3, 10, dtype=np.float32)
    got[1] = np.nan
    agreement = Agreement(OUTPUTS)
    agreement.update({"scores": ref}, {"scores": got}, "a.npz[4]")
    found = agreement.result()
    assert found is not None and found.top1 == pytest.approx(2 / 3)
    assert found.flips[0].where == "a.npz[4], row 1" and found.flips[0].became is None


def test_models_without_class_scores_have_no_agreement() -> None:
    agreement = Agreement(OUTPUTS[:1])
    agreement.update({"boxes": np.zeros((1, 4, 4, 4))}, {"boxes": np.zeros((1, 4, 4, 4))}, "x")
    assert agreement.result() is None


def test_sequences_are_compared_when_their_output_is_named() -> None:
    outputs = (TensorSpec("logits", "float32", (N, 5, 12)),)
    ref = np.random.default_rng(0).normal(size=(2, 5, 12)).astype(np.float32)
    got = ref.copy()
    got[1, 2, ref[1, 2].argmin()] = 99
    agreement = Agreement(outputs, "logits")
    agreement.update({"logits": ref}, {"logits": got}, "line.png")
    found = agreement.result()
    assert found is not None and found.rows == 10 and found.flipped == 1 and found.flips[0].where == "line.png, row 7"
