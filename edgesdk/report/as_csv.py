"""CSV: a row for each variant of each package and for each benchmark, units in the column names, numbers unrounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgesdk.report import _bench, _documents, _judged, _quantized, _words
from edgesdk.report._base import Document, Format

_COLUMNS = (
    "kind", "name", "version", "target", "variant", "runtime", "backend", "quantization", "bytes", "original_bytes",
    "verified", "max_abs_error", "snr_db", "top1_agreement", "delegated_fraction", "rung", "samples", "sha256",
    "device", "validity", "emulated", "p50_ns", "p90_ns", "p99_ns", "peak_rss_bytes", "runs",
    "judged_data", "judged_samples", "metric", "metric_original", "metric_value", "metric_drop", "top5_agreement", "flipped",
    "judged_snr_db", "float_bytes", "quantized_weight_fraction", "layers_float", "layers_restored", "host_p50_ms", "host_p90_ms",
    "host_float_p50_ms", "host_ratio", "host_ratio_low", "host_ratio_high", "host_where", "arm64_samples", "arm64_top1_agreement",
    "arm64_snr_db",
)  # fmt: skip


class Csv(Format):
    name = "csv"

    def text(self, documents: Sequence[Document]) -> str:
        memory = io.StringIO(newline="")
        writer = csv.DictWriter(memory, _COLUMNS, lineterminator="\r\n")  # RFC 4180
        writer.writeheader()
        for document in documents:
            rows = _packages(document) if _documents.kind(document) == "package" else _benches(document)
            writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
        return memory.getvalue()


def _packages(document: Document) -> Iterator[dict[str, Any]]:
    found = _documents.package(document)
    for variant in found.get("variants") or ():
        details: Mapping[str, Any] = variant.get("details") or {}
        copied = (
            "runtime",
            "backend",
            "quantization",
            "bytes",
            "verified",
            "top1_agreement",
            "delegated_fraction",
            "rung",
            "sha256",
        )
        yield {
            "kind": "package",
            **{key: found.get(key) for key in ("name", "version", "target", "original_bytes")},
            "variant": variant.get("id"),
            **{key: variant.get(key) for key in copied},
            "max_abs_error": _words.worst_error(variant),
            "snr_db": _words.worst_snr(variant),
            "samples": details.get("samples"),
            **_guarded(variant),
        }


def _guarded(variant: Mapping[str, Any]) -> dict[str, Any]:
    """What the guard measured. Times are of the machine that built the package, and named so: ``p50_ns`` is a device's."""
    guard, found = _judged.guard(variant), _judged.evaluation(variant)
    score: Mapping[str, Any] = found.get("score") or {}
    race: Mapping[str, Any] = guard.get("race") or {}
    arm64: Mapping[str, Any] = guard.get("arm64") or {}
    layers: Sequence[Mapping[str, Any]] = (variant.get("details") or {}).get("layers") or ()
    pace = _judged.pace(variant)
    return {
        "judged_data": found.get("data"),
        "judged_samples": found.get("samples"),
        **{f"metric_{key}": score.get(key) for key in ("original", "value", "drop")},
        "metric": score.get("name"),
        "top5_agreement": found.get("top5"),
        "flipped": found.get("flipped"),
        "judged_snr_db": _judged.least_snr(found),
        "float_bytes": guard.get("float_bytes"),
        "quantized_weight_fraction": _quantized.share(layers),
        "layers_float": sum(_quantized.left_out(layer) for layer in layers) if layers else None,
        "layers_restored": len(guard.get("restored") or ()) if layers else None,
        **{f"host_{key}_ms": race.get(key) for key in ("p50", "p90", "float_p50")},
        **{f"host_{key}": race.get(key.removeprefix("ratio_")) for key in ("ratio", "ratio_low", "ratio_high")},
        "host_where": pace.where if pace else None,
        "arm64_samples": arm64.get("samples"),
        "arm64_top1_agreement": arm64.get("top1"),
        "arm64_snr_db": _judged.least_snr(arm64),
    }


def _benches(document: Document) -> Iterator[dict[str, Any]]:
    """Columns of time stay empty when the document says that its times are no device's."""
    seen = _bench.view(document)
    latency: Mapping[str, Any] = (document.get("results") or {}).get("latency") or {}
    yield {
        "kind": "bench",
        "name": seen.title,
        "runtime": (document.get("runtime") or {}).get("name"),
        "backend": (document.get("runtime") or {}).get("backend"),
        "bytes": (document.get("model") or {}).get("size_bytes"),
        "sha256": (document.get("model") or {}).get("sha256"),
        "device": seen.device,
        "validity": (document.get("validity") or {}).get("status"),
        "emulated": seen.emulated,
        "p50_ns": seen.p50_ns,
        "p90_ns": seen.p90_ns,
        "p99_ns": None if seen.emulated else latency.get("p99_ns"),
        "peak_rss_bytes": seen.peak_bytes,
        "runs": latency.get("n"),
    }


def _cell(value: Any) -> Any:
    """Booleans as JSON writes them; a text that a spreadsheet would take for a formula gets an apostrophe before it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


FORMAT = Csv()
