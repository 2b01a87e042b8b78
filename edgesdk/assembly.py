"""From verified variants to the ``.edge`` file: manifest, golden vectors, payloads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgesdk import cache as caching
from edgesdk import targets
from edgesdk.fidelity import ABSOLUTE_FLOOR, TOLERANCES
from edgesdk.samples import REAL, Case, Feed, is_real, load_cases, load_outputs

if TYPE_CHECKING:
    from edgesdk.building import Imported, Variant
    from edgesdk.planning import Job

Json = dict[str, Any]
MAX_REAL_GOLDEN = 4
MAX_GOLDEN_BYTES = 2**18
"""Golden vectors beyond the first sequence are left out above this size: they travel in every app."""


def write_bundle(job: Job, imported: Imported, variants: Sequence[Variant], work: Path) -> Path:
    """Write ``NAME.edge`` into ``work`` and return its path."""
    from edgesdk import bundle

    reference = load_outputs(work / "reference.npz")
    golden, payloads = _golden(load_cases(work / "cases.npz"), reference)
    for variant in variants:
        payloads[variant.file] = variant.lowered.path
        payloads |= {extra.name: extra for extra in variant.lowered.extra_files}
    manifest = bundle.Manifest.from_json(_manifest(job, imported, variants, golden, largest(reference)))
    path = work / "bundle.edge"
    bundle.write(path, manifest, payloads, sign=job.config.sign)
    return path


def bundle_facts(path: Path) -> Json:
    """Size, hash and number of golden calls of a finished bundle, for the package's document."""
    from edgesdk.bundle import EdgeBundle

    size = path.stat().st_size
    with EdgeBundle.open(path, check="layout") as bundle:
        golden, parts = len(bundle.manifest.golden), bundle.manifest.bytes_by_part()
    rest = size - sum(parts.values())
    digest = caching.sha256_file(path)
    return {"bundle_bytes": size, "bundle_sha256": digest, "bundle_parts": {**parts, "rest": rest}, "golden": golden}


def largest(reference: Sequence[Sequence[Feed]]) -> dict[str, float]:
    """The largest finite magnitude of each output of the original."""
    found: dict[str, float] = {}
    for step in (step for case in reference for step in case):
        for name, array in step.items():
            values = np.abs(array.astype(np.float64))
            found[name] = max(found.get(name, 0.0), float(values[np.isfinite(values)].max(initial=0.0)))
    return found


def _manifest(
    job: Job, imported: Imported, variants: Sequence[Variant], golden: list[Json], scale: Mapping[str, float]
) -> Json:
    from edgesdk._version import __version__

    model = imported.model
    source = model["source"]
    return {
        "schema": "edgesdk.bundle/1",
        "name": job.name,
        "version": job.config.version,
        "task": model["task"],
        "signature": model["signature"],
        "preprocess": model["preprocess"],
        "postprocess": postprocess(model),
        "labels": model["labels"],
        "license": model["license"],
        "variants": [_variant(v, job.config.target, _allowed(v, imported, scale)) for v in variants],
        "golden": golden,
        "history": _history(job, model, variants),
        "tools": caching.library_versions(),
        "source": {
            "format": source["format"], "sha256": source["sha256"], "pickle": source["pickle"],
            "git_commit": job.located.source.git_commit,
        },
        "created_by": f"edgesdk {__version__}",
    }  # fmt: skip


def _history(job: Job, model: Json, variants: Sequence[Variant]) -> list[Json]:
    """How the model was made: what it brought along, then this run's import and lowerings."""
    steps = [*model["history"], {"step": "import", "type": model["source"]["format"], "version": 1, "fields": {}}]
    for v in variants:
        fields = {"variant": v.lowered.id, "rung": v.lowered.rung}
        steps.append({"step": "lower", "type": v.lowered.runtime, "version": 1, "fields": fields})
    return steps


def postprocess(model: Json) -> Json | None:
    """Class scores with labels are shown as labels; anything else stays raw."""
    from edgesdk.artifacts import TensorSpec
    from edgesdk.feeding import class_output
    from edgesdk.preprocess import Postprocess

    scores = class_output([TensorSpec.from_json(spec) for spec in model["signature"]["outputs"]])
    if scores is None or (not model["labels"] and model["task"] not in ("classification", "image-classification")):
        return None
    return Postprocess(kind="classify").to_json()


_SLACK = 2.0
"""Engines round differently (ARM's and x86's requantization differ by one step): twice the error seen here."""
_INT8_FLOOR = 0.02
"""Two to three steps of an 8-bit scale over the output's range."""
_HALF_FLOOR = 0.03
"""Some dozens of roundings to 11 bits; what verification allows to single values among millions is no measure for a few."""


def _allowed(variant: Variant, imported: Imported, scale: Mapping[str, float]) -> dict[str, float]:
    """Largest error of each output that the golden vectors may show on a device.

    For float files it is what verification allowed, and holds for engines too that could not run here.
    """
    tolerance = TOLERANCES.get(variant.lowered.quantization)
    seen = {o.name: o.max_abs_error for o in variant.verification.outputs}
    half = variant.lowered.quantization == "fp16" and bool(seen)
    if tolerance is not None and not half:
        relative = {name: tolerance.looser(imported.roundings.get(name)).relative for name in scale}
        return {name: max(ABSOLUTE_FLOOR, relative[name] * largest) for name, largest in scale.items()}
    floor = _HALF_FLOOR if half else _INT8_FLOOR
    return {
        name: max(ABSOLUTE_FLOOR, _SLACK * seen.get(name, largest), floor * largest) for name, largest in scale.items()
    }


def _variant(variant: Variant, target: str, allowed: Mapping[str, float]) -> Json:
    low, ver = variant.lowered, variant.verification
    return {
        "id": low.id, "runtime": low.runtime, "runtime_version": {"min": low.min_runtime or None, "max": None},
        "backend": low.backend, "quantization": low.quantization, "abis": list(targets.find(target).abis),
        "file": variant.file, "extra_files": [p.name for p in low.extra_files],
        "delegated_fraction": low.delegated_fraction, "rung": low.rung, "verified": ver.verified,
        "fidelity": {
            "outputs": [o.to_json() for o in ver.outputs], "tolerance": allowed, "samples": ver.samples,
            "shapes": list(ver.shapes), "engine": ver.engine, "cpu_flags": list(ver.cpu_flags), "why": ver.why,
        },
        "tolerances": allowed, "planned_bytes": low.planned_bytes, "evaluation": _evaluation(variant),
    }  # fmt: skip


def _evaluation(variant: Variant) -> Json | None:
    """What data showed of the file: nothing that was timed, so that the same inputs give the same bytes."""
    found = variant.guarded.evaluation if variant.guarded else None
    if found is None or not found.samples:
        return None
    score = found.score
    finite = score is not None and all(map(math.isfinite, (score.original, score.value, score.drop)))
    return {
        "data": found.data, "where": found.where, "samples": found.samples,
        "score": asdict(score) if score is not None and finite else None,
        "top1": found.top1, "top5": found.top5, "rows": found.rows, "flipped": found.flipped,
        "outputs": [o.to_json() for o in found.outputs],
    }  # fmt: skip


def _golden(cases: Sequence[Case], reference: Sequence[Sequence[Feed]]) -> tuple[list[Json], dict[str, Path | bytes]]:
    """The manifest's ``golden`` and its payloads, while they stay small: the first case of each kind of size.

    With the user's own data, the first samples of it alone: on made-up inputs, ranges calibrated on data don't hold.
    """
    entries: list[Json] = []
    payloads: dict[str, Path | bytes] = {}
    seen: list[str] = []
    total = 0
    most = {REAL: MAX_REAL_GOLDEN} if any(map(is_real, cases)) else dict.fromkeys((case.label for case in cases), 1)
    for case, answers in zip(cases, reference, strict=True):
        size = sum(a.nbytes for feed in (*case.feeds, *answers) for a in feed.values())
        before = seen.count(case.label)
        if before >= most.get(case.label, 0) or (seen and total + size > MAX_GOLDEN_BYTES):
            continue
        sequence = len(seen)
        seen.append(case.label)
        total += size
        for step, (feed, answer) in enumerate(zip(case.feeds, answers, strict=True)):
            id_ = f"{case.label}{before or ''}-{step}"
            parts = {"inputs": _tensors(id_, "in", feed, payloads), "outputs": _tensors(id_, "out", answer, payloads)}
            entries.append({"id": id_, "sequence": sequence, "step": step, **parts})
    return entries, payloads


def _tensors(id_: str, side: str, arrays: Mapping[str, np.ndarray], payloads: dict[str, Path | bytes]) -> list[Json]:
    found = []
    for index, (name, array) in enumerate(arrays.items()):
        file = f"golden/{id_}.{side}{index}.bin"
        little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        payloads[file] = little.tobytes()
        found.append({"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "file": file})
    return found
