"""Quantization in Markdown: the comparison of all files, and the tables of each quantized one."""

from __future__ import annotations

from collections.abc import Sequence

from edgesdk.report._comparison import Comparison, Row
from edgesdk.report._markdown import code, facts, table, text
from edgesdk.report._quantized import LayerRow, QuantizedView


def comparison(found: Comparison) -> list[str]:
    """The original and every file side by side."""
    columns = [
        ("File", "Original", lambda r: f"{code(r.id)}<br>{text(r.head)}"),
        ("Size", found.original_size, lambda r: f"{r.size}<br>{text(r.ratio)}" if r.ratio else r.size),
        (text(found.metric), found.original_metric, _metric) if "metric" in found.has else None,
        ("Same first answer", "", lambda r: r.top1) if "top1" in found.has else None,
        ("In the first five", "", lambda r: r.top5) if "top5" in found.has else None,
        ("SNR", "", lambda r: r.snr) if "snr" in found.has else None,
        (f"Time on {text(found.place) or 'the machine that built it'}", "", _pace) if "pace" in found.has else None,
    ]
    shown = [column for column in columns if column]
    rows = [[first for _, first, _ in shown], *([cell(row) for _, _, cell in shown] for row in found.rows)]
    lead = f"Compared {text(found.data)}. " if found.data else ""
    return [
        "## The original and each file", "",
        f"{lead}Times, where there are any, are those of the machine that built the package, not of a device.", "",
        *table([head for head, _, _ in shown], rows),
    ]  # fmt: skip


def _metric(row: Row) -> str:
    return f"{row.score.value}<br>{text(row.score.lost)}" if row.score else "–"


def _pace(row: Row) -> str:
    if row.pace is None:
        return "–"
    interval = f" (95 % interval {row.pace.interval})" if row.pace.interval else ""
    ratio = f"<br>{row.pace.ratio} float32{interval}" if row.pace.ratio else ""
    return f"{row.pace.time}{ratio}<br>{text(row.pace.where)}"


def details(id_: str, q: QuantizedView) -> list[str]:
    """What quantization did to one file."""
    lines = [f"> **Advice for {code(id_)}**: {text(words)}\n" for _, words in q.advice]
    lines += facts(f"Quantization of {id_}", q.facts)
    parts = ", ".join(f"{text(p.name)} {p.words}" for p in q.parts)
    lines += _section("Weights by precision", [f"{parts}. {text(q.parts_words)}", ""] if parts else [])
    metric = q.metric or "value"
    lines += _section(
        f"Where training and lowering lost it ({metric}, on samples of the training)",
        table(("Stage", "Value", "Change"), [(text(s.name), s.value, s.change or "–") for s in q.stages]),
    )
    lines += _section("Noise of each layer, worst first", _noise(q), q.noise_more)
    lines += _section("Layers put back to float, step by step", _steps(q))
    lines += _section("Layers left in float", _layers(q.floats), q.floats_more)
    lines += _section("Layers quantized in another way", _layers(q.altered), q.altered_more)
    lines += _section("Here and on arm64", _places(q), q.places_words)
    flips = [(text(f.where), text(f.was), text(f.became), f.margin or "–") for f in q.flips]
    lines += _section("Changed predictions", table(("Sample", "Was", "Became", "Lead it had"), flips), q.flips_words)
    tried = [(code(name), text(what)) for name, what, _ in q.tried]
    return [*lines, *_section("What auto tried", table(("Candidate", "Outcome"), tried))]


def _section(title: str, body: Sequence[str], note: str = "") -> list[str]:
    if not body and not note:
        return []
    return [f"### {text(title)}", "", *body, *([text(note), ""] if note else [])]


def _mark(restored: bool) -> str:
    return " (put back to float)" if restored else ""


def _noise(q: QuantizedView) -> list[str]:
    rows = [
        (
            f"{code(n.name)}{_mark(n.restored)}",
            text(n.op),
            n.own_words,
            *((n.alone_words or "–",) if q.has_alone else ()),
        )
        for n in q.noise
    ]
    return table(("Layer", "Operator", "SNR", *(("Alone, at the output",) if q.has_alone else ())), rows)


def _steps(q: QuantizedView) -> list[str]:
    rows = [(str(s.restored), s.lost or "–", s.top1, s.snr, "holds" if s.holds else "fails") for s in q.steps]
    return table(("Layers in float", text(q.metric) or "Metric", "Same first answer", "SNR", "Gate"), rows)


def _layers(layers: Sequence[LayerRow]) -> list[str]:
    rows = [
        (f"{code(x.name)}{_mark(x.restored)}", text(x.op), text(x.precision), x.size, text(x.why) or "–")
        for x in layers
    ]
    return table(("Layer", "Operator", "Precision", "Size in float32", "Why"), rows)


def _places(q: QuantizedView) -> list[str]:
    rows = [(text(p.where), p.samples, p.metric or "–", p.top1, p.top5, p.snr) for p in q.places]
    return table(
        ("Arithmetic", "Samples", text(q.metric) or "Metric", "Same first answer", "In the first five", "SNR"), rows
    )
