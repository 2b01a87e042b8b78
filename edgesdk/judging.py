"""What is good enough: the gate that a quantized file must pass, and the figures of single channels it looks at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgesdk.artifacts import Warn
from edgesdk.evaluation import Evaluation, Score, figure

if TYPE_CHECKING:
    Array = np.ndarray

LEAST_TOP1 = 0.8
"""Without ``--max-drop``: share of best classes that must stay. Useful int8 keeps 95 % and more; a collapse, 10 to 50 %."""
LEAST_LARGEST = 0.5
"""The same for outputs that may be embeddings, whose largest component means little: MiniLM in dynamic int8 has a cosine of
0.99 with the original and another largest component for many sentences."""
LIKE_EMBEDDING = 0.95
RISKY_TOP1 = 0.97
LEAST_SNR_DB = 10.0
"""Without ``--max-drop``: signal-to-noise ratio of the worst output. Below 10 dB a third of the answer is noise."""
DESTROYED_DB = 3.0
"""With ``--max-drop``: below this in every output half of the answer's power is noise, whatever the metric says."""
MOST_LOST = 0.5
"""Share of an output's channels that may drown in noise: one huge channel sets the scale and hides it from the ratio."""
_CHANCE = 1.5
"""Times what guessing reaches that an original must exceed."""
_FEW = 32
_LOST_RATIO = 0.5
_MOST_CHANNELS = 65_536


class Channels:
    """Noise of each channel (axis 1) of one output against that channel's own variance, streaming.

    A channel counts as lost when its noise power exceeds half of its variance (3 dB): what is left tells samples apart
    badly. Probabilities (all values in 0…1) are left out: rare classes round to zero, and rightly so.
    """

    def __init__(self) -> None:
        self._count = 0
        self._sum: Array | None = None
        self._square: Array | None = None
        self._noise: Array | None = None
        self._probabilities = True

    def update(self, wanted: Array, given: Array) -> None:
        """Take in one call: both [N, C, …], of the same shape."""
        if wanted.ndim < 2 or wanted.dtype.kind != "f" or not 1 < wanted.shape[1] <= _MOST_CHANNELS:
            return
        ref = np.moveaxis(wanted.astype(np.float64), 1, 0).reshape(wanted.shape[1], -1)
        got = np.moveaxis(given.astype(np.float64), 1, 0).reshape(wanted.shape[1], -1)
        if self._sum is not None and self._sum.shape[0] != ref.shape[0]:
            return  # axis 1 is a dynamic length, not a channel
        self._probabilities &= bool(ref.size) and float(ref.min()) >= 0.0 and float(ref.max()) <= 1.0
        parts = (ref.sum(1), np.square(ref).sum(1), np.square(ref - got).sum(1))
        if self._sum is None or self._square is None or self._noise is None:
            self._sum, self._square, self._noise = parts
        else:
            self._sum, self._square, self._noise = self._sum + parts[0], self._square + parts[1], self._noise + parts[2]
        self._count += ref.shape[1]

    @property
    def lost(self) -> float | None:
        """Share of channels that are lost, 0…1; None when the output has no channels to tell apart."""
        if self._sum is None or self._square is None or self._noise is None or self._probabilities or self._count < 2:
            return None
        variance = self._square / self._count - np.square(self._sum / self._count)
        alive = variance > 1e-12 * max(1e-30, float(self._square.max()) / self._count)
        if not alive.any():
            return None
        lost = self._noise / self._count > _LOST_RATIO * variance
        return float(np.mean(lost[alive]))


def shortfall(found: Evaluation, max_drop: float | None) -> str | None:
    """What the gate holds against a file, in one sentence; None when it passes.

    Args:
        max_drop: points of the task metric that may be lost. Without labels, points of agreement with the original's best
            class. None: the file must not have collapsed, see the constants above.
    """
    if max_drop is not None:
        return _over(found, max_drop)
    for name, share in found.lost.items():
        if share > MOST_LOST:
            return f"{share:.0%} of the channels of '{name}' drown in noise"
    top1 = found.top1
    if top1 is not None and found.data != "made up":
        least = LEAST_TOP1 if _classes(found) else LEAST_LARGEST
        allowed = max(1.0, (1 - least) * found.rows)
        if found.flipped > allowed:
            return f"its best class is the original's for {top1:.1%} of the samples, less than {least:.0%}"
    worst = min(found.outputs, key=lambda o: np.inf if o.snr_db is None else o.snr_db, default=None)
    if worst is None or worst.snr_db is None or worst.snr_db >= LEAST_SNR_DB or worst.max_abs_error <= 1e-6:
        return None
    if top1 is not None and found.samples >= _FEW and top1 >= RISKY_TOP1 and len(found.outputs) == 1:
        return None  # the classes are right, which is what such an output is for
    return (
        f"output '{worst.name}' has a signal-to-noise ratio of {worst.snr_db:.1f} dB, less than {LEAST_SNR_DB:.0f} dB"
    )


def _classes(found: Evaluation) -> bool:
    """Whether the output ``[N, K]`` holds scores of classes: an embedding has the same shape, and no class to keep."""
    if found.score is not None:
        return found.score.name.startswith("top")
    output = next((o for o in found.outputs if o.top1_agreement is not None), None)
    # Wrong classes at a good ratio are near ties of an embedding, or one huge class that hides the others.
    return output is None or output.cosine is None or output.cosine < LIKE_EMBEDDING


def _over(found: Evaluation, max_drop: float) -> str | None:
    score = found.score
    if score is not None:
        if score.drop <= max_drop + 1e-9:
            return _destroyed(found, score)
        return (
            f"{score.name} went from {figure(score.original)} to {figure(score.value)}: a drop of {score.drop:.2f} points, "
            f"more than {max_drop:g}"
        )
    if found.top1 is None:
        return "there is no metric to judge by"
    lost = 100 * (1 - found.top1)
    if lost <= max_drop + 1e-9:
        return None
    return f"its best class differs for {lost:.2f} % of the samples, more than {max_drop:g}"


def _destroyed(found: Evaluation, score: Score) -> str | None:
    """A metric that sees no difference where hardly anything is left of the answers can't be right."""
    noisy = all(o.snr_db is not None and o.snr_db < DESTROYED_DB for o in found.outputs)
    if not noisy or (found.top1 is not None and found.top1 >= LEAST_LARGEST):
        return None
    return (
        f"nothing is left of the answers ({found.snr_db:.1f} dB), though {score.name} sees no loss ({score.original:.4g} → "
        f"{score.value:.4g}): does the metric read the outputs?"
    )


def measured(found: Evaluation) -> str:
    """The figures of an evaluation in a line."""
    words = []
    if found.score:
        words.append(f"{found.score.name} {figure(found.score.original)} → {figure(found.score.value)}")
    if found.top1 is not None:
        words.append(f"top-1 agreement {found.top1:.1%}")
    if found.snr_db is not None:
        words.append(f"SNR {found.snr_db:.1f} dB")
    return f"{', '.join(words) or 'no error'} on {found.samples} samples ({found.data}, {found.where})"


def other_schemes(advice: str, scheme: str) -> str:
    """Advice of the form ``try --quantize a, b or c`` without the scheme that was just tried."""

    def named(found: re.Match[str]) -> str:
        *first, last = [name for name in re.split(", | or ", found[1]) if name != scheme]
        return f"--quantize {', '.join(first)} or {last}" if first else f"--quantize {last}"

    return re.sub(r"--quantize ([\w-]+(?:, [\w-]+)* or [\w-]+)", named, advice)


def _guessing(id_: str, found: Evaluation) -> Iterator[Warn]:
    """An original that guesses can't be harmed, and the comparison says nothing (pitfall Q-06)."""
    score, chance = found.score, found.chance
    if score is not None and chance is not None and score.original <= _CHANCE * chance:
        yield Warn(
            "original_guesses", f"{id_}: the original itself has {score.name} {figure(score.original)} on these data, where guessing has "
            f"{figure(chance)}. Labels in another order than the model's classes, or pictures prepared otherwise than in "
            "training, do that; nothing can be said about accuracy before it is mended.",
        )  # fmt: skip


def remarks(id_: str, found: Evaluation, max_drop: float | None) -> tuple[Warn, ...]:
    """What the user should know about a file that passed."""
    said = list(_guessing(id_, found))
    if max_drop is not None and found.score is None:
        said.append(Warn(
            "judged_by_agreement", f"{id_}: --eval carries no labels that fit, so --max-drop counts changed best classes: "
            f"{found.flipped} of {found.rows}. Add an array 'label' (or class folders) to count lost points of accuracy.",
        ))  # fmt: skip
    if max_drop is None and found.top1 is not None and found.data != "made up" and found.top1 < RISKY_TOP1:
        said.append(Warn(
            "accuracy_at_risk", f"{id_}: {measured(found)}. Give labelled data with --eval and a limit with --max-drop: "
            "layers are then put back to float until it holds.",
        ))  # fmt: skip
    if max_drop is None and found.score is not None and found.score.drop > 1.0:
        said.append(Warn(
            "metric_dropped", f"{id_}: {found.score.name} fell from {figure(found.score.original)} to {figure(found.score.value)}; "
            "--max-drop 1 would have put layers back to float.",
        ))  # fmt: skip
    return tuple(said)
