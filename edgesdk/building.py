"""From a located model to verified files: import, then each variant lowered and checked, side by side in workers."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk import _crashes
from edgesdk import cache as caching
from edgesdk._jobs import LOWERED, VERIFICATION
from edgesdk.artifacts import Lowered, Rung, Signature, Verification, Warn
from edgesdk.errors import EdgeError, GateError, InputError, UnsupportedError, from_json
from edgesdk.evaluation import Guarded
from edgesdk.fidelity import Tolerance
from edgesdk.planning import VariantPlan
from edgesdk.progress import Progress
from edgesdk.quantize import schemes
from edgesdk.quantize.static_int8 import StaticInt8
from edgesdk.runtimes import find
from edgesdk.workers import Pool, WorkerCrashed

if TYPE_CHECKING:
    from edgesdk.recipe import PackageConfig

Json = dict[str, Any]
_LOWER_RUNG: Mapping[Rung, Rung] = {"full": "partial", "partial": "portable"}
_WORKER_BASE_BYTES = 1_500_000_000
"""Memory of a worker that has torch, executorch and a small model loaded (measured: 1.1 to 1.4 GB)."""


@dataclass(frozen=True)
class Imported:
    """What the import job said about the model; the model itself stays in the worker and on disk."""

    model: Json
    fingerprint: str
    has: Mapping[str, bool]
    no_program: EdgeError | None
    parameters: int | None
    macs: int | None
    weight_bytes: int
    warnings: tuple[Warn, ...]
    came_quantized: bool = False
    roundings: Mapping[str, Tolerance] = field(default_factory=dict)

    @property
    def signature(self) -> Signature:
        return Signature.from_json(self.model["signature"])


@dataclass(frozen=True)
class Variant:
    """A lowered and verified file, still in the work folder; ``guarded`` when its precision was judged on data."""

    lowered: Lowered
    verification: Verification
    file: str
    sha256: str
    warnings: tuple[Warn, ...] = ()
    guarded: Guarded | None = None


@dataclass(frozen=True)
class Samples:
    """The user's data after reading.

    Attributes:
        calibration: folder of the store with calibration samples; None without ``--calibration``.
        data: what files are judged on: ``evaluation``, ``calibration`` or ``made up``.
        count: samples in it.
        metric: name of the task metric; None when the data carry no labels.
        fingerprint: of all samples, labels included.
    """

    calibration: Path | None
    data: str
    count: int
    metric: str | None
    fingerprint: str
    warnings: tuple[Warn, ...] = ()


@dataclass
class Builder:
    """The state of one run: its workers, its folder, and what was imported."""

    config: PackageConfig
    import_args: Json
    folder: Path
    cache: caching.Cache
    progress: Progress
    pool: Pool
    timings: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)
    samples: Samples | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _saved: bool = False

    def import_model(self, plans: Sequence[VariantPlan]) -> Imported:
        """Run the import in worker 0, which keeps the model for the first lowering."""
        self._saved = len(plans) > 1 or wants_samples(self.config)
        args = {**self.import_args, "folder": str(self.folder), "save": self._saved}
        try:
            result = self.run("import", "_jobs:import_model", args, on=0)
        except WorkerCrashed as crash:
            raise _crashes.in_import(self.config.model, crash) from crash
        warnings = tuple(Warn(**w) for w in (*result["model"]["warnings"], *result["warnings"]))
        (self.folder / "model.json").write_text(json.dumps(result["model"]))
        return Imported(
            model=result["model"], fingerprint=result["fingerprint"], has=result["has"],
            no_program=from_json(result["no_program"]) if result["no_program"] else None,
            came_quantized=result["came_quantized"],
            roundings={name: Tolerance(**one) for name, one in result["roundings"].items()},
            parameters=result["parameters"], macs=result["macs"], weight_bytes=result["weight_bytes"], warnings=warnings,
        )  # fmt: skip

    def read_samples(self) -> None:
        """Bring the user's data into a form that every worker reads, check it, and run the original on it."""
        args = {
            "folder": str(self.folder), "calibration": self.config.calibration, "eval": self.config.eval,
            "metric": self.config.metric, "seed": self.config.seed, "limit": calibration_limit(self.config),
        }  # fmt: skip
        try:
            result = self.run("reading the samples", "_data_jobs:read_samples", args, on=0)
        except WorkerCrashed as crash:
            code = users_code(self.config, "calibration", "eval", "metric")
            raise (
                _crashes.in_users_code("Reading the samples", code, crash) if code else _crashes.in_reading(crash)
            ) from crash
        self.samples = Samples(
            calibration=self.folder / "calibration" if self.config.calibration else None,
            data=result["data"], count=result["count"], metric=result["metric"], fingerprint=result["fingerprint"],
            warnings=tuple(Warn(**w) for w in result["warnings"]),
        )  # fmt: skip

    def descend(
        self, plan: VariantPlan, imported: Imported, out: Path, keep_float: tuple[str, ...] = ()
    ) -> tuple[Lowered, Verification]:
        """Lower and verify, one rung lower each time the file answers wrongly, or crashes twice."""
        rung: Rung | None = "full"
        slips: list[Warn] = []
        first: EdgeError | None = None
        while True:
            failure: EdgeError
            try:
                lowered, where = self._lower(plan, rung or "portable", out, keep_float)
                checked = self._checked(plan, imported, lowered, where)
                if isinstance(checked, Verification):
                    return replace(lowered, warnings=(*lowered.warnings, *slips)), checked
                failure, rung = checked, _LOWER_RUNG.get(lowered.rung)
            except WorkerCrashed as crash:
                failure = _crashes.in_lowered_file(plan.id, plan.runtime, crash)
                rung = _LOWER_RUNG.get(rung or "portable")
            first = first or failure
            slow = rung == "portable" and plan.runtime == "executorch" and plan.backend != "portable"
            if slow and plan.quantization == "fp16" and first.code == "not_faithful":
                raise _too_coarse(plan, first) from failure
            if rung is None:
                raise failure
            slips.append(Warn("rung_lowered", f"{plan.id}: {failure.message} Lowered again as '{rung}'."))

    def _checked(
        self, plan: VariantPlan, imported: Imported, lowered: Lowered, lowered_by: int
    ) -> Verification | EdgeError:
        """The verification of a file that may be shipped, or what is wrong with it."""
        try:
            found = self.verify(plan, imported, lowered, lowered_by)
        except InputError as error:  # the engine refuses what the signature allows
            return _does_not_run(plan, error)
        return found if found.verified in (True, "not_run") else _unfaithful(plan, lowered, found)

    def _lower(self, plan: VariantPlan, rung: Rung, out: Path, keep_float: tuple[str, ...]) -> tuple[Lowered, int]:
        out.parent.mkdir(parents=True, exist_ok=True)
        config = {**self.lower_args(plan), "rung": rung, "keep_float": keep_float}
        args = {
            "folder": str(self.folder), "runtime": plan.runtime, "out": str(out), "config": config,
            "frugal": self.samples is not None,
        }  # fmt: skip

        def lower() -> tuple[int, Json]:
            try:
                # Every lowering leaves some megabytes behind: those of a search begin anew, on a worker that holds no model.
                where = (
                    {"fresh": True, "not_on": 0} if keep_float and self._saved else {"on": None if self._saved else 0}
                )
                return self.submit("_jobs:lower", args, **where).result()
            except WorkerCrashed:
                if not self.pool.stopped:
                    self._save_again()
                raise

        with _timed(self, "lower"):
            index, result = _crashes.twice(plan.id, lower, lambda: self.pool.stopped)
        return LOWERED.validate_python(result), index

    def _save_again(self) -> None:
        """The worker that held the model is gone: import once more, to a file this time."""
        with self._lock:
            if not self._saved:
                args = {**self.import_args, "folder": str(self.folder), "save": True}
                self.submit("_jobs:import_model", args).result()
                self._saved = True

    def verify(self, plan: VariantPlan, imported: Imported, lowered: Lowered, lowered_by: int) -> Verification:
        runtime = find(plan.runtime)
        if plan.backend is not None and plan.backend not in runtime.runs_here:
            return Verification(
                verified="not_run", why=f"The {plan.backend} back end doesn't run on this machine; check on the device."
            )
        args = {
            "folder": str(self.folder), "runtime": plan.runtime, "file": str(lowered.path),
            "quantization": plan.quantization, "signature": imported.signature.to_json(),
            "roundings": {name: asdict(one) for name, one in imported.roundings.items()},
        }  # fmt: skip
        with _timed(self, "verify"):
            # Another process than the one that lowered it reads the final bytes.
            return VERIFICATION.validate_python(self.run(plan.id, "_jobs:verify", args, not_on=lowered_by))

    def submit(self, job: str, args: Json, **where: Any) -> Future[tuple[int, Json]]:
        """Start a job (``module:function`` of ours) in a worker; the future holds (worker's number, result)."""
        return self.pool.submit(f"edgesdk.{job}", args, self.progress.update, **where)

    def run(self, what: str, job: str, args: Json, **where: Any) -> Json:
        """The result of a job; ``what`` it makes, for the message when its worker dies: see :func:`_crashes.twice`."""
        return _crashes.twice(what, lambda: self.submit(job, args, **where).result()[1], lambda: self.pool.stopped)

    def lower_args(self, plan: VariantPlan) -> Json:
        """:class:`LowerConfig` for a plan, without its rung and the layers that stay float."""
        calibration = self.samples.calibration if self.samples else None
        with_samples = {"calibration": str(calibration)} if calibration and is_quantized(plan.quantization) else {}
        return {**lower_config(self.config, plan), "seed": self.config.seed, **with_samples}


def is_quantized(quantization: str) -> bool:
    """Integer schemes: judged by the guard. Half precision is held to a tolerance like float32."""
    return quantization in schemes() and schemes()[quantization].weight_bits < 16


def wants_samples(config: PackageConfig) -> bool:
    """Whether anything must be judged on data."""
    return bool(config.calibration or config.eval or any(is_quantized(s) or s == "auto" for s in config.quantize))


def users_code(config: PackageConfig, *options: str) -> list[str]:
    """Those of the options that name Python code, as ``--eval data.py:test``."""
    said = {option: getattr(config, option) for option in options}
    return [f"--{option} {text}" for option, text in said.items() if text and ".py:" in text]


def calibration_limit(config: PackageConfig) -> int:
    """Most calibration samples that any of the schemes asked for uses."""
    asked = [schemes()[name] for name in config.quantize if name in schemes()]
    return max((getattr(scheme, "samples", 0) for scheme in asked), default=0) or StaticInt8.samples


def lower_config(config: PackageConfig, plan: VariantPlan) -> Json:
    """The part of the configuration that shapes a lowered file: :class:`LowerConfig` without its rung."""
    onnx = {"opset": config.opset, "ort_format": config.ort_format, "external_data_bytes": config.external_data_bytes}
    return {
        "backend": plan.backend,
        "quantization": plan.quantization,
        **(onnx if plan.runtime == "onnx" else {}),
        **({"bytecode": config.bytecode} if plan.runtime == "torchscript" else {}),
    }


def pool_size(jobs: int | None, variants: int, weight_bytes: int) -> int:
    """Workers to start: one for each variant and one that checks, as far as cores and memory go; at least two.

    A worker that lowers needs about 1.5 GB and three times the weights. Two are needed in any case, since what one
    process lowered another one checks; the second then only runs the small native engine.
    """
    import psutil

    fit = int(psutil.virtual_memory().available // (_WORKER_BASE_BYTES + 3 * weight_bytes))
    cores = os.cpu_count() or 1
    return max(2, min(variants, jobs or cores, fit))


class _timed:
    """Adds the wall time of a block to a step; parallel variants count the longest."""

    def __init__(self, builder: Builder, step: str) -> None:
        self._builder, self._step = builder, step

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        with self._builder._lock:
            took = time.perf_counter() - self._begin
            self._builder.timings[self._step] = max(took, self._builder.timings.get(self._step, 0.0))


def _unfaithful(plan: VariantPlan, lowered: Lowered, verification: Verification) -> EdgeError:
    return GateError(
        "not_faithful", f"{plan.id} answers differently from the original: {verification.why}.",
        why="An operator of the runtime computes something else, or the precision doesn't suffice.",
        fix=f"Try {_other_ways(plan)}, or report the model; nothing was written.",
        details={"id": plan.id, "rung": lowered.rung, "outputs": [o.to_json() for o in verification.outputs]},
    )  # fmt: skip


def _other_ways(plan: VariantPlan) -> str:
    backend = " or --backend portable" if plan.runtime == "executorch" and plan.backend != "portable" else ""
    precision = "without --quantize fp16, " if plan.quantization == "fp16" else ""
    return f"{precision}another --runtime{backend}"


def _too_coarse(plan: VariantPlan, failure: EdgeError) -> EdgeError:
    """Half precision is asked for to be smaller and faster; portable kernels take a hundred times float32's time."""
    return GateError(
        failure.code, failure.message,
        why="XNNPACK's half precision doesn't suffice. The portable kernels, which may round less, are far slower than float32 "
        "on XNNPACK.",
        fix="Leave out --quantize fp16, or try --quantize weight-int8 or --runtime onnx. Should size alone count, try --backend "
        "portable.",
        details=failure.details,
    )  # fmt: skip


def _does_not_run(plan: VariantPlan, error: InputError) -> EdgeError:
    return UnsupportedError(
        "lowered_file_fails", f"{plan.id} fails on inputs that the model takes: {error.message}",
        why=error.why, fix=f"Try {_other_ways(plan)}, fixed sizes in --input, or report the model.",
        details={"id": plan.id},
    )  # fmt: skip
