"""An evaluation gathers, over a stream, what a user asks of a quantized file."""

from __future__ import annotations

import numpy as np

from edgesdk import metrics
from edgesdk._comparing import Comparison
from edgesdk.artifacts import Signature, TensorSpec, Warn
from edgesdk.data import Sample
from edgesdk.evaluation import EVALUATION, Stage, stages_of
from edgesdk.quantize._qat import Stages

SIGNATURE = Signature((TensorSpec("x", "float32", (1, 4)),), (TensorSpec("y", "float32", (1, 3)),))


def row(*scores: float) -> dict[str, np.ndarray]:
    return {"y": np.array([scores], np.float32)}


def test_metric_agreement_flips_and_noise_of_one_stream() -> None:
    comparison = Comparison(SIGNATURE, metrics.find("top1", SIGNATURE), ["cat", "dog", "fox"])
    stream = [
        (0, row(3, 1, 0), row(3, 1, 0)),  # right before, right after
        (1, row(0, 2, 1), row(0, 1, 2)),  # right before, wrong after: a flip
        (2, row(1, 0, 0), row(0, 0, 1)),  # wrong before, right after: a flip too
        (2, row(1, 0, 0), row(1, 0, 0)),  # wrong both times
    ]
    for index, (label, wanted, given) in enumerate(stream):
        comparison.update(Sample({}, np.array([label]), f"row {index}"), wanted, given)
    found = comparison.result("evaluation", "x86_64 host")
    assert (found.samples, found.rows, found.flipped, found.top1) == (4, 4, 2, 0.5)
    assert [(f.where, f.was, f.became) for f in found.flips] == [("row 1", "dog", "fox"), ("row 2", "cat", "fox")]
    assert found.score is not None and (found.score.original, found.score.value, found.score.drop) == (50.0, 50.0, 0.0)
    # Σ ref² = 10 + 5 + 1 + 1, Σ error² = 0 + 2 + 2 + 0
    assert found.snr_db is not None and abs(found.snr_db - 10 * np.log10(17 / 4)) < 1e-9
    assert EVALUATION.validate_json(EVALUATION.dump_json(found)) == found


def test_without_labels_there_is_no_metric_and_everything_else() -> None:
    comparison = Comparison(SIGNATURE, None, None)
    comparison.update(Sample({}, None, "a"), row(0, 0, 1), row(1, 0, 0))
    found = comparison.result("calibration", "x86_64 host")
    assert found.score is None and found.top1 == 0.0 and found.flips[0].became == "class 0"


def test_pitfall_q_13_the_stages_of_training_end_with_the_lowered_file() -> None:
    """What the training tells is read back whole, whatever its numbers look like."""
    told = Warn("qat_stages", f"{Stages('top-1', 512, 0.98, 1.0, 1e-05)}.")
    assert stages_of([told], 97.5) == (
        Stage("float", 98.0), Stage("fake_quantized", 100.0), Stage("converted", 1e-3), Stage("lowered", 97.5)
    )  # fmt: skip
    errors = Warn("qat_stages", f"{Stages('mean squared error', 64, 0.25, 0.5, 0.75)}.")
    assert [stage.value for stage in stages_of([errors], None)] == [0.25, 0.5, 0.75]
    assert stages_of([Warn("other", "float 1, converted 2")], 1.0) == ()
