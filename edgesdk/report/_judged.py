"""What running a file on data showed, in words: metric, agreement, noise, time on the machine that built it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgesdk.judging import RISKY_TOP1
from edgesdk.report import _words
from edgesdk.report._base import Tone

Json = Mapping[str, Any]
_SMALL_DROP = 1.0
"""Points of an accuracy that a good int8 file may lose; the limit that most users set with ``--max-drop``."""
_KEPT = 0.1
"""Points, or per cent of an error, below which nobody would notice."""
_SMALL_RISE = 5.0
"""Per cent by which an error (MAE and the like) may grow; where reruns of a training differ by as much."""
_TITLES = {
    "top1": "Top-1 accuracy",
    "top5": "Top-5 accuracy",
    "mean_iou": "Mean IoU",
    "mae": "Mean absolute error",
    "mse": "Mean squared error",
}
_ERRORS = ("mae", "mse")
_DATA = {"evaluation": "evaluation data", "calibration": "calibration data", "made up": "made-up inputs"}


@dataclass(frozen=True)
class Score:
    """A task metric of the original and of one file. ``lost`` says by how much it fell; its numbers are in words."""

    title: str
    original: str
    value: str
    lost: str
    drop: float
    points: bool
    samples: int

    @property
    def small(self) -> bool:
        return self.drop <= (_SMALL_DROP if self.points else _SMALL_RISE)

    @property
    def tone(self) -> Tone:
        return "good" if self.small else "warn"


@dataclass(frozen=True)
class Pace:
    """Time of a file and of its float32 twin, on ``where``: a machine that built the package, never a device."""

    time: str
    twin: str
    ratio: str
    interval: str
    where: str
    slower: bool
    faster: bool

    @property
    def tone(self) -> Tone:
        return "warn" if self.slower else "good"


def guard(variant: Json) -> Json:
    """What the guard found out; empty when the file was not judged."""
    return (variant.get("details") or {}).get("guard") or {}


def evaluation(variant: Json) -> Json:
    """How the file did on data; empty when it was not run on any."""
    found: Json = guard(variant).get("evaluation") or {}
    return found if found.get("samples") else {}


def on_real_data(found: Json) -> bool:
    return found.get("data") in ("evaluation", "calibration")


def number(value: Any) -> float | None:
    """A finite number, else None."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None


def least_snr(found: Json) -> float | None:
    """Of the worst output; None when there is no error, or nothing was run."""
    values = (number(o.get("snr_db")) for o in found.get("outputs") or ())
    return min((v for v in values if v is not None), default=None)


def exact(found: Json) -> bool:
    outputs: Sequence[Json] = found.get("outputs") or ()
    return bool(outputs) and all(o.get("max_abs_error") == 0 for o in outputs)


def noise(found: Json) -> str:
    """The worst output's signal-to-noise ratio in words."""
    return "exact" if exact(found) else decibels(least_snr(found))


def decibels(value: float | None) -> str:
    """With a decimal: layers of one net often lie within a few decibels."""
    return "–" if value is None else f"{value:.1f} dB".replace("-0.0", "0.0").replace("-", "−")


def title(name: Any) -> str:
    return _TITLES.get(str(name), str(name))


def score(found: Json | None) -> Score | None:
    """The metric of an evaluation (``guard.evaluation.score``)."""
    told: Json = (found or {}).get("score") or {}
    original, value, drop = (number(told.get(key)) for key in ("original", "value", "drop"))
    if original is None or value is None:
        return None
    name = str(told.get("name") or "metric")
    drop = original - value if drop is None else drop
    points = name not in _ERRORS and abs(original - value - drop) <= 1e-6 * max(1.0, abs(original))
    return Score(
        title(name), metric(original, points), metric(value, points), lost(drop, points), drop, points,
        int(number(told.get("samples")) or 0),
    )  # fmt: skip


def metric(value: float | None, points: bool = True) -> str:
    """Points with two decimals: 0.01 is one of ten thousand samples. Other units with three digits."""
    return "–" if value is None else f"{value:.2f}" if points else _words.number(value)


def lost(drop: float, points: bool = True) -> str:
    """``0.12 points lower``, ``2.1 % worse``."""
    size = f"{abs(drop):.2f}" if points else f"{abs(drop):.1f}"
    if float(size) == 0:
        return "unchanged"
    if points:
        return f"{size} points {'lower' if drop > 0 else 'higher'}"
    return f"{size} % {'worse' if drop > 0 else 'better'}"


def sample_words(found: Json) -> str:
    """``on 10,000 samples of evaluation data``."""
    count = int(number(found.get("samples")) or 0)
    data = _DATA.get(str(found.get("data")), str(found.get("data") or "unnamed data"))
    return f"on {count:,} sample{'' if count == 1 else 's'} of {data}"


def pace(variant: Json) -> Pace | None:
    """Of the race against float32, or the bare time when there was none."""
    race: Json = guard(variant).get("race") or {}
    ratio, p50, twin = (number(race.get(key)) for key in ("ratio", "p50", "float_p50"))
    where = str(race.get("where") or "")
    if ratio is None or p50 is None or twin is None:
        latency: Json = variant.get("latency_ms") or {}
        p50, where = number(latency.get("p50")), str(latency.get("where") or "")
        return None if p50 is None else Pace(_ms(p50), "", "", "", _place(where), slower=False, faster=False)
    low, high = number(race.get("low")), number(race.get("high"))
    interval = "" if low is None or high is None else f"{low:.2f} to {high:.2f}"
    slower = (ratio if low is None else low) > 1.0 and ratio > 1.05  # as evaluation.Race.slower
    faster = (ratio if high is None else high) < 1.0
    return Pace(_ms(p50), _ms(twin), f"{ratio:.2f} ×", interval, _place(where), slower, faster)


def _ms(value: float) -> str:
    return _words.nanoseconds(value * 1e6)


def _place(where: str) -> str:
    return where or "the machine that built it"


def agreement(variant: Json) -> str:
    """``99.1 % same first answers, 24.3 dB``: the figures beside a metric, from the same data; empty when there are none."""
    found = evaluation(variant)
    top1 = number(found.get("top1"))
    parts = [
        f"{_words.percent(top1)} same first answers" if top1 is not None and score(found) else "",
        noise(found) if found.get("outputs") else "",
    ]
    return ", ".join(filter(None, parts))


def verdict(variant: Json) -> tuple[Tone, str, str] | None:
    """(tone, headline, explanation) from real data, which say more than noise does; None when there are none."""
    found = evaluation(variant)
    if not found or not on_real_data(found) or variant.get("verified") is not True:
        return None
    told, top1 = score(found), number(found.get("top1"))
    if told is not None:
        words = f"{told.title} {told.original} → {told.value} {sample_words(found)}"
        what = "accuracy" if told.points else "quality"
        kept = "kept" if told.drop <= _KEPT else "nearly kept" if told.small else "lower"
        return told.tone, f"{what} {kept}", words
    if top1 is not None:
        words = f"the same first answer for {_words.percent(top1)} {sample_words(found)}"
        return ("warn", "some answers change", words) if top1 < RISKY_TOP1 else ("good", "answers kept", words)
    return None
