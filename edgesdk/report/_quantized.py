"""What quantization did to one file: the noise of its layers, what stayed in float and why, and what that cost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgesdk.report import _arithmetic, _judged, _words
from edgesdk.report._base import Fact, Tone
from edgesdk.report._judged import decibels, number

Json = Mapping[str, Any]
_NOISY = 12
_LISTED = 25
_SILENT_DB = 60.0
"""Where the bar of a layer's noise is empty: a thousandth of the signal, which no int8 layer reaches."""
_MOSTLY = 0.5
"""Below this share of quantized weights the file can hardly be half as large as float32."""


@dataclass(frozen=True)
class Part:
    """Weights of one precision. ``bytes`` and ``share`` count them as the original's float32."""

    name: str
    layers: int
    bytes: int
    share: float
    words: str

    @property
    def pair(self) -> tuple[str, float]:
        """As a part of the stacked bar."""
        return self.name, float(self.bytes)


@dataclass(frozen=True)
class LayerRow:
    name: str
    op: str
    precision: str
    size: str
    why: str
    restored: bool


@dataclass(frozen=True)
class NoiseRow:
    """One layer. ``own`` and ``alone`` fill bars, 0 (quiet) … 1 (noise as large as the signal); None: not known."""

    name: str
    op: str
    own: float | None
    own_words: str
    own_db: float | None
    alone: float | None
    alone_words: str
    alone_db: float | None
    restored: bool


@dataclass(frozen=True)
class StepRow:
    """One step of the search. ``share`` is its loss over the greatest of all steps, None when nothing was lost or known."""

    restored: int
    holds: bool
    lost: str
    share: float | None
    top1: str
    snr: str


@dataclass(frozen=True)
class FlipRow:
    """A changed prediction; ``margin`` is how far the original's best score was ahead of its second, "" if not known."""

    where: str
    was: str
    became: str
    margin: str


@dataclass(frozen=True)
class PlaceRow:
    """The same file on one machine's arithmetic."""

    where: str
    samples: str
    metric: str
    top1: str
    top5: str
    snr: str


@dataclass(frozen=True)
class StageRow:
    """One stage of quantization-aware training; ``change`` is against the stage before, ``worst`` where most was lost."""

    name: str
    value: str
    change: str
    worst: bool


@dataclass(frozen=True)
class QuantizedView:
    """Everything about one file's quantization; empty tuples and strings are left out of the page."""

    advice: tuple[tuple[Tone, str], ...]
    facts: tuple[Fact, ...]
    parts: tuple[Part, ...]
    parts_words: str
    floats: tuple[LayerRow, ...]
    floats_more: str
    altered: tuple[LayerRow, ...]
    altered_more: str
    noise: tuple[NoiseRow, ...]
    noise_more: str
    restored: tuple[str, ...]
    steps: tuple[StepRow, ...]
    metric: str
    flips: tuple[FlipRow, ...]
    flips_words: str
    places: tuple[PlaceRow, ...]
    places_words: str
    stages: tuple[StageRow, ...]
    tried: tuple[tuple[str, str, bool], ...]

    @property
    def has_margin(self) -> bool:
        return any(flip.margin for flip in self.flips)

    @property
    def has_alone(self) -> bool:
        return any(row.alone_words for row in self.noise)


def view(variant: Json) -> QuantizedView | None:
    """None when the document says nothing about quantization."""
    details: Json = variant.get("details") or {}
    guard, layers = _judged.guard(variant), tuple(details.get("layers") or ())
    if not guard and not layers:
        return None
    found, restored = _judged.evaluation(variant), frozenset(map(str, guard.get("restored") or ()))
    parts = _parts(layers)
    floats = sorted((x for x in layers if left_out(x)), key=_by_size)
    altered = sorted((x for x in layers if not _is_float(x) and x.get("why")), key=_by_size)
    errors = sorted(guard.get("errors") or (), key=_harm)
    places, places_words = _places(variant, guard, found)
    told = _judged.score(found)
    return QuantizedView(
        advice=tuple(_advice(variant, found, parts)),
        facts=_facts(variant, guard, found),
        parts=parts,
        parts_words=_parts_words(parts),
        floats=tuple(_layer(x, restored) for x in floats[:_LISTED]),
        floats_more=_more(floats[_LISTED:], "layers in float"),
        altered=tuple(_layer(x, restored) for x in altered[:_LISTED]),
        altered_more=_more(altered[_LISTED:], "layers"),
        noise=tuple(_noise(e, restored) for e in errors[:_NOISY]),
        noise_more=_quieter(errors[_NOISY:]),
        restored=tuple(sorted(restored)),
        steps=_steps(guard.get("probes") or (), told is None or told.points),
        metric=told.title if told else "",
        flips=tuple(_flip(f) for f in found.get("flips") or ()),
        flips_words=_flips_words(found),
        places=places,
        places_words=places_words,
        stages=_stages(details, guard),
        tried=tuple(
            (str(id_), str(what), str(what).startswith("kept")) for id_, what in (guard.get("tried") or {}).items()
        ),
    )


# -- layers ---------------------------------------------------------------------------------------------------------------


def _is_float(layer: Json) -> bool:
    return str(layer.get("precision")).startswith(("float", "bfloat"))


def left_out(layer: Json) -> bool:
    """Float layers that cost bytes or have a reason; the rest (a reshape) was never a candidate."""
    return _is_float(layer) and bool(layer.get("bytes") or layer.get("why"))


def _bytes(layer: Json) -> int:
    return int(number(layer.get("bytes")) or 0)


def _by_size(layer: Json) -> tuple[int, str]:
    return -_bytes(layer), str(layer.get("name", ""))


def _layer(layer: Json, restored: frozenset[str]) -> LayerRow:
    name, size = str(layer.get("name", "?")), _bytes(layer)
    return LayerRow(
        name=name,
        op=str(layer.get("op") or ""),
        precision=str(layer.get("precision") or ""),
        size=_words.size(size) if size else "–",
        why=str(layer.get("why") or ""),
        restored=name in restored,
    )


def _more(left: Sequence[Json], what: str) -> str:
    if not left:
        return ""
    size = sum(map(_bytes, left))
    return f"{len(left)} more {what} ({_words.size(size)} together): see details.layers in report.json."


def _parts(layers: Sequence[Json]) -> tuple[Part, ...]:
    """The weights by precision, the quantized first."""
    sizes: dict[str, list[int]] = {}
    for layer in layers:
        if _bytes(layer):
            sizes.setdefault(str(layer.get("precision")), []).append(_bytes(layer))
    total = sum(sum(found) for found in sizes.values())
    order = sorted(sizes, key=lambda name: (name.startswith(("float", "bfloat")), -sum(sizes[name]), name))
    return tuple(
        Part(name, len(sizes[name]), size, size / total, f"{_words.percent(size / total)} ({_words.size(size)})")
        for name in order
        for size in [sum(sizes[name])]
    )


def share(layers: Sequence[Json]) -> float | None:
    """Part of the weights that was quantized, 0…1; None when no layer with weights is known."""
    parts = _parts(layers)
    return _quantized_share(parts) if parts else None


def _quantized_share(parts: Sequence[Part]) -> float:
    return sum(part.share for part in parts if not part.name.startswith(("float", "bfloat")))


def _parts_words(parts: Sequence[Part]) -> str:
    if not parts:
        return ""
    names = [part.name for part in parts if not part.name.startswith(("float", "bfloat"))]
    share = _quantized_share(parts)
    became = (
        f"{_words.percent(share)} of the weights became {' or '.join(names)}" if names else "No weight was quantized"
    )
    return f"{became}, counted by their size in the original's float32."


# -- noise ----------------------------------------------------------------------------------------------------------------


def _harm(error: Json) -> tuple[int, float, str]:
    """The search's own order: by what a layer alone does to the answer, else by the noise in its own output."""
    own, alone = number(error.get("snr_db")), number(error.get("alone_db"))
    first = (0, alone) if alone is not None else (1, 999.0 if own is None else own)
    return (*first, str(error.get("name", "")))


def _noise(error: Json, restored: frozenset[str]) -> NoiseRow:
    own, alone = number(error.get("snr_db")), number(error.get("alone_db"))
    name = str(error.get("name", "?"))
    return NoiseRow(
        name=name,
        op=str(error.get("op") or ""),
        own=_loudness(own),
        own_words="no error" if own is None else decibels(own),
        own_db=own,
        alone=_loudness(alone),
        alone_words="" if alone is None else decibels(alone),
        alone_db=alone,
        restored=name in restored,
    )


def _loudness(snr_db: float | None) -> float | None:
    return None if snr_db is None else min(max(1 - snr_db / _SILENT_DB, 0.0), 1.0)


def _quieter(left: Sequence[Json]) -> str:
    """How many layers the picture leaves out, and that none of them is worse."""
    if not left:
        return ""
    return (
        f"{len(left)} more layer{'' if len(left) == 1 else 's'} do less harm: see details.guard.errors in report.json."
    )


def _steps(probes: Sequence[Json], points: bool) -> tuple[StepRow, ...]:
    """The steps of the search in the order they were taken; empty when the first file was good."""
    if len(probes) < 2:
        return ()
    losses = [_loss(probe) for probe in probes]
    greatest = max((loss for loss in losses if loss is not None), default=0.0)
    return tuple(
        StepRow(
            restored=int(number(probe.get("restored")) or 0),
            holds=bool(probe.get("holds")),
            lost="" if (drop := number(probe.get("drop"))) is None else _judged.lost(drop, points),
            share=None if loss is None or greatest <= 0 else max(loss, 0.0) / greatest,
            top1=_words.percent(number(probe.get("top1"))),
            snr=decibels(number(probe.get("snr_db"))),
        )
        for probe, loss in zip(probes, losses, strict=True)
    )


def _loss(probe: Json) -> float | None:
    drop, top1 = number(probe.get("drop")), number(probe.get("top1"))
    return drop if drop is not None else None if top1 is None else 1 - top1


# -- predictions, machines, stages ----------------------------------------------------------------------------------------


def _flip(flip: Json) -> FlipRow:
    margin = number(flip.get("margin"))
    told = "" if margin is None else _words.number(margin)
    return FlipRow(str(flip.get("where", "")), str(flip.get("was", "")), str(flip.get("became", "")), told)


def _flips_words(found: Json) -> str:
    count, shown = int(number(found.get("flipped")) or 0), len(found.get("flips") or ())
    if not count:
        return ""
    of = int(number(found.get("rows")) or number(found.get("samples")) or 0)
    words = f"{count:,} of {of:,} predictions changed their best class"
    first = "the first is shown" if shown == 1 else f"the first {shown} are shown"
    return f"{words}; {first}." if 0 < shown < count else f"{words}."


def _place(found: Json, where: str) -> PlaceRow:
    told = _judged.score(found)
    return PlaceRow(
        where=str(found.get("where") or where),
        samples=f"{int(number(found.get('samples')) or 0):,}",
        metric="" if told is None else f"{told.original} → {told.value}",
        top1=_words.percent(number(found.get("top1"))),
        top5=_words.percent(number(found.get("top5"))),
        snr=_judged.noise(found),
    )


def _places(variant: Json, guard: Json, found: Json) -> tuple[tuple[PlaceRow, ...], str]:
    """This machine's figures beside emulated arm64's, or one sentence on why there are none and what that hides."""
    arm64: Json = guard.get("arm64") or {}
    if found and arm64.get("samples"):
        fewer = (number(arm64["samples"]) or 0) < (number(found["samples"]) or 0)
        slow = (
            "The emulator is slow, so it ran fewer samples: compare the shares, not the last digit. " if fewer else ""
        )
        host: Json = guard.get("arm64_host") or found  # on the same samples, where they were run
        slow = "" if host is not found else slow
        equal = number(guard.get("arm64_equal"))
        same = "" if equal is None else f"Of the output values {_words.percent(equal)} are the same to the bit. "
        words = f"Phones compute as arm64 does. {same}{slow}Emulation says nothing about time."
        return (_place(host, "this machine"), _place(arm64, "arm64 (emulated)")), words
    if not found or variant.get("quantization") in (None, "none", "fp16"):
        return (), ""
    where = str(found.get("where") or "")
    if where.startswith(("arm64", "aarch64")):
        return (), "These figures come from an arm64 machine, whose arithmetic is that of phones."
    judged = f"only on {f'the {where}' if where else 'this machine'}"
    reason = str(guard.get("arm64_why") or "It was not run on emulated arm64.")
    if guard.get("brief"):  # a bundle's manifest: what else was tried stands in the package's report
        return (), f"These figures come from the {where or 'machine that built it'}. {_arithmetic.hides(variant)}"
    return (), f"Not judged on a phone's arithmetic, {judged}. {reason} {_arithmetic.hides(variant)}"


def _stages(details: Json, guard: Json) -> tuple[StageRow, ...]:
    """Where quantization-aware training lost what it lost: float, fake-quantized, converted, lowered."""
    stages = [s for s in guard.get("stages") or details.get("stages") or () if isinstance(s, Mapping)]
    values = [number(stage.get("value")) for stage in stages]
    changes = [None, *(_change(a, b) for a, b in itertools.pairwise(values))]
    losses = [-c for c in changes if c is not None and c < -1e-9]
    deepest = max(losses, default=0.0)
    return tuple(
        StageRow(
            name=str(stage.get("name", "")).replace("_", "-"),
            value="–" if value is None else f"{value:.2f}",
            change="" if change is None else f"{change:+.2f}".replace("-", "−"),
            worst=bool(losses) and change is not None and -change == deepest,
        )
        for stage, value, change in zip(stages, values, changes, strict=False)
    )


def _change(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


# -- words ----------------------------------------------------------------------------------------------------------------


def _advice(variant: Json, found: Json, parts: Sequence[Part]) -> list[tuple[Tone, str]]:
    said: list[tuple[Tone, str]] = []
    pace = _judged.pace(variant)
    if pace and pace.slower:
        tail = f" (95 % interval {pace.interval})" if pace.interval else ""
        said.append((
            "warn", f"Keep float32 unless size is the aim: this file takes {pace.ratio} the time of its float32 twin{tail}, "
            f"measured on {pace.where}. Measure both on your device before you choose this one.",
        ))  # fmt: skip
    if parts and _quantized_share(parts) < _MOSTLY:
        said.append((
            "warn", f"Most of the weights stayed float ({_words.percent(1 - _quantized_share(parts))}), so the file shrank "
            "little. The table of layers left in float says why.",
        ))  # fmt: skip
    if found and not _judged.on_real_data(found):
        said.append((
            "warn", "It was judged on made-up inputs, which tell little about its accuracy: give real samples with --eval.",
        ))  # fmt: skip
    return said


def _facts(variant: Json, guard: Json, found: Json) -> tuple[Fact, ...]:
    size, twin = number(variant.get("bytes")), number(guard.get("float_bytes"))
    told, pace = _judged.score(found), _judged.pace(variant)
    drowned = [(name, number(share)) for name, share in (found.get("lost") or {}).items()]
    known = [
        Fact("Compared on", _judged.sample_words(found).removeprefix("on "), str(found.get("where") or ""))
        if found
        else None,
        Fact(told.title, f"{told.original} → {told.value}", told.lost) if told else None,
        Fact("Same first answer", _words.percent(found["top1"])) if number(found.get("top1")) is not None else None,
        Fact("In the first five", _words.percent(found["top5"]), "the file's answer among the original's best five")
        if number(found.get("top5")) is not None
        else None,
        Fact("Against its float32 file", f"{size / twin:.2f} ×", f"{_words.size(size)} of {_words.size(twin)}")
        if size and twin
        else None,
        _time(pace) if pace and pace.ratio else None,
        *(
            Fact("Channels lost in noise", _words.percent(share), f"of output {name}")
            for name, share in drowned
            if share
        ),
    ]
    return tuple(fact for fact in known if fact is not None)


def _time(pace: _judged.Pace) -> Fact:
    interval = f", 95 % interval {pace.interval}" if pace.interval else ""
    return Fact(
        "Time against float32", f"{pace.ratio}{interval}",
        f"{pace.time} against {pace.twin} on {pace.where}: not a phone's time",
    )  # fmt: skip
