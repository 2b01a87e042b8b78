"""The judgement: what passes as the same answer and what never does."""

from __future__ import annotations

import numpy as np
import pytest

from edgesdk.artifacts import Signature, TensorSpec, Verification
from edgesdk.fidelity import TOLERANCES, compare, constant_outputs, fidelity_of, reference_warnings, run_cases
from edgesdk.samples import Case

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 5, (4, 1, 10)).astype(np.float32)


def _judge(reference: np.ndarray, found: np.ndarray, scheme: str = "none") -> Verification:
    """Compare two stacks of outputs, a sample per row."""
    dtype = reference.dtype.name
    signature = Signature((TensorSpec("x", "float32", (1,)),), (TensorSpec("y", dtype, reference.shape[1:]),))
    cases = [Case("static", ({"x": np.zeros(1, np.float32)},)) for _ in reference]
    return compare(signature, cases, [[{"y": r}] for r in reference], [[{"y": f}] for f in found], TOLERANCES[scheme])


def test_rounding_of_another_engine_passes() -> None:
    assert _judge(LOGITS, LOGITS * np.float32(1 + 3e-6)).verified is True


def test_an_exact_answer_has_no_snr() -> None:
    verdict = _judge(LOGITS, LOGITS.copy())
    assert verdict.verified is True and verdict.outputs[0].snr_db is None and verdict.top1_agreement == 1.0


@pytest.mark.parametrize("change", ["zero", "noise", "shifted", "swapped"])
def test_a_wrong_answer_never_passes(change: str) -> None:
    wrong = {
        "zero": np.zeros_like(LOGITS),
        "noise": LOGITS + RNG.normal(0, 0.1, LOGITS.shape).astype(np.float32),
        "shifted": np.roll(LOGITS, 1, axis=-1),
        "swapped": LOGITS[::-1],
    }[change]
    verdict = _judge(LOGITS, wrong)
    assert verdict.verified is False and verdict.why and "'y'" in verdict.why


def test_pitfall_n_07_large_logits_may_drift_and_zero_never_passes() -> None:
    large = LOGITS + 1000
    assert _judge(large, large + np.float32(0.01)).verified is True
    assert _judge(large, np.zeros_like(large)).verified is False


def test_pitfall_n_07_nan_and_shape_changes_always_fail() -> None:
    nan = LOGITS.copy()
    nan[2, 0, 3] = np.nan
    assert "NaN" in (_judge(LOGITS, nan).why or "")
    assert "shape" in (_judge(LOGITS, LOGITS[..., None]).why or "")
    assert "dtype" in (_judge(LOGITS, LOGITS.astype(np.float64)).why or "")


@pytest.mark.parametrize(("share", "passes"), [(0.065, True), (0.15, False)])
def test_half_precision_may_miss_single_values_by_little(share: float, passes: bool) -> None:
    many = np.repeat(LOGITS, 50, axis=-1)
    found = many.copy()
    found[0, 0, 3] += share * np.abs(many).max()
    assert _judge(many, found, "fp16").verified is passes
    assert _judge(many, many * np.float32(1.03), "fp16").verified is False, "30 dB"


def test_tiny_outputs_are_judged_by_their_own_scale() -> None:
    tiny = LOGITS * np.float32(1e-4)
    assert _judge(tiny, tiny * np.float32(1.0001)).verified is True
    assert _judge(tiny, tiny * np.float32(1.1)).verified is False


def test_probabilities_near_zero_may_differ_by_an_engines_rounding() -> None:
    near = np.abs(LOGITS) * np.float32(2e-7)  # at most 2.5e-6: what a text detector says of a picture without text
    assert _judge(near, near + np.float32(1.2e-7)).verified is True
    assert _judge(near, np.zeros_like(near)).verified is False


def test_infinity_on_both_sides_is_the_same_answer() -> None:
    masked = LOGITS.copy()
    masked[:, 0, 0] = -np.inf
    assert _judge(masked, masked.copy()).verified is True


def test_integers_must_be_equal() -> None:
    labels = RNG.integers(0, 9, (4, 1, 100))
    wrong = labels.copy()
    wrong[0, 0, 0] += 1
    assert _judge(labels, labels.copy()).verified is True
    assert "1 of 400" in (_judge(labels, wrong).why or "")


def test_snr_is_the_textbook_figure() -> None:
    ref = np.ones((1, 1000))
    assert fidelity_of("y", [ref], [ref + 0.01]).snr_db == pytest.approx(40.0, abs=1e-6)


def test_constant_outputs_are_named() -> None:
    signature = Signature((), (TensorSpec("same", "float32", (3,)), TensorSpec("varies", "float32", (3,))))
    steps = [[{"same": np.ones(3, np.float32), "varies": np.full(3, float(i), np.float32)}] for i in range(3)]
    assert constant_outputs(signature, steps) == ("same",)


def test_outputs_too_small_to_be_judged_are_named() -> None:
    signature = Signature((), tuple(TensorSpec(name, "float32", (3,)) for name in ("tiny", "zero", "usual")))
    values = np.arange(3, dtype=np.float32)
    steps = [[{"tiny": (values + i) * 1e-8, "zero": 0 * values, "usual": values + i}] for i in range(3)]
    found = {w.code: w.message for w in reference_warnings(signature, steps)}
    assert "in tiny are all below 1e-06" in found["tiny_output"]


class _Adder:
    """An engine that keeps a running sum, as a model with a mutable buffer does."""

    def __init__(self) -> None:
        self.total = 0.0

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        self.total += float(inputs[0].sum())
        return [np.full(1, self.total, np.float32)]

    def reset(self) -> None:
        self.total = 0.0


def test_pitfall_n_06_earlier_samples_never_change_later_ones() -> None:
    signature = Signature((TensorSpec("x", "float32", (1,)),), (TensorSpec("y", "float32", (1,)),))
    cases = [Case("static", ({"x": np.full(1, float(v), np.float32)},)) for v in (1, 2, 3)]
    forward = run_cases(_Adder(), signature, cases)  # type: ignore[arg-type]
    backward = run_cases(_Adder(), signature, cases[::-1])  # type: ignore[arg-type]
    assert [float(c[0]["y"][0]) for c in forward] == [1, 2, 3]
    assert [float(c[0]["y"][0]) for c in backward] == [3, 2, 1]


def test_the_imaginary_part_counts() -> None:
    one = np.array([1 + 1j, 2 - 1j], np.complex64)
    assert fidelity_of("z", [one], [one.conj()]).max_abs_error == 2.0


def test_rows_without_elements_agree_on_nothing() -> None:
    empty = np.zeros((0, 4), np.float32)
    assert fidelity_of("y", [empty], [empty]).top1_agreement is None
