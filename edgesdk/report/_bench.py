"""A benchmark's document as the reader sees it. A number whose flag says it is void is never shown as a time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgesdk.report import _words
from edgesdk.report._base import Document, Fact, Tone

_STATUS: Mapping[str, tuple[Tone, str]] = {
    "valid": ("good", "Valid measurement"),
    "semivalid": ("warn", "Measured, with reservations"),
    "invalid": ("bad", "Not a valid measurement"),
}
_PERCENTILES = ("min", "p50", "p90", "p95", "p99", "max")


@dataclass(frozen=True)
class BenchView:
    """One benchmark. ``latency`` and ``series`` are empty when the numbers are no device times."""

    title: str
    device: str
    tone: Tone
    verdict: str
    sentence: str
    emulated: bool
    flags: tuple[tuple[str, str, str], ...]
    tiles: tuple[Fact, ...]
    percentiles: tuple[tuple[str, str, str], ...]
    p50_ns: float | None
    p90_ns: float | None
    interval_ns: tuple[float, float] | None
    samples: tuple[float, ...]
    series: tuple[tuple[float, ...], ...]
    startup: tuple[tuple[str, float], ...]
    memory: tuple[tuple[str, float, float], ...]
    peak_bytes: int | None
    environment: tuple[Fact, ...]
    method: tuple[Fact, ...]
    preflight: tuple[tuple[str, str, str, str], ...]
    comparison: tuple[Fact, ...]

    @property
    def marks(self) -> tuple[tuple[str, float], ...]:
        """Percentiles to draw into the distribution."""
        found = (("p50", self.p50_ns), ("p90", self.p90_ns))
        return tuple((name, value) for name, value in found if value is not None)


def view(document: Document) -> BenchView:
    """Read ``edgesdk.bench/1``."""
    target: Mapping[str, Any] = document.get("target") or {}
    validity: Mapping[str, Any] = document.get("validity") or {}
    results: Mapping[str, Any] = document.get("results") or {}
    latency: Mapping[str, Any] = results.get("latency") or {}
    emulated = bool(target.get("emulated")) or target.get("timing_valid") is False
    tone, verdict = _STATUS.get(str(validity.get("status")), ("warn", "Validity not stated"))
    if emulated:
        tone, verdict = "bad", "Not a speed measurement"
    processes: Sequence[Mapping[str, Any]] = () if emulated else document.get("processes") or ()
    series = tuple(tuple(p["measure"]["samples_ns"]) for p in processes if (p.get("measure") or {}).get("samples_ns"))
    interval = None if emulated else latency.get("p50_ci95_ns")
    return BenchView(
        title=str((document.get("model") or {}).get("name") or "model"),
        device=_device(document),
        tone=tone,
        verdict=verdict,
        sentence=_sentence(document, latency, emulated),
        emulated=emulated,
        flags=tuple(_flag(f) for f in validity.get("flags") or ()),
        tiles=_tiles(document, results, latency, emulated),
        percentiles=() if emulated else _percentiles(latency),
        p50_ns=None if emulated else latency.get("p50_ns"),
        p90_ns=None if emulated else latency.get("p90_ns"),
        interval_ns=(interval[0], interval[1]) if interval else None,
        samples=tuple(itertools.chain.from_iterable(series)),
        series=series,
        startup=() if emulated else _startup(processes, results),
        memory=() if emulated else _memory(processes),
        peak_bytes=None if emulated else (results.get("memory") or {}).get("peak_rss_bytes"),
        environment=_environment(document),
        method=_method(document, latency),
        preflight=tuple(
            (
                str(c.get("check", "")),
                str(c.get("status", "")),
                "" if c.get("value") is None else str(c["value"]),
                str(c.get("message") or ""),
            )
            for c in document.get("preflight") or ()
        ),
        comparison=_comparison(document.get("comparison"), emulated),
    )


def _device(document: Document) -> str:
    device: Mapping[str, Any] = document.get("device") or {}
    system: Mapping[str, Any] = device.get("os") or {}
    name = " ".join(
        str(part) for part in (device.get("manufacturer"), device.get("marketing_name") or device.get("model")) if part
    )
    return ", ".join(
        part
        for part in (name or "unnamed device", f"{system.get('name', '')} {system.get('version', '')}".strip())
        if part
    )


def _sentence(document: Document, latency: Mapping[str, Any], emulated: bool) -> str:
    if emulated:
        emulator = (document.get("target") or {}).get("emulator") or "an emulator"
        return (
            f"It ran under {emulator}. That proves that the file runs and what it answers, not how fast: "
            "times under emulation say nothing about a device, so none is shown."
        )
    if latency.get("p50_ns") is None:
        return "No time was measured."
    told = f"Half of all runs took less than {_words.nanoseconds(latency['p50_ns'])}"
    if latency.get("p90_ns") is not None:
        told += f", nine in ten less than {_words.nanoseconds(latency['p90_ns'])}"
    processes = latency.get("processes", 0)
    return f"{told}. {latency.get('n', 0):,} runs in {processes} process{'' if processes == 1 else 'es'}."


def _flag(flag: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(flag.get("severity", "")), str(flag.get("code", "")), str(flag.get("message", ""))


def _tiles(
    document: Document, results: Mapping[str, Any], latency: Mapping[str, Any], emulated: bool
) -> tuple[Fact, ...]:
    model: Mapping[str, Any] = document.get("model") or {}
    load: Mapping[str, Any] = results.get("load") or {}
    memory: Mapping[str, Any] = results.get("memory") or {}
    tiles = []
    if not emulated:
        if latency.get("p50_ns") is not None:
            interval = latency.get("p50_ci95_ns")
            note = (
                f"95 % interval {_words.nanoseconds(interval[0])} to {_words.nanoseconds(interval[1])}"
                if interval
                else "median (p50)"
            )
            tiles.append(Fact("One run", _words.nanoseconds(latency["p50_ns"]), note))
        if latency.get("p90_ns") is not None:
            tiles.append(Fact("Slow runs", _words.nanoseconds(latency["p90_ns"]), "p90: one in ten takes longer"))
        if load.get("cold_p50_ns") is not None:
            tiles.append(Fact("Cold start", _words.nanoseconds(load["cold_p50_ns"]), "to load the model"))
        if memory.get("peak_rss_bytes") is not None:
            tiles.append(Fact("Peak memory", _words.size(memory["peak_rss_bytes"]), "whole process"))
    tiles.append(Fact("Model", _words.size(model.get("size_bytes")), str(model.get("precision") or "")))
    accuracy = results.get("accuracy")
    if accuracy and accuracy.get("value") is not None:
        tiles.append(
            Fact(
                str(accuracy.get("metric", "Accuracy")),
                _words.number(accuracy["value"]),
                f"{accuracy.get('n', '?')} samples",
            )
        )
    return tuple(tiles)


def _percentiles(latency: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    rows = []
    for name in _PERCENTILES:
        value = latency.get(f"{name}_ns")
        interval = latency.get(f"{name}_ci95_ns")
        note = f"{_words.nanoseconds(interval[0])} – {_words.nanoseconds(interval[1])}" if interval else ""
        if value is None and name.startswith("p"):
            note = "too few samples to say"
        rows.append((name, _words.nanoseconds(value), note))
    return tuple(rows)


def _startup(processes: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    first = next((p for p in processes if p.get("load")), None)
    if first is None:
        return ()
    load: Mapping[str, Any] = first["load"]
    steps = [(name, load.get(f"{name}_ns")) for name in ("read", "parse", "prepare")]
    known = sum(value or 0 for _, value in steps)
    steps.append(("other loading", max((load.get("total_ns") or 0) - known, 0)))
    steps.append(
        ("first run", first.get("first_inference_ns") or (results.get("load") or {}).get("first_inference_p50_ns"))
    )
    return tuple((name, float(value)) for name, value in steps if value)


def _memory(processes: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, float, float], ...]:
    """(stage, private bytes, file-backed bytes) of the first process."""
    stages = {"baseline": "before", "after_load": "loaded", "after_first": "first run", "end": "end"}
    memory: Mapping[str, Any] = next((p["memory"] for p in processes if p.get("memory")), {})
    return tuple(
        (word, float(memory[key].get("rss_anon_bytes") or 0), float(memory[key].get("rss_file_bytes") or 0))
        for key, word in stages.items()
        if memory.get(key)
    )


def _environment(document: Document) -> tuple[Fact, ...]:
    device: Mapping[str, Any] = document.get("device") or {}
    runtime: Mapping[str, Any] = document.get("runtime") or {}
    target: Mapping[str, Any] = document.get("target") or {}
    cpu: Mapping[str, Any] = device.get("cpu") or {}
    soc = " ".join(str(part) for part in (device.get("soc_manufacturer"), device.get("soc_model")) if part)
    clusters = " + ".join(str(len(c.get("cpus") or ())) for c in cpu.get("clusters") or ())
    known = [
        Fact("Device", _device(document)),
        Fact("Chip", soc) if soc else None,
        Fact("Processor", f"{cpu['count']} cores" + (f" ({clusters})" if clusters else ""))
        if cpu.get("count")
        else None,
        Fact("ABI", str(device["abi"])) if device.get("abi") else None,
        Fact("Memory", _words.size(device.get("memory_total_bytes"))),
        Fact("Engine", " ".join(str(runtime[k]) for k in ("name", "version", "backend") if runtime.get(k))),
        Fact("Threads", str(runtime["threads"])) if runtime.get("threads") else None,
        Fact("Build", str(runtime["build_type"])) if runtime.get("build_type") else None,
        Fact("Reached by", f"{target.get('transport', '?')}{', emulated' if target.get('emulated') else ''}"),
        Fact("Model SHA-256", str((document.get("model") or {}).get("sha256", "")), code=True),
    ]
    return tuple(fact for fact in known if fact is not None)


def _method(document: Document, latency: Mapping[str, Any]) -> tuple[Fact, ...]:
    protocol: Mapping[str, Any] = document.get("protocol") or {}
    tool: Mapping[str, Any] = document.get("tool") or {}
    known = [
        Fact("Protocol", str(protocol["name"])) if protocol.get("name") else None,
        Fact("Scenario", str(protocol["scenario"]).replace("_", " ")) if protocol.get("scenario") else None,
        Fact("Clocks", str(protocol["clocks"]).replace("_", " ")) if protocol.get("clocks") else None,
        Fact("Outliers", f"{latency['outliers_mild']} mild, {latency.get('outliers_severe', 0)} severe, none dropped")
        if latency.get("outliers_mild") is not None
        else None,
        Fact("Drift", f"{latency['drift_pct']:+.1f} %") if latency.get("drift_pct") is not None else None,
        Fact("When", str(document["created_utc"])) if document.get("created_utc") else None,
        Fact("Run", str(document["run_id"]), code=True) if document.get("run_id") else None,
        Fact("Command", " ".join(map(str, tool["command"])), code=True) if tool.get("command") else None,
        Fact("edgesdk", str(tool["version"])) if tool.get("version") else None,
    ]
    return tuple(fact for fact in known if fact is not None)


def _comparison(found: Mapping[str, Any] | None, emulated: bool) -> tuple[Fact, ...]:
    if not found or emulated:
        return ()
    interval: Sequence[float] = found.get("ci95") or ()
    known = [
        Fact("Verdict", str(found.get("verdict", "")).replace("_", " ")),
        Fact(
            "Ratio",
            _words.number(found.get("ratio")),
            f"95 % interval {_words.number(interval[0])} to {_words.number(interval[1])}",
        )
        if found.get("ratio") is not None and len(interval) == 2
        else None,
        Fact("Why", "; ".join(map(str, found["why"]))) if found.get("why") else None,
        Fact("Baseline", str(found["baseline_run_id"]), code=True) if found.get("baseline_run_id") else None,
    ]
    return tuple(fact for fact in known if fact is not None)
