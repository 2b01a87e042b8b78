"""The original and every file side by side: size, metric, agreement, noise, time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgesdk.report import _judged, _words
from edgesdk.report._base import Tone
from edgesdk.report._judged import Pace, Score

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One file; what is not known is "–". ``share`` is its size over the original's."""

    id: str
    title: str
    tone: Tone
    head: str
    size: str
    share: float | None
    ratio: str
    score: Score | None
    top1: str
    top5: str
    snr: str
    pace: Pace | None
    accelerated: str


@dataclass(frozen=True)
class Comparison:
    """A table whose empty columns are left out.

    Attributes:
        metric: its head; empty when no file has one.
        place: where times were taken when that was one place for all; else each row says it.
    """

    rows: tuple[Row, ...]
    original_size: str
    original_metric: str
    metric: str
    place: str
    data: str
    has: frozenset[str]


def view(variants: Sequence[Json], heads: Sequence[tuple[Tone, str]], original: int | None) -> Comparison | None:
    """The table of a package; None when no file was judged on data or timed.

    Args:
        heads: tone and headline of each variant.
        original: size of the original in bytes.
    """
    rows = tuple(_row(v, head, original) for v, head in zip(variants, heads, strict=True))
    if not any(_judged.evaluation(v) or _judged.pace(v) for v in variants):
        return None
    scores = [row.score for row in rows if row.score]
    places = {row.pace.where for row in rows if row.pace}
    data = {_judged.sample_words(found) for v in variants if (found := _judged.evaluation(v))}
    columns = {
        "metric": bool(scores),
        "top1": any(row.top1 != "–" for row in rows),
        "top5": any(row.top5 != "–" for row in rows),
        "snr": any(row.snr != "–" for row in rows),
        "pace": bool(places),
        "accelerated": any(row.accelerated != "–" for row in rows),
    }
    return Comparison(
        rows=rows,
        original_size=_words.size(original),
        original_metric=scores[0].original if scores else "–",
        metric=scores[0].title if len({s.title for s in scores}) == 1 else "Metric" if scores else "",
        place=next(iter(places)) if len(places) == 1 else "",
        data=next(iter(data)) if len(data) == 1 else "",
        has=frozenset(name for name, there in columns.items() if there),
    )


def _row(variant: Json, head: tuple[Tone, str], original: int | None) -> Row:
    found = _judged.evaluation(variant)
    size = _judged.number(variant.get("bytes"))
    share = size / original if size and original else None
    top1 = found.get("top1") if found else variant.get("top1_agreement")
    return Row(
        id=str(variant.get("id", "?")),
        title=f"{_words.runtime(variant)}, {_words.quantization(variant.get('quantization'))}",
        tone=head[0],
        head=head[1],
        size=_words.size(size),
        share=share,
        ratio=f"{share:.2f} × the original" if share else "",
        score=_judged.score(found),
        top1=_words.percent(_judged.number(top1)),
        top5=_words.percent(_judged.number(found.get("top5"))),
        snr=_judged.noise(found or variant),
        pace=_judged.pace(variant),
        accelerated=_words.percent(_judged.number(variant.get("delegated_fraction"))),
    )
