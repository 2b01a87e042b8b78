"""Samples for calibration, evaluation and quantization-aware training: opened, checked and streamed."""

from __future__ import annotations

from edgesdk.data._store import Feed, Sample, Store, StoreWriter

__all__ = ["Feed", "Sample", "Store", "StoreWriter"]
