"""The whole run: import → lower → verify → bundle → emit, with every step's result cached by content."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk import cache as caching
from edgesdk import targets
from edgesdk.artifacts import Package
from edgesdk.feeding import read_labels
from edgesdk.importing import ImportOptions, Located, arch_missing, importer_of, locate
from edgesdk.naming import safe_name
from edgesdk.output import check_output, emit, relative
from edgesdk.planning import Job, as_json, image_size, plan_variants
from edgesdk.progress import Progress
from edgesdk.recipe import PackageConfig

if TYPE_CHECKING:
    from edgesdk.making import Workshop

Json = dict[str, Any]


def run(config: PackageConfig, progress: Progress) -> Package:
    """Make the package that ``config`` asks for.

    Raises:
        EdgeError: see ``edgesdk.errors``; nothing is left behind then.
    """
    return run_all([config], progress)[0]


def run_all(configs: Sequence[PackageConfig], progress: Progress) -> list[Package]:
    """The packages of one command; targets that ship the same files import, lower and verify them once.

    Raises:
        EdgeError: see ``edgesdk.errors``; the packages before the one that failed stand.
    """
    with contextlib.ExitStack() as stack:
        shared = _Shared(stack)
        return [_run(config, progress, shared) for config in configs]


@dataclass
class _Shared:
    """The workshop of one command, opened by the first target that isn't in the cache."""

    stack: contextlib.ExitStack
    workshop: Workshop | None = None

    def build(self, job: Job, cache: caching.Cache, progress: Progress) -> tuple[Json, Path]:
        from edgesdk.making import Workshop  # numpy and the rest: a run from the cache does without

        self.workshop = self.workshop or self.stack.enter_context(Workshop())
        return self.workshop.build(job, cache, progress)


def _run(config: PackageConfig, progress: Progress, shared: _Shared) -> Package:
    begin = time.perf_counter()
    job = prepare(config)
    folder = config.folder(job.name).absolute()
    cache = caching.Cache(enabled=not config.no_cache)
    with cache.work_folder() as work, cache.lock(job.key or "none-" + job.name):
        document, bundle = _cached(job, cache, work) or shared.build(job, cache, progress)
        progress.stage("writing the package")
        emit(document, bundle, folder, force=config.force)
    progress.done()
    return finished(document, folder, cache, time.perf_counter() - begin)


def plan(config: PackageConfig) -> Json:
    """What :func:`run` would do, as ``edgesdk.plan/1``; nothing is written.

    Raises:
        EdgeError: whatever can be refused before the model is read.
    """
    job = prepare(config)
    missing = arch_missing(job.located, config.arch)  # the run itself reads the weights first, and says more
    if missing:
        raise missing
    cached = job.key is not None and not config.no_cache and caching.Cache().holds(job.key)
    return as_json(config, job.plans, job.name, job.located.kind, cached)


def prepare(config: PackageConfig) -> Job:
    """Check everything that can be checked without torch: model, data, key, labels, output folder, combinations."""
    target = targets.find(config.target)
    plans = plan_variants(config, target)
    located = locate(config.model, _options(config))
    importer_of(located)
    name = config.name or safe_name(located.source.name)
    labels = read_labels(config.labels) if config.labels else None
    _check_data(config)
    key_id = _key_id(config.sign)
    check_output(config.folder(name).absolute(), force=config.force, needed=files_read(config, located))
    return Job(config, located, plans, name, labels, _key(config, located, labels, key_id))


def files_read(config: PackageConfig, located: Located) -> list[Path]:
    """Files and folders of the user that a run reads, and that no output may replace."""
    said = (config.labels, config.sign, *(Path(data) for data in (config.calibration, config.eval) if data))
    return [path for path in (*(located.files or (located.path,)), *said) if path]


def _check_data(config: PackageConfig) -> None:
    """Refuse data that aren't there, or are of no kind that can be read, before any work."""
    for text in (config.calibration, config.eval):
        if text:
            from edgesdk.data import locate_data

            locate_data(text)
    if config.metric:
        from edgesdk.metrics import check_name

        check_name(config.metric)


def _data_fingerprint(text: str) -> str | None:
    from edgesdk.data import fingerprint

    return fingerprint(text)


def _options(config: PackageConfig) -> ImportOptions:
    return ImportOptions(
        inputs=config.inputs, arch=config.arch, trust_pickle=config.trust_pickle, image=image_size(config)
    )


def _key_id(path: Path | None) -> str | None:
    """Fingerprint of the signing key's public half; a key that can't be used is refused before any work."""
    if path is None:
        return None
    from edgesdk.bundle import signing

    return signing.load_private(path).public.id


def _key(config: PackageConfig, located: Located, labels: Sequence[str] | None, key_id: str | None) -> str | None:
    if located.files is None:
        return None
    data = [_data_fingerprint(text) for text in (config.calibration, config.eval) if text]
    if None in data or (config.metric and ":" in config.metric):
        return None
    files = [(path.name, caching.sha256_file(path)) for path in located.files]
    asked = config.model_dump(
        mode="json",
        exclude={"model", "output", "root", "force", "no_cache", "jobs", "labels", "sign", "calibration", "eval"},
    )
    asked["inputs"] = [str(spec) for spec in config.inputs]
    asked["model"] = [located.kind, located.source.name, located.member, None if located.path else located.text]
    return caching.key("package", files, located.source.git_commit, asked, labels, key_id, data)


def _cached(job: Job, cache: caching.Cache, work: Path) -> tuple[Json, Path] | None:
    entry = cache.get(job.key, work / "found", count=len(job.plans)) if job.key else None
    if entry is None:
        if job.key:
            cache.misses = 0  # counted once, by the variants themselves
        return None
    return dict(entry.document), entry.files["bundle.edge"]


def finished(document: Json, folder: Path, cache: caching.Cache, total: float) -> Package:
    """The document of this run: paths as seen from here, this run's total, and what the cache did."""
    bundle = folder / f"{document['name']}.edge"
    timings = document["timings_s"] if cache.misses else dict.fromkeys(document["timings_s"], 0.0)
    shown = {
        **document,
        "output": relative(folder),
        "bundle": relative(bundle),
        "timings_s": {**timings, "total": round(total, 3)},
        "cache": {"hits": cache.hits, "misses": cache.misses},
    }
    return Package(document["name"], document["version"], document["target"], folder, bundle, shown)
