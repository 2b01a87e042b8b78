"""What running a quantized file on data showed: the values that the guard judges and the report shows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from edgesdk import units
from edgesdk.artifacts import LayerError, OutputFidelity, Warn

Json = dict[str, Any]


@dataclass(frozen=True)
class Score:
    """The task metric of the original and of a lowered file on the same samples.

    Attributes:
        name: of the metric, e.g. ``top1``.
        original, value: in the metric's own unit; accuracies in points, 0…100.
        drop: points lost (for errors: per cent more of it); negative when the file is better.
    """

    name: str
    original: float
    value: float
    drop: float
    samples: int


def figure(value: float) -> str:
    """A score for people: two decimals of points, four digits of small numbers such as shares and errors."""
    return f"{value:.2f}" if abs(value) >= 10 or value == 0 else f"{value:.4g}"


@dataclass(frozen=True)
class Flip:
    """A sample whose best class changed.

    Attributes:
        margin: by how much the original's best score exceeded its second best; small ones flip first.
    """

    where: str
    was: str
    became: str
    margin: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """One lowered file against the original on real data.

    Attributes:
        samples: calls that were compared.
        data: ``evaluation``, ``calibration``, or ``made up`` when the user gave no data.
        where: the machine whose arithmetic was used, e.g. ``x86_64 host``, ``arm64 (emulated)``.
        score: the task metric, when the data carry labels.
        rows: predictions compared; several in a call with a batch.
        top1, top5: share of rows whose best class is the original's, and whose best class is among the original's best five;
            None unless an output holds class scores.
        flips: samples whose best class changed; the first twenty of ``flipped``.
        outputs: error and signal-to-noise ratio of each output.
        lost: share of an output's channels whose noise exceeds half of their variance, by output; see
            :class:`edgesdk.judging.Channels`.
        chance: what guessing reaches in the score, where that is known: 100 × k / classes for a top-k accuracy.
    """

    samples: int
    data: str
    where: str
    score: Score | None = None
    top1: float | None = None
    top5: float | None = None
    rows: int = 0
    flipped: int = 0
    flips: tuple[Flip, ...] = ()
    outputs: tuple[OutputFidelity, ...] = ()
    lost: dict[str, float] = field(default_factory=dict)
    chance: float | None = None

    @property
    def snr_db(self) -> float | None:
        """Of the worst output; None when none has an error."""
        return min((o.snr_db for o in self.outputs if o.snr_db is not None), default=None)


@dataclass(frozen=True)
class Probe:
    """One step of the search for layers to restore: how many were float, and what the file was worth then."""

    restored: int
    holds: bool
    drop: float | None
    top1: float | None
    snr_db: float | None


@dataclass(frozen=True)
class Race:
    """Latency of a quantized file and of its float twin, measured in turns on one machine.

    Attributes:
        ratio: quantized / float, the median over pairs of neighbouring blocks of calls; below 1 is faster. What else runs on the
            machine meets both of a pair, so it may differ from the quotient of the two medians.
        low, high: 95 % bootstrap interval of the ratio.
        float_p50, p50, p90: in milliseconds.
        where: e.g. ``x86_64 host, 1 thread``; never a device unless it was one.
    """

    ratio: float
    low: float
    high: float
    float_p50: float
    p50: float
    p90: float
    where: str
    rounds: int

    @property
    def slower(self) -> bool:
        """Beyond doubt, and by more than the five per cent that a rerun may differ by; the medians must say so too."""
        return self.low > 1.0 and self.ratio > 1.05 and self.p50 > self.float_p50


@dataclass(frozen=True)
class Arm64:
    """The same samples on emulated arm64 and on this machine.

    Attributes:
        evaluation: arm64 against the original.
        host: this machine against the original, on the same samples.
        equal: share of the output values that the two give to the bit.
        max_abs_difference: between the two.
    """

    evaluation: Evaluation
    host: Evaluation
    equal: float
    max_abs_difference: float


@dataclass(frozen=True)
class Stage:
    """What the metric was at one stage of quantization-aware training: ``float``, ``fake_quantized``, ``converted``…"""

    name: str
    value: float


_STAGES = re.compile(r"(float|fake-quantized|converted) ([0-9.e+-]*[0-9])")
TOP1 = "top-1"


def stages_of(warnings: Iterable[Warn], lowered: float | None) -> tuple[Stage, ...]:
    """The stages that the training told (``edgesdk.quantize._qat.Stages``), and the lowered file's own figure.

    Shares of right classes are shown in points, 0…100.

    Args:
        lowered: the same metric of the lowered file on the same samples, in points for ``top-1``.
    """
    text = next((w.message for w in warnings if w.code == "qat_stages"), "")
    scale = 100.0 if text.startswith(TOP1) else 1.0
    found = [Stage(name.replace("-", "_"), scale * float(value)) for name, value in _STAGES.findall(text)]
    return (*found, Stage("lowered", lowered)) if found and lowered is not None else tuple(found)


@dataclass(frozen=True)
class Guarded:
    """Everything the guard found out about one quantized variant.

    Attributes:
        evaluation: on this machine's arithmetic.
        arm64: on emulated arm64 arithmetic, where the emulator is set up; ``arm64_why`` says why not.
        arm64_host: this machine on the same samples; ``arm64_equal`` is the share of values that the two give to the bit.
        errors: noise of each layer, the worst first; empty when it was not measured.
        restored: layers that the search put back to float.
        probes: the steps of that search.
        float_bytes: size of the float twin.
        max_drop: the limit that the file was held to; None for the default gate.
        stages: of quantization-aware training; empty for other schemes.
        host: this machine's processor and the features that int8 kernels depend on, see :func:`edgesdk.emulated.host_cpu`.
        tried: with ``auto``, what became of every candidate: ``{"executorch-xnnpack-fp16": "kept: 405 kB, …"}``.
    """

    evaluation: Evaluation
    arm64: Evaluation | None = None
    arm64_host: Evaluation | None = None
    arm64_equal: float | None = None
    arm64_why: str | None = None
    errors: tuple[LayerError, ...] = ()
    restored: tuple[str, ...] = ()
    probes: tuple[Probe, ...] = ()
    float_bytes: int | None = None
    race: Race | None = None
    max_drop: float | None = None
    stages: tuple[Stage, ...] = ()
    host: dict[str, Any] = field(default_factory=dict)
    tried: dict[str, str] = field(default_factory=dict)

    def metric_json(self) -> Json | None:
        """``{"name", "original", "value", "samples"}`` of ``edgesdk.package/1``."""
        score = self.evaluation.score
        if score is None:
            return None
        return {"name": score.name, "original": score.original, "value": score.value, "samples": score.samples}

    def latency_json(self) -> Json | None:
        """``{"p50", "p90", "where"}`` in milliseconds; of the host that made the package, never of a device."""
        race = self.race
        return {"p50": race.p50, "p90": race.p90, "where": race.where} if race else None

    def to_json(self) -> Json:
        """For ``report.json``."""
        document: Json = GUARDED.dump_python(self, mode="json")
        return document


EVALUATION = TypeAdapter(Evaluation)
GUARDED = TypeAdapter(Guarded)
RACE = TypeAdapter(Race)
ARM64 = TypeAdapter(Arm64)
ERRORS = TypeAdapter(tuple[LayerError, ...])


def facts(size: int, guarded: Guarded | None) -> str:
    """A judged file in a line: ``475 kB, top1 90.56 -> 90.45, 0.36 of float32's time``."""
    found = [units.size(size)]
    seen = guarded.evaluation if guarded else None
    if seen and seen.score:
        found.append(f"{seen.score.name} {figure(seen.score.original)} -> {figure(seen.score.value)}")
    elif seen and seen.top1 is not None:
        found.append(f"top-1 agreement {seen.top1:.1%}")
    elif seen and seen.snr_db is not None:
        found.append(f"SNR {seen.snr_db:.1f} dB")
    if guarded and guarded.race:
        found.append(f"{guarded.race.ratio:.2f} of float32's time")
    return ", ".join(found)
