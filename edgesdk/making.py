"""The part of a run that the cache saves: import, lower and verify in workers, write and check the bundle."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgesdk import _crashes, targets, units
from edgesdk import cache as caching
from edgesdk.artifacts import VariantResult, Warn
from edgesdk.assembly import bundle_facts, postprocess, write_bundle
from edgesdk.building import Builder, Imported, Variant, pool_size, wants_samples
from edgesdk.importing import Located
from edgesdk.planning import Job, image_size
from edgesdk.progress import Progress
from edgesdk.variants import Maker
from edgesdk.workers import Pool, WorkerCrashed

Json = dict[str, Any]


@dataclass(frozen=True)
class _Made:
    """Variants on the disk, with the workers that made them still there."""

    job: Job
    builder: Builder
    imported: Imported
    variants: Sequence[Variant]

    def fits(self, job: Job) -> bool:
        """Whether the job asks for the same files of the same model, for another target."""
        apart = {"target", "output", "force"}
        same = self.job.config.model_dump(exclude=apart) == job.config.model_dump(exclude=apart)
        return same and self.job.plans == job.plans and self.job.labels == job.labels


class Workshop:
    """Workers, and what they made, for all targets of one command: a second target only needs its own bundle."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._made: list[_Made] = []

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._open.__exit__(*error)

    def build(self, job: Job, cache: caching.Cache, progress: Progress) -> tuple[Json, Path]:
        """Import, lower, verify and bundle; the finished bundle lies in a work folder until the workshop is left."""
        made = next((made for made in self._made if made.fits(job)), None)
        if made is None:
            made = self._make(job, cache, progress)
            self._made.append(made)
        else:
            again = replace(made.builder, config=job.config, timings={}, began=time.perf_counter())
            made = replace(made, job=job, builder=again)
            cache.hits += len(made.variants)
        document, bundle = bundled(job, made.builder, made.imported, made.variants)
        if job.key:
            cache.put(job.key, document, {"bundle.edge": bundle})
        return document, bundle

    def _make(self, job: Job, cache: caching.Cache, progress: Progress) -> _Made:
        config = job.config
        work = self._open.enter_context(cache.work_folder())
        files = sum(max(1, len(plan.candidates)) for plan in job.plans)
        size = pool_size(config.jobs, files, _weights(job.located))
        pool = self._open.enter_context(Pool(size, work))
        builder = Builder(config, import_args(job), work, cache, progress, pool)
        for index in range(1, size):
            plan = job.plans[index % len(job.plans)]
            pool.warm("edgesdk._jobs:warm", {"runtime": plan.runtime, "lowering": index < len(job.plans)}, index)
        progress.stage("importing")
        with _clock(builder.timings, "import"):
            imported = builder.import_model(job.plans)
        if wants_samples(config):
            progress.stage("reading samples")
            builder.read_samples()
        progress.stage("lowering and verifying")
        return _Made(job, builder, imported, Maker(builder, imported).variants(job.plans))


def bundled(job: Job, builder: Builder, imported: Imported, variants: Sequence[Variant]) -> tuple[Json, Path]:
    """Write the bundle, and run the golden vectors from its final bytes in a process that didn't lower them."""
    builder.progress.stage("bundling")
    with _clock(builder.timings, "bundle"):
        bundle = write_bundle(job, imported, variants, builder.folder)
        runnable = [v.lowered.id for v in variants if v.verification.verified is True]
        args = {"bundle": str(bundle), "variants": runnable}
        try:
            builder.run("the bundle", "_jobs:check_bundle", args, not_on=0)
        except WorkerCrashed as crash:
            runtimes = ", ".join(dict.fromkeys(v.lowered.runtime for v in variants))
            raise _crashes.in_lowered_file("the bundle", runtimes, crash) from crash
    builder.timings["total"] = time.perf_counter() - builder.began
    return package_document(job, builder, imported, variants, bundle), bundle


def _weights(located: Located) -> int:
    """Bytes of the source, as an estimate of its weights before it is read."""
    return sum(path.stat().st_size for path in located.files or (located.path,) if path and path.is_file())


def import_args(job: Job) -> Json:
    config = job.config
    return {
        "model": config.model,
        "inputs": [spec.to_json() for spec in config.inputs],
        "arch": config.arch,
        "needs_program": any(one.runtime != "onnx" for plan in job.plans for one in (plan, *plan.alternatives)),
        "trust_pickle": config.trust_pickle,
        "image": image_size(config),
        "preprocess": config.preprocess.model_dump() if config.preprocess else None,
        "labels": job.labels,
        "license": config.license,
        "seed": config.seed,
    }


class _clock:
    """Wall time of a block, under a step's name."""

    def __init__(self, timings: dict[str, float], step: str) -> None:
        self._timings, self._step = timings, step

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._timings[self._step] = time.perf_counter() - self._begin


def package_document(job: Job, builder: Builder, imported: Imported, variants: Sequence[Variant], bundle: Path) -> Json:
    """The ``edgesdk.package/1`` object with the report's fields; paths and this run's timings come later."""
    target = targets.find(job.config.target)
    shown = [
        VariantResult(
            v.lowered,
            v.verification,
            v.file,
            v.lowered.path.stat().st_size,
            v.sha256,
            v.lowered.rung,
            target.abis,
            v.guarded,
        )
        for v in variants
    ]
    return {
        "schema": "edgesdk.package/1",
        "name": job.name,
        "version": job.config.version,
        "target": job.config.target,
        "output": None,
        "bundle": None,
        **bundle_facts(bundle),
        "variants": [v.to_json() for v in shown],
        "timings_s": {
            step: round(builder.timings.get(step, 0.0), 3) for step in ("import", "lower", "verify", "bundle", "total")
        },
        "cache": {"hits": 0, "misses": 0},
        "warnings": _warnings(builder, imported, variants),
        "source": {**imported.model["source"], "git_commit": job.located.source.git_commit},
        "signature": imported.model["signature"],
        "preprocess": imported.model["preprocess"],
        "labels": len(imported.model["labels"] or ()),
        "task": imported.model["task"],
        "postprocess": postprocess(imported.model),
        "license": imported.model["license"],
        "history": imported.model["history"],
        "parameters": imported.parameters,
        "macs": imported.macs,
        "original_bytes": imported.weight_bytes,
        "signed": job.config.sign is not None,
        "tools": {"edgesdk": _version(), **caching.library_versions()},
    }


def _version() -> str:
    from edgesdk._version import __version__

    return __version__


def _warnings(builder: Builder, imported: Imported, variants: Sequence[Variant]) -> list[Json]:
    """Those about the model, the data, then the files; each once."""
    samples = builder.samples.warnings if builder.samples else ()
    found = [w.to_json() for w in dict.fromkeys((*imported.warnings, *samples))]
    found += _about_files(variants)
    found += [w.to_json() for w in _never_taken(variants)]
    if all(v.lowered.quantization == "none" for v in variants) and not (builder.samples or imported.came_quantized):
        found.append(_int8_hint(imported).to_json())
    return found


def _never_taken(variants: Sequence[Variant]) -> list[Warn]:
    """Files that stand behind one that runs wherever they do: an app takes the first that its device can run."""
    found: list[Warn] = []
    first: dict[tuple[str, str | None], Variant] = {}
    for v in variants:
        other = first.setdefault((v.lowered.runtime, v.lowered.backend), v)
        if other is not v:
            found.append(Warn(
                "never_first", f"{v.lowered.id} stands behind {other.lowered.id}, which runs wherever it does: apps take it by its name "
                "only. Name the scheme that apps shall take first (--quantize), or make one of the two.",
            ))  # fmt: skip
    return found


def _about_files(variants: Sequence[Variant]) -> list[Json]:
    """What the making of a file said, with the files that it was said of: int8 and float16 files warn alike."""
    ids: dict[Warn, list[str]] = {}
    for v in variants:
        unproven = v.verification.verified == "not_run"
        more = (Warn("not_verified", str(v.verification.why)),) if unproven else ()
        for warn in dict.fromkeys((*v.warnings, *more)):
            ids.setdefault(warn, []).append(v.lowered.id)
    return [
        {"code": warn.code, "message": _named(warn, of), "variants": of}
        for warn, of in ids.items()
    ]  # fmt: skip


def _named(warn: Warn, ids: Sequence[str]) -> str:
    """With the files that it is about, unless it begins with one, or names many as the choice of ``auto`` does."""
    named = warn.code == "auto_choice" or warn.message.startswith(tuple(ids))
    return warn.message if named else f"{', '.join(ids)}: {warn.message}"


def _int8_hint(imported: Imported) -> Warn:
    saved = f" and would save about {units.size(imported.weight_bytes * 3 // 4)}" if imported.weight_bytes else ""
    return Warn(
        "int8_hint",
        f"The weights stay float32. int8 needs 100 to 500 typical inputs (--quantize static-int8 --calibration DATA){saved}; "
        "--quantize weight-int8 and fp16 need none.",
    )
