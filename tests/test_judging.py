"""The default gate: what collapses is stopped, what is only a little worse is not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgesdk.artifacts import OutputFidelity
from edgesdk.evaluation import Evaluation, Guarded, Probe, Score
from edgesdk.guard import hopeless, refused
from edgesdk.judging import Channels, remarks, shortfall
from edgesdk.variants import Maker, _about_search

FINE = Evaluation(
    200, "calibration", "host", top1=0.99, rows=200, flipped=2, outputs=(OutputFidelity("y", 0.1, 0.01, 1.0, 25.0),)
)


def scored(drop: float) -> Evaluation:
    return replace(FINE, score=Score("top1", 91.0, 91.0 - drop, drop, 200))


@pytest.mark.parametrize(("top1", "stopped"), [(0.95, False), (0.81, False), (0.79, True), (0.14, True)])
def test_pitfall_q_05_a_collapse_of_the_classes_is_stopped(top1: float, stopped: bool) -> None:
    found = replace(FINE, top1=top1, flipped=round(200 * (1 - top1)))
    assert (shortfall(found, None) is not None) is stopped


def test_one_flip_among_a_few_samples_is_no_collapse() -> None:
    assert shortfall(replace(FINE, rows=4, top1=0.75, flipped=1), None) is None
    assert shortfall(replace(FINE, rows=4, top1=0.5, flipped=2), None) is not None


def test_noise_in_an_output_is_stopped_unless_its_classes_are_right() -> None:
    noisy = OutputFidelity("y", 3.0, 1.0, 4.0, 7.0)
    assert "7.0 dB" in str(shortfall(replace(FINE, top1=None, outputs=(noisy,)), None))
    assert shortfall(replace(FINE, outputs=(noisy,)), None) is None
    assert "7.0 dB" in str(shortfall(replace(FINE, top1=0.9, flipped=20, outputs=(noisy,)), None))


def test_the_users_limit_replaces_ours() -> None:
    assert shortfall(scored(0.99), 1.0) is None
    assert "drop of 1.01 points" in str(shortfall(scored(1.01), 1.0))
    assert shortfall(replace(scored(0.2), top1=0.5, flipped=100), 1.0) is None  # the labels decide
    assert "2.00 %" in str(shortfall(replace(FINE, top1=0.98, flipped=4), 1.0))  # without labels: agreement


def test_what_passed_by_a_hair_is_told() -> None:
    risky = replace(FINE, top1=0.9, flipped=20)
    assert [w.code for w in remarks("x", risky, None)] == ["accuracy_at_risk"]
    assert remarks("x", replace(risky, score=Score("top1", 91.0, 91.0, 0.0, 200)), 20.0) == ()
    assert [w.code for w in remarks("x", scored(1.5), None)] == ["metric_dropped"]


def test_an_original_that_guesses_is_told() -> None:
    """Labels in another order than the classes: 'accuracy kept' would be no lie, and useless."""
    guess = replace(FINE, score=Score("top1", 10.05, 10.05, 0.0, 200), chance=10.0)
    (warn,) = remarks("x", guess, None)
    assert warn.code == "original_guesses" and "10.05" in warn.message and "10.00" in warn.message
    assert remarks("x", replace(guess, score=Score("top1", 67.0, 67.0, 0.0, 200)), None) == ()


def channels(noise: np.ndarray, outputs: np.ndarray) -> float | None:
    seen = Channels()
    for wanted, extra in zip(outputs, noise, strict=True):
        seen.update(wanted[None], (wanted + extra)[None])
    return seen.lost


def test_one_huge_channel_hides_the_loss_of_the_others_from_the_ratio_but_not_from_us() -> None:
    """A weight × 1000 in one channel sets the scale of the whole tensor: the rest rounds to nothing."""
    rng = np.random.default_rng(0)
    outputs = rng.normal(0, 1, (100, 8)).astype(np.float32)
    outputs[:, 0] *= 1000
    step = np.abs(outputs).max() / 127
    given = np.round(outputs / step) * step
    snr = 10 * np.log10(np.square(outputs).sum() / np.square(outputs - given).sum())
    lost = channels(given - outputs, outputs)
    assert snr > 30 and lost == pytest.approx(7 / 8)
    assert "channels" in str(shortfall(replace(FINE, lost={"y": 7 / 8}), None))


def test_ordinary_int8_noise_loses_no_channel() -> None:
    rng = np.random.default_rng(1)
    outputs = rng.normal(0, 1, (100, 8)).astype(np.float32)
    step = np.abs(outputs).max() / 127
    assert channels(np.round(outputs / step) * step - outputs, outputs) == 0.0


def test_rare_classes_of_a_softmax_may_round_to_zero() -> None:
    rng = np.random.default_rng(2)
    outputs = rng.dirichlet(np.full(10, 0.05), 100).astype(np.float32)
    assert channels(np.round(outputs * 20) / 20 - outputs, outputs) is None


def test_an_embedding_may_change_its_largest_component() -> None:
    """``[N, 384]`` looks like scores; at a cosine of 0.99 only near ties flip. A metric of classes makes them classes."""
    embedding = OutputFidelity("y", 0.1, 0.01, 1.0, 13.0, cosine=0.99, top1_agreement=0.7)
    found = replace(FINE, top1=0.7, flipped=60, outputs=(embedding,))
    assert shortfall(found, None) is None
    assert shortfall(replace(found, score=Score("top1", 90.0, 90.0, 0.0, 200)), None) is not None
    assert shortfall(replace(found, top1=0.4, flipped=120), None) is not None


def test_a_metric_that_sees_nothing_does_not_ship_a_destroyed_file() -> None:
    noise = OutputFidelity("y", 9.0, 4.0, 5.0, -2.0, cosine=0.1, top1_agreement=0.1)
    blind = Score("my_acc", 0.1, 0.1, 0.0, 200)
    found = replace(FINE, score=blind, top1=0.106, flipped=179, outputs=(noise,))
    assert "my_acc sees no loss" in str(shortfall(found, 1.0))
    assert shortfall(replace(found, top1=0.95, flipped=10), 1.0) is None  # classes are right: only the scale is off


def test_a_limit_without_labels_is_told_as_what_it_is() -> None:
    assert [w.code for w in remarks("x", FINE, 1.0)] == ["judged_by_agreement"]


@pytest.mark.parametrize("scheme", ["qat-int8", "weight-int8", "fp16", "static-int8"])
def test_a_refusal_never_advises_the_scheme_that_failed(scheme: str) -> None:
    found = Evaluation(8, "evaluation", "host")
    maker: Any = Maker(SimpleNamespace(samples=None), None)  # type: ignore[arg-type]
    for error in (hopeless("x", "worse", found, (), ()), refused("x", "worse", found, (), ())):
        fix = maker._with_doubts(error, scheme).fix
        others = [name for name in ("qat-int8", "weight-int8", "fp16") if name != scheme and name in error.fix]
        assert scheme not in fix and all(name in fix for name in others) and "  " not in fix


def test_one_layer_is_one_layer() -> None:
    first = Evaluation(8, "evaluation", "host")
    for names, words in ((("head",), "1 layer is back"), (("head", "body"), "2 layers are back")):
        (warn,) = _about_search("x", Guarded(first, restored=names, probes=(Probe(0, False, 2.0, None, None),)))
        assert words in warn.message
