"""A package's document as the reader sees it: every number already in words, in the order of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgesdk.report import _comparison, _documents, _judged, _leftovers, _parts, _preparing, _quantized, _words
from edgesdk.report._base import Document, Fact, Tone

# Of all CPU features those that decide which kernels an engine picks, and with it int8 results (PITFALLS Q-22).
_TELLING = (
    "avx",
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
    "fma",
    "f16c",
    "neon",
    "asimddp",
    "i8mm",
    "fphp",
    "sve",
)


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: str
    shape: str


@dataclass(frozen=True)
class Output:
    """One output of one variant against the original."""

    name: str
    error: str
    mean_error: str
    reference: str
    snr: str
    cosine: str
    agreement: str


@dataclass(frozen=True)
class VariantView:
    """One file. ``share`` is its size over the original's, ``delegated`` 0…1; both None when not known."""

    id: str
    title: str
    file: str
    bytes: int | None
    size: str
    share: float | None
    ratio: str
    tone: Tone
    head: str
    tail: str
    snr_db: float | None
    drop: float | None
    exact: bool
    ran: bool
    outputs: tuple[Output, ...]
    outputs_note: str
    agreement: str
    metric: str
    latency: str
    timed: bool
    slower: bool
    delegated: float | None
    delegation: str
    rung: str
    rung_words: str
    leftovers: tuple[tuple[str, int, str], ...]
    outside: str
    checks: tuple[Fact, ...]
    quantized: _quantized.QuantizedView | None


@dataclass(frozen=True)
class PackageView:
    """One package. Empty tuples and strings are left out of the page."""

    title: str
    version: str
    target: str
    tone: Tone
    verdict: str
    sentence: str
    tiles: tuple[Fact, ...]
    source: tuple[Fact, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[str, ...]
    answer: str
    variants: tuple[VariantView, ...]
    comparison: _comparison.Comparison | None
    original_bytes: int | None
    parts: _parts.Parts | None
    warnings: tuple[tuple[str, str], ...]
    timings: tuple[tuple[str, float], ...]
    total_s: float | None
    cache: str
    history: tuple[tuple[str, str, str], ...]
    provenance: tuple[Fact, ...]
    golden: str


def view(document: Document) -> PackageView:
    """Read a package's document or a bundle's manifest; every field but ``schema`` may be missing."""
    found = _documents.package(document)
    original = found.get("original_bytes")
    variants = tuple(_variant(v, original) for v in found.get("variants") or ())
    tone, verdict = _verdict(variants)
    if tone == "good" and any(w.get("code") == "original_guesses" for w in found.get("warnings") or ()):
        tone, verdict = "warn", "It runs, but the data say nothing about its accuracy"
    signature: Mapping[str, Any] = found.get("signature") or {}
    timings: Mapping[str, float] = found.get("timings_s") or {}
    labels = found.get("labels")
    return PackageView(
        title=str(found.get("name") or "model"),
        version=str(found.get("version") or ""),
        target=str(found.get("target") or ""),
        tone=tone,
        verdict=verdict,
        sentence=_sentence(variants, original),
        tiles=_tiles(found, variants, original),
        source=_source(found, original),
        inputs=tuple(_tensor(t) for t in signature.get("inputs") or ()),
        outputs=tuple(_tensor(t) for t in signature.get("outputs") or ()),
        steps=_preparing.steps(found.get("preprocess")),
        answer=_preparing.answer(found.get("postprocess"), labels if isinstance(labels, int) else len(labels or ())),
        variants=variants,
        comparison=_comparison.view(found.get("variants") or (), [(v.tone, v.head) for v in variants], original),
        original_bytes=original,
        parts=_parts.view(found),
        warnings=_warnings(found, variants),
        timings=tuple((name, float(value)) for name, value in timings.items() if name != "total" and value),
        total_s=timings.get("total"),
        cache=_cache(found.get("cache")),
        history=tuple(_history(step) for step in found.get("history") or ()),
        provenance=_provenance(found),
        golden=_golden(found.get("golden")),
    )


def _variant(variant: Mapping[str, Any], original: int | None) -> VariantView:
    size: int | None = variant.get("bytes")
    details: Mapping[str, Any] = variant.get("details") or {}
    judged = _judged.evaluation(variant)
    real = judged if _judged.on_real_data(judged) and judged.get("outputs") else {}
    shown = {**variant, "outputs": real["outputs"]} if real else variant
    snr = _words.worst_snr(shown)
    score, pace = _judged.score(judged), _judged.pace(variant)
    tone, head, tail = _judged.verdict(variant) or (_tone(variant, snr), *_words.fidelity(shown))
    leftovers: Mapping[str, int] = details.get("leftovers") or {}
    rate = variant.get("top1_agreement")
    return VariantView(
        id=str(variant.get("id", "?")),
        title=f"{_words.runtime(variant)}, {_words.quantization(variant.get('quantization'))}",
        file=str(variant.get("file", "")),
        bytes=size,
        size=_words.size(size),
        share=size / original if size and original else None,
        ratio=_ratio(size, original),
        tone=tone,
        head=head,
        tail=tail,
        snr_db=snr,
        drop=score.drop if score else None,
        exact=variant.get("verified") is True and _words.worst_error(shown) == 0,
        ran=variant.get("verified") != "not_run",
        outputs=tuple(_output(o) for o in shown.get("outputs") or ()),
        outputs_note=_judged.sample_words(real) if real else "",
        agreement=f"{_words.percent(rate)} of the samples get the same first answer" if rate is not None else "",
        metric=_metric(variant.get("metric")),
        latency=_latency(variant.get("latency_ms")),
        timed=bool(pace and pace.ratio),
        slower=bool(pace and pace.slower),
        delegated=variant.get("delegated_fraction"),
        delegation=_leftovers.sentence(variant),
        rung=str(variant.get("rung") or ""),
        rung_words=_words.rung(variant.get("rung")),
        leftovers=tuple(
            (name, times, "reshapes, copies, fills or converts" if _leftovers.moves(name) else "computes")
            for name, times in sorted(leftovers.items(), key=lambda item: (-item[1], item[0]))
        ),
        outside=_words.backend(variant.get("backend")),
        checks=_checks(variant, details),
        quantized=_quantized.view(variant),
    )


def _warnings(found: Document, variants: Sequence[VariantView]) -> tuple[tuple[str, str], ...]:
    """Those of the run, without the choice that a table shows better."""
    told = {"auto_choice"} if any(v.quantized and v.quantized.tried for v in variants) else set()
    said = ((str(w.get("code", "")), str(w.get("message", ""))) for w in found.get("warnings") or ())
    return tuple((code, message) for code, message in said if code not in told)


def _tone(variant: Mapping[str, Any], snr: float | None) -> Tone:
    verified = variant.get("verified")
    if verified is False or (snr is not None and snr < 20):
        return "bad"
    if verified == "not_run" or (snr is not None and snr < 30):
        return "warn"
    return "good"


def _ratio(size: int | None, original: int | None) -> str:
    if not size or not original:
        return ""
    if abs(size / original - 1) < 0.03:
        return "as large as the original"
    if size < original:
        return f"{original / size:.1f} × smaller than the original"
    return (
        f"{size / original:.1f} × larger than the original"
        if size > 1.1 * original
        else "a little larger than the original"
    )


def _output(output: Mapping[str, Any]) -> Output:
    exact = output.get("max_abs_error") == 0
    rate = output.get("top1_agreement")
    return Output(
        name=str(output.get("name", "")),
        error="0" if exact else _words.number(output.get("max_abs_error")),
        mean_error=_words.number(output.get("mean_abs_error")),
        reference=_words.number(output.get("max_abs_reference")),
        snr="exact" if exact else _words.decibels(output.get("snr_db")),
        cosine="–" if output.get("cosine") is None else f"{output['cosine']:.6f}",
        agreement=_words.percent(rate),
    )


def _metric(metric: Mapping[str, Any] | None) -> str:
    if not metric:
        return ""
    samples = f" on {metric['samples']:,} samples" if metric.get("samples") else ""
    return f"{metric.get('name')}: {_words.number(metric.get('value'))}, original {_words.number(metric.get('original'))}{samples}"


def _latency(latency: Mapping[str, Any] | None) -> str:
    """The place always goes with the number: a time on the machine that packaged is not a phone's."""
    if not latency or latency.get("p50") is None:
        return ""
    tail = f", 9 in 10 under {_words.nanoseconds(latency['p90'] * 1e6)}" if latency.get("p90") is not None else ""
    return f"{_words.nanoseconds(latency['p50'] * 1e6)} per run{tail}, measured on {latency.get('where') or 'an unnamed machine'}"


def _checks(variant: Mapping[str, Any], details: Mapping[str, Any]) -> tuple[Fact, ...]:
    tolerance = details.get("tolerance")
    if isinstance(tolerance, Mapping):
        tolerance = max(tolerance.values(), default=None)
    shapes = details.get("shapes") or ()
    known = [
        Fact("Samples", f"{details['samples']:,}") if details.get("samples") else None,
        Fact("Shapes tried", "; ".join(map(str, shapes))) if shapes else None,
        Fact("Error allowed", _words.number(tolerance)) if tolerance else None,
        Fact("Ran on", str(details["engine"])) if details.get("engine") else None,
        Fact("CPU features", _flags(details["cpu_flags"])) if details.get("cpu_flags") else None,
        Fact("Delegate calls", str(details["delegates"])) if details.get("delegates") is not None else None,
        Fact(
            "Planned memory",
            _words.size(details["planned_bytes"]),
            "for tensors outside delegates; XNNPACK takes its own at run time",
        )
        if details.get("planned_bytes")
        else None,
        Fact("Needs at least", f"{_words.runtime({'runtime': variant.get('runtime', '?')})} {details['min_runtime']}")
        if details.get("min_runtime")
        else None,
        Fact("For", ", ".join(details["abis"])) if details.get("abis") else None,
        Fact("File in the bundle", str(variant["file"]), code=True) if variant.get("file") else None,
        Fact("SHA-256", str(variant["sha256"]), code=True) if variant.get("sha256") else None,
    ]
    return tuple(fact for fact in known if fact is not None)


def _flags(flags: Sequence[str]) -> str:
    if len(flags) <= len(_TELLING):
        return " ".join(flags)
    telling = [flag for flag in _TELLING if flag in flags]
    return f"{' '.join(telling) or 'none that matter here'} (and {len(flags) - len(telling)} more)"


def _verdict(variants: Sequence[VariantView]) -> tuple[Tone, str]:
    """The page's first words, from the worst variant."""
    if not variants:
        return "warn", "Nothing was packaged"
    failed = [v for v in variants if v.tone == "bad"]
    unproven = [v for v in variants if not v.ran]
    doubtful = [v for v in variants if v.tone == "warn" and v.ran]
    if failed:
        return "bad", "Don't ship this yet"
    if len(unproven) == len(variants):
        return "warn", "Built, but not run: try it on a device"
    if unproven:
        return "warn", f"Checked, except {len(unproven)} of {len(variants)} files that could not be run here"
    if doubtful:
        return "warn", "It runs: test its accuracy before you ship it"
    return "good", "Ready to ship"


def _merit(v: VariantView) -> tuple[int, float, float]:
    """How good a file is: by its tone, then by its metric where there is one, then by its noise."""
    return ("bad", "warn", "good").index(v.tone), -(v.drop or 0.0), 1e9 if v.snr_db is None else v.snr_db


def _sentence(variants: Sequence[VariantView], original: int | None) -> str:
    if not variants:
        return ""
    files = "One file was made" if len(variants) == 1 else f"{len(variants)} files were made"
    told = [f"{files} and compared with the original model." if any(v.ran for v in variants) else f"{files}."]
    ran = [v for v in variants if v.ran]
    worst = min(ran, key=_merit, default=None)
    if worst is not None:
        where = "" if len(variants) == 1 or worst.tone == "good" else f" (the weakest, {worst.id})"
        told.append(f"{worst.head[0].upper()}{worst.head[1:]}{where}: {worst.tail}.")
    least = min((v for v in variants if v.bytes), key=lambda v: v.bytes or 0, default=None)
    if least is not None and least.ratio and original:
        told.append(f"{'It is' if len(variants) == 1 else 'The smallest is'} {least.ratio} ({least.size}).")
    slow = [v.id for v in variants if v.slower]
    if slow:
        they = "It is" if len(variants) == 1 else f"{', '.join(slow)} {'is' if len(slow) == 1 else 'are'}"
        told.append(f"{they} slower than float32 on the machine that built it: keep float32 unless size is the aim.")
    return " ".join(told)


def _tiles(found: Document, variants: Sequence[VariantView], original: int | None) -> tuple[Fact, ...]:
    """The first figures; with several files each says whose it is."""
    tiles = []
    least = min((v for v in variants if v.bytes), key=lambda v: v.bytes or 0, default=None)
    if least is not None:
        was = f"the original has {_words.size(original)}" if original else ""
        tiles.append(Fact("Size", least.size, _of(was, "the smallest", least, variants)))
    ran = [v for v in variants if v.ran and v.outputs]
    if ran:
        worst = min(ran, key=lambda v: 1e9 if v.snr_db is None else v.snr_db)
        value = "exact" if worst.snr_db is None else _words.decibels(worst.snr_db)
        tiles.append(Fact("Fidelity", value, _of(worst.head, "the weakest", worst, variants)))
    scores = [(_judged.score(_judged.evaluation(given)), v) for given, v in _pairs(found, variants)]
    score, lowest = max(((s, v) for s, v in scores if s), key=lambda pair: pair[0].drop, default=(None, None))
    if score and lowest:
        was = f"the original has {score.original}"
        tiles.append(Fact(score.title, score.value, _of(was, "the lowest", lowest, variants)))
    shares = [v for v in variants if v.delegated is not None]
    if shares:
        slowest = min(shares, key=lambda v: v.delegated or 0.0)
        what = _of("of the multiply-accumulates", "the least", slowest, variants)
        tiles.append(Fact("Accelerated", _words.percent(slowest.delegated), what))
    if found.get("parameters"):
        tiles.append(Fact("Parameters", _words.count(found["parameters"]), "numbers it has learned"))
    if found.get("macs"):
        tiles.append(Fact("Work per run", _words.count(found["macs"]), "multiplications"))
    return tuple(tiles)


def _of(words: str, place: str, v: VariantView, variants: Sequence[VariantView]) -> str:
    if len(variants) < 2:
        return words
    return f"{words}; {place}: {v.id}" if words else f"{place}: {v.id}"


def _pairs(found: Document, variants: Sequence[VariantView]) -> Sequence[tuple[Mapping[str, Any], VariantView]]:
    return list(zip(found.get("variants") or (), variants, strict=True))


def _source(found: Document, original: int | None) -> tuple[Fact, ...]:
    source: Mapping[str, Any] = found.get("source") or {}
    known = [
        Fact("Name", str(source["name"])) if source.get("name") else None,
        Fact("Format", str(source["format"]).replace("_", " ")) if source.get("format") else None,
        Fact("Size", _words.size(original)) if original else None,
        Fact("Task", str(found["task"]).replace("_", " ")) if found.get("task") else None,
        Fact("Licence", str(found["license"])) if found.get("license") else None,
        Fact("Parameters", f"{found['parameters']:,}", "learned numbers") if found.get("parameters") else None,
        Fact("MACs", f"{found['macs']:,}", "multiply-accumulates per run") if found.get("macs") else None,
        Fact("Pickle", "yes", "its own code was run to read it: only do so with files you trust")
        if source.get("pickle")
        else None,
    ]
    return tuple(fact for fact in known if fact is not None)


def _tensor(tensor: Mapping[str, Any]) -> Tensor:
    return Tensor(str(tensor.get("name", "")), str(tensor.get("dtype", "")), _words.shape(tensor.get("shape")))


def _cache(cache: Mapping[str, Any] | None) -> str:
    if not cache or not (cache.get("hits") or cache.get("misses")):
        return ""  # the page is written before they are counted, and is the same whatever the cache gave
    return f"From the cache: {cache.get('hits', 0)}. Computed: {cache.get('misses', 0)}."


def _history(step: Mapping[str, Any]) -> tuple[str, str, str]:
    fields: Mapping[str, Any] = step.get("fields") or {}
    told = ", ".join(f"{key} = {value}" for key, value in fields.items())
    return str(step.get("step", "")), str(step.get("type", "")), told


def _provenance(found: Document) -> tuple[Fact, ...]:
    source: Mapping[str, Any] = found.get("source") or {}
    tools: Mapping[str, Any] = found.get("tools") or {}
    known = [
        Fact("Bundle", str(found["bundle"]), code=True) if found.get("bundle") else None,
        Fact("Bundle size", f"{found['bundle_bytes']:,} bytes") if found.get("bundle_bytes") else None,
        Fact("Bundle SHA-256", str(found["bundle_sha256"]), code=True) if found.get("bundle_sha256") else None,
        Fact("Signed", "yes, with Ed25519" if found["signed"] else "no: anybody could have made it")
        if "signed" in found
        else None,
        Fact("Source SHA-256", str(source["sha256"]), code=True) if source.get("sha256") else None,
        Fact("Source commit", str(source["git_commit"]), code=True) if source.get("git_commit") else None,
        *(Fact(name, str(version)) for name, version in sorted(tools.items())),
    ]
    return tuple(fact for fact in known if fact is not None)


def _golden(golden: Any) -> str:
    count = golden if isinstance(golden, int) else len(golden or ())
    if not count:
        return ""
    calls = "One recorded call is" if count == 1 else f"{count} recorded calls are"
    return f"{calls} inside the bundle, inputs with the original's answers. Any device can repeat them and compare."
