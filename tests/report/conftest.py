"""Documents as the pipeline and the benchmark write them."""

from __future__ import annotations

from typing import Any

import pytest

Json = dict[str, Any]


def variant(id_: str = "executorch-xnnpack-none", **changes: Any) -> Json:
    runtime, _, rest = id_.partition("-")
    backend = rest.partition("-")[0] if runtime == "executorch" else None
    return {
        "id": id_, "runtime": runtime, "backend": backend, "quantization": "none", "file": f"models/{id_}.pte", "bytes": 14_000_000,
        "sha256": "ab" * 32, "delegated_fraction": 0.9987 if backend else None, "rung": "full", "verified": True,
        "outputs": [
            {"name": "logits", "max_abs_error": 1.2e-5, "mean_abs_error": 2e-6, "max_abs_reference": 11.4, "snr_db": 118.4,
             "cosine": 1.0, "top1_agreement": 1.0},
        ],
        "top1_agreement": 1.0, "metric": None, "latency_ms": None,
        "details": {"delegates": 1, "leftovers": {"aten::mean.dim": 1}, "planned_bytes": 5_640_192, "min_runtime": "1.5.1",
                    "abis": ["arm64-v8a"], "samples": 32, "shapes": ["1,3,224,224"], "tolerance": 1e-3, "why": None,
                    "engine": "executorch 1.5.1", "cpu_flags": ["avx2", "fma"]},
        **changes,
    }  # fmt: skip


def package(*variants: Json, **changes: Any) -> Json:
    return {
        "schema": "edgesdk.package/1", "name": "mobilenet_v2", "version": "1.0.0", "target": "android", "output": ".",
        "bundle": "mobilenet_v2.edge", "bundle_bytes": 14_050_000, "bundle_sha256": "cd" * 32,
        "variants": list(variants or (variant(),)), "timings_s": {"import": 1.9, "lower": 9.8, "total": 14.4},
        "cache": {"hits": 0, "misses": 1}, "warnings": [{"code": "int8_hint", "message": "int8 needs calibration data."}],
        "source": {"name": "mobilenet_v2", "format": "exported_program", "sha256": "ef" * 32, "pickle": False, "git_commit": None},
        "signature": {"inputs": [{"name": "pixels", "dtype": "float32", "shape": ["1..8", 3, 224, 224]}],
                      "outputs": [{"name": "logits", "dtype": "float32", "shape": ["1..8", 1000]}]},
        "tools": {"edgesdk": "0.1.0", "torch": "2.15.0"}, "parameters": 3_504_872, "macs": 300_774_272,
        "original_bytes": 14_246_826, "license": "BSD-3-Clause", "labels": 1000, "signed": False,
        "history": [{"step": "import", "type": "exported_program", "version": 1, "fields": {"opset": 18}}],
        "preprocess": {"kind": "image", "version": 1, "input": "pixels", "color": "rgb", "background": [255, 255, 255],
                       "resize": {"mode": "shorter", "size": [256, 256], "interpolation": "bilinear", "antialias": True,
                                  "rounding": "floor"},
                       "crop": {"size": [224, 224], "rounding": "half_even"}, "fill": [0, 0, 0], "align": "center",
                       "scale": 1 / 255, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "layout": "nchw",
                       "dtype": "float32"},
        **changes,
    }  # fmt: skip


def bench(*, emulated: bool = False, status: str = "valid", samples: int = 90) -> Json:
    """A benchmark with one process; the fields are those of ``edgesdk.bench/1``."""
    taken = [20_000_000 + 10_000 * ((i * 37) % 101) for i in range(samples)]
    memory = {
        "source": "proc_status",
        "rss_bytes": 30_000_000,
        "rss_anon_bytes": 15_000_000,
        "rss_file_bytes": 15_000_000,
    }
    return {
        "schema": "edgesdk.bench/1", "run_id": "00000000-0000-4000-8000-000000000000", "created_utc": "2026-01-02T03:04:05Z",
        "tool": {"name": "edgesdk", "version": "0.1.0", "git_commit": None, "git_dirty": None, "command": ["edgesdk", "bench"]},
        "target": {"platform": "android", "transport": "qemu-user" if emulated else "adb", "emulated": emulated,
                   "emulator": "qemu-aarch64" if emulated else None, "timing_valid": not emulated},
        "device": {"manufacturer": "Example", "model": "Phone 1", "soc_manufacturer": "Ex", "soc_model": "SoC1",
                   "os": {"name": "Android", "version": "14"}, "abi": "arm64-v8a", "memory_total_bytes": 8_000_000_000,
                   "cpu": {"count": 8, "clusters": [{"id": 0, "cpus": [0, 1, 2, 3], "mask": "f"},
                                                    {"id": 1, "cpus": [4, 5, 6, 7], "mask": "f0"}]}},
        "model": {"name": "mobilenet_v2", "format": "edge", "sha256": "00" * 32, "size_bytes": 4_000_000, "precision": "int8"},
        "runtime": {"name": "executorch", "version": "1.5.1", "build_type": "release", "backend": "xnnpack", "threads": 4,
                    "load_mode": "mmap"},
        "protocol": {"name": "standard", "scenario": "single_stream", "processes": 1, "clocks": "default"},
        "preflight": [{"check": "battery_level", "status": "pass", "value": 82, "message": ">= 25 %"}],
        "processes": [{"index": 0, "load": {"total_ns": 41_000_000, "read_ns": 1_000_000, "page_cache": "cold"},
                       "first_inference_ns": 90_000_000, "measure": {"samples_ns": taken}, "memory": {"after_load": memory}}],
        "results": {"latency": {"n": samples, "processes": 1, "min_ns": min(taken), "p50_ns": 20_500_000, "p90_ns": 20_900_000,
                                "p95_ns": None, "p99_ns": None, "max_ns": max(taken), "p50_ci95_ns": [20_400_000, 20_600_000],
                                "outliers_mild": 0, "outliers_severe": 0, "drift_pct": 0.1},
                    "load": {"cold_p50_ns": 41_000_000}, "memory": {"peak_rss_bytes": 31_000_000}, "accuracy": None},
        "comparison": None,
        "validity": {"status": "invalid" if emulated else status,
                     "flags": [{"code": "EMULATED_TIMING", "severity": "invalid", "message": "run under qemu"}] if emulated else
                     [{"code": "FREQ_CAPPED", "severity": "warning", "message": "capped at 1.8 GHz"}]},
    }  # fmt: skip


@pytest.fixture
def document() -> Json:
    return package()
