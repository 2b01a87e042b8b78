"""Emissions to test with: a real ZIP bundle around payloads that are no models, since no target looks into them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgesdk.targets import Emission, Target, find

Emit = Callable[..., Path]


def variant(runtime: str = "executorch", backend: str | None = "xnnpack", **changes: Any) -> dict[str, Any]:
    """A ``V`` object of ``edgesdk.package/1`` as the pipeline writes it."""
    id_ = "-".join(part for part in (runtime, backend, "none") if part)
    suffix = {"executorch": "pte", "onnx": "onnx", "torchscript": "ptl"}[runtime]
    return {
        "id": id_, "runtime": runtime, "backend": backend, "quantization": "none", "file": f"models/{id_}.{suffix}",
        "bytes": 1000, "sha256": "0" * 64, "delegated_fraction": 0.98 if backend else None, "rung": "full", "verified": True,
        "outputs": [{"name": "output", "max_abs_error": 1e-6, "snr_db": 118.0}], "top1_agreement": None, "metric": None,
        "latency_ms": None, "details": {"min_runtime": {"executorch": "1.5.1", "onnx": "1.14"}.get(runtime, "")},
        **changes,
    }  # fmt: skip


def write_bundle(path: Path, entries: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {"manifest.json": b"{}", "models/a.pte": bytes(5000), **(entries or {})}.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def lite_file(bytecode: int) -> bytes:
    """A ZIP laid out as a TorchScript Lite file: ``bytecode.pkl`` begins with the version."""
    import pickle

    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("net/bytecode.pkl", pickle.dumps((bytecode, ("forward", ())), protocol=2))
    return memory.getvalue()


@pytest.fixture
def emit(tmp_path: Path) -> Emit:
    """Emit a package for a target into a fresh folder and return it."""

    def run(
        target: str | Target, *variants: dict[str, Any], name: str = "net", version: str = "1.0.0", license: str | None = "MIT",
        entries: dict[str, bytes] | None = None, manifest: dict[str, Any] | None = None, file: str | None = None,
        signature: dict[str, Any] | None = None,
    ) -> Path:  # fmt: skip
        goal = find(target) if isinstance(target, str) else target
        folder = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        shown = [{**v, "details": {"abis": list(goal.abis), **v["details"]}} for v in (variants or (variant(),))]
        document = {
            "schema": "edgesdk.package/1", "name": name, "version": version, "variants": shown,
            "signature": signature or {"inputs": [{"name": "pixels", "dtype": "float32", "shape": ["1..8", 3, 224, 224]}], "outputs": []},
        }  # fmt: skip
        bundle = write_bundle(folder / (file or f"{name}.edge"), entries)
        goal.emit(Emission(name, version, license, bundle, json.loads(json.dumps(document)), manifest or {}), folder)
        return folder

    return run
