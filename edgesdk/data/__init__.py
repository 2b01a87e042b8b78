"""Samples for calibration, evaluation and quantization-aware training: opened, checked and streamed.

    source = locate_data(text)            # in the command-line process: refuses early, imports no torch
    key = fingerprint(text)
    info = write_samples(text, ModelFacts.of(model), folder, limit=512, seed=0, balanced=True, report=report)
    warnings = check_samples(Store(folder), facts, "calibration")
    for sample in Store(folder): ...      # in any worker

The modules: ``_locate`` (what it is), ``_npz``, ``_files``, ``_csv``, ``_parquet``, ``_python`` (one reader for each kind),
``_choose`` (selection), ``_shape`` and ``_convert`` (rows to calls of the model), ``_write`` (all together), ``_store``
(the folder that it becomes), ``_check`` (is it fit for its purpose).
"""

from __future__ import annotations

from edgesdk.data._check import check_samples, compare_samples
from edgesdk.data._facts import ModelFacts, SamplesInfo
from edgesdk.data._locate import DataSource, fingerprint, locate_data
from edgesdk.data._store import Feed, Sample, Store, StoreWriter
from edgesdk.data._write import write_samples

__all__ = [
    "DataSource",
    "Feed",
    "ModelFacts",
    "Sample",
    "SamplesInfo",
    "Store",
    "StoreWriter",
    "check_samples",
    "compare_samples",
    "fingerprint",
    "locate_data",
    "write_samples",
]
