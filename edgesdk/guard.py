"""The guard of quantization: a file is judged on data through its real engine, and mended, or refused with the figures.

When a gate fails and ``--max-drop`` allows a search, the noisiest layers go back to float: one, two, four… until the gate
holds, then bisection between the last two. Every step is measured on the lowered file; nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgesdk.artifacts import Layer, LayerError, Lowered, Verification
from edgesdk.errors import GateError
from edgesdk.evaluation import EVALUATION, Evaluation, Guarded, Probe
from edgesdk.judging import measured, shortfall

_SHOWN = 6

Lower = Callable[[tuple[str, ...], Path], tuple[Lowered, Verification]]
"""(layers to keep in float, folder) → a lowered file that its engine runs."""


@dataclass(frozen=True)
class Tools:
    """What the search needs of the run: each is a job in a worker process.

    Attributes:
        lower: lowers once more with layers kept in float, into a folder.
        evaluate: runs a lowered file over the data.
        errors: noise of each layer, the worst first.
    """

    lower: Lower
    evaluate: Callable[[Lowered], Evaluation]
    errors: Callable[[], tuple[LayerError, ...]]
    report: Callable[[str, float | None], None]


@dataclass
class Search:
    """The state of one variant's guard."""

    id: str
    max_drop: float | None
    tools: Tools
    folder: Path
    probes: list[Probe] = field(default_factory=list)

    def run(self) -> tuple[Lowered, Verification, Guarded]:
        """A file that passes the gate.

        Raises:
            GateError: none does; the figures are in its message and details.
        """
        first = self._try(())
        if first[3] is None:
            return first[0], first[1], Guarded(first[2])
        errors = self.tools.errors()
        if self.max_drop is None:
            raise refused(self.id, first[3], first[2], errors, self.probes)
        names = _order(first[0].layers, errors)
        limit = _limit(names, first[0].layers)
        low, high, best = 0, 1, None
        while best is None:  # gallop: most nets need a few layers only
            if high >= limit:
                raise hopeless(self.id, first[3], first[2], errors, self.probes)
            made = self._try(tuple(names[:high]))
            low, high, best = (low, high, made) if made[3] is None else (high, min(2 * high, _next(high, limit)), None)
        while high - low > 1:
            middle = (low + high) // 2
            made = self._try(tuple(names[:middle]))
            if made[3] is None:
                high, best = middle, made
            else:
                low = middle
        guarded = Guarded(best[2], errors=errors, restored=tuple(names[:high]), probes=tuple(self.probes))
        return best[0], best[1], guarded

    def _try(self, keep: tuple[str, ...]) -> tuple[Lowered, Verification, Evaluation, str | None]:
        words = f"{self.id} with {len(keep)} layer{'s' if len(keep) > 1 else ''} in float" if keep else self.id
        self.tools.report(f"measuring {words}", None)
        lowered, verification = self.tools.lower(keep, self.folder / f"float-{len(keep)}")
        found = self.tools.evaluate(lowered)
        fault = shortfall(found, self.max_drop)
        drop = found.score.drop if found.score else None
        self.probes.append(Probe(len(keep), fault is None, drop, found.top1, found.snr_db))
        return lowered, verification, found, fault


def _next(high: int, limit: int) -> int:
    """The step before the limit is tried before giving up."""
    return limit - 1 if high < limit - 1 else limit


def _limit(names: Sequence[str], layers: Sequence[Layer]) -> int:
    """How many layers may not all be float: with them, no quantized weight would be left in the file."""
    weighted = {layer.name for layer in layers if layer.bytes}
    return max((i + 1 for i, name in enumerate(names) if name in weighted), default=0)


def _order(layers: Sequence[Layer], errors: Sequence[LayerError]) -> list[str]:
    """Quantized layers, those first that harm the answer most; a layer without figures comes last."""
    quantized = [layer.name for layer in layers if layer.precision not in ("float32", "float16")]
    harm = {
        e.name: (0, e.alone_db) if e.alone_db is not None else (1, e.snr_db if e.snr_db is not None else 999.0)
        for e in errors
    }
    return sorted(quantized, key=lambda name: (*harm.get(name, (2, 0.0)), name))


def worst(errors: Sequence[LayerError]) -> str:
    """The noisiest layers in words."""
    shown = [f"{e.name} ({e.op}) {_db(e)}" for e in errors[:_SHOWN]]
    return "; ".join(shown)


def _db(error: LayerError) -> str:
    own = "no error" if error.snr_db is None else f"{error.snr_db:.1f} dB"
    return own if error.alone_db is None else f"{own}, alone {error.alone_db:.1f} dB at the output"


def _details(id_: str, found: Evaluation, errors: Sequence[LayerError], probes: Sequence[Probe]) -> dict[str, Any]:
    return {
        "id": id_,
        "evaluation": EVALUATION.dump_python(found, mode="json"),
        "layers": [dict(e.__dict__) for e in errors],
        "probes": [dict(p.__dict__) for p in probes],
    }


def refused(
    id_: str, fault: str, found: Evaluation, errors: Sequence[LayerError], probes: Sequence[Probe]
) -> GateError:
    """The file has collapsed, and nothing says how much of it may be given up."""
    noisy = f" The noisiest layers: {worst(errors)}." if errors else ""
    return GateError(
        "accuracy_collapsed", f"{id_} is not good enough: {fault}.",
        why=f"Measured: {measured(found)}.{noisy}",
        fix="Give labelled data and a limit (--eval DATA --max-drop 1): the worst layers are then put back to float until it "
        "holds. Otherwise try --quantize dynamic-int8, weight-int8 or fp16, or more typical --calibration samples.",
        details=_details(id_, found, errors, probes),
    )  # fmt: skip


def hopeless(
    id_: str, fault: str, found: Evaluation, errors: Sequence[LayerError], probes: Sequence[Probe]
) -> GateError:
    """The gate holds only with every layer back in float: that would be a float file under another name."""
    table = ", ".join(f"{p.restored} → {_value(p)}" for p in probes)
    return GateError(
        "gate_not_met", f"{id_} can't keep to --max-drop: {fault}.",
        why=f"Layers put back to float, and what it was worth then: {table}. With all of them in float nothing is quantized.",
        fix="Allow a larger --max-drop, give more typical --calibration samples, or try --quantize qat-int8, weight-int8 or fp16.",
        details=_details(id_, found, errors, probes),
    )  # fmt: skip


def _value(probe: Probe) -> str:
    if probe.drop is not None:
        return f"drop {probe.drop:.2f}"
    if probe.top1 is not None:
        return f"agreement {probe.top1:.1%}"
    return "no error" if probe.snr_db is None else f"{probe.snr_db:.1f} dB"
