"""Markdown: the page's content for a pull request or a wiki."""

from __future__ import annotations

from collections.abc import Sequence

from edgesdk.report import _bench, _documents, _package, _quantized_md, _words
from edgesdk.report._base import Document, Format
from edgesdk.report._markdown import code as _code
from edgesdk.report._markdown import facts as _facts
from edgesdk.report._markdown import table as _table
from edgesdk.report._markdown import text as _text


class Markdown(Format):
    name = "md"

    def text(self, documents: Sequence[Document]) -> str:
        parts: list[str] = []
        for document in documents:
            package = _documents.kind(document) == "package"
            parts += _packaged(_package.view(document)) if package else _measured(_bench.view(document))
        return "\n".join(parts).rstrip() + "\n"


def _packaged(p: _package.PackageView) -> list[str]:
    lines = [f"# {_text(p.title)} {_text(p.version)}".rstrip(), "", f"**{_text(p.verdict)}.** {_text(p.sentence)}", ""]
    lines += [f"> **{_text(code)}**: {_text(message)}\n" for code, message in p.warnings]
    lines += _table(
        ("Variant", "Engine", "Size", "Against the original", "Answers", "Greatest error", "SNR", "Accelerated"),
        [
            (
                _code(v.id),
                _text(v.title),
                v.size,
                _text(v.ratio) or "–",
                _text(v.head),
                _errors(v),
                _snr(v),
                _words.percent(v.delegated),
            )
            for v in p.variants
        ],
    )
    lines += _quantized_md.comparison(p.comparison) if p.comparison else []
    if p.parts:
        rows = [(_text(part.name), part.size, part.share) for part in p.parts.rows]
        lines += [
            "## What the bundle is made of",
            "",
            *_table(("Part", "Size", "Share"), rows),
            _text(p.parts.words),
            "",
        ]
    for v in p.variants:
        if v.leftovers:
            told = ", ".join(f"{_code(name)} × {times}" for name, times, _ in v.leftovers)
            lines += [f"{_code(v.id)}: {_text(v.delegation)}. Outside {_text(v.outside)}: {told}.", ""]
    for v in p.variants:
        lines += _quantized_md.details(v.id, v.quantized) if v.quantized else []
    tensors = [("in", t) for t in p.inputs] + [("out", t) for t in p.outputs]
    if tensors:
        lines += ["## Inputs and outputs", ""]
        lines += _table(
            ("", "Name", "Shape", "Type"), [(way, _code(t.name), t.shape, _text(t.dtype)) for way, t in tensors]
        )
    if p.steps:
        lines += ["## Preprocessing", "", *(f"{i}. {_text(step)}" for i, step in enumerate(p.steps, 1)), ""]
    lines += _facts("The original model", p.source)
    for v in p.variants:
        lines += _facts(f"How {v.id} was checked", v.checks)
    if p.timings:
        told = ", ".join(f"{_text(name)} {_words.seconds(value)}" for name, value in p.timings)
        lines += ["## Time taken", "", f"{told}; together {_words.seconds(p.total_s)}.", ""]
    return [*lines, *_facts("Provenance", p.provenance)]


def _measured(b: _bench.BenchView) -> list[str]:
    lines = [f"# {_text(b.title)} on {_text(b.device)}", "", f"**{_text(b.verdict)}.** {_text(b.sentence)}", ""]
    lines += [f"> {_text(severity)} **{_text(code)}**: {_text(message)}\n" for severity, code, message in b.flags]
    lines += _table(
        ("Percentile", "Time", "95 % interval"), [(n, v, _text(note) or "–") for n, v, note in b.percentiles]
    )
    lines += _facts("Summary", b.tiles)
    return [*lines, *_facts("Where", b.environment), *_facts("How", b.method)]


def _errors(v: _package.VariantView) -> str:
    return "<br>".join(f"{_code(o.name)} {o.error}" for o in v.outputs) or "–"


def _snr(v: _package.VariantView) -> str:
    return "exact" if v.exact else _words.decibels(v.snr_db)


FORMAT = Markdown()
