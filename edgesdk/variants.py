"""The variants of a package: each made once, kept in the cache, judged on data where its precision asks for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from edgesdk import _crashes, units
from edgesdk import cache as caching
from edgesdk._data_jobs import STORES
from edgesdk._jobs import LOWERED, VERIFICATION
from edgesdk.artifacts import LayerError, Lowered, Verification, Warn
from edgesdk.building import Builder, Imported, Variant, is_quantized, lower_config, users_code
from edgesdk.errors import GateError, UnsupportedError
from edgesdk.evaluation import (
    ARM64,
    ERRORS,
    EVALUATION,
    GUARDED,
    RACE,
    Evaluation,
    Guarded,
    Race,
    Stage,
    facts,
    stages_of,
)
from edgesdk.guard import Search, Tools
from edgesdk.judging import measured, other_schemes, remarks, shortfall
from edgesdk.planning import VariantPlan
from edgesdk.quantize import schemes
from edgesdk.runtimes import find
from edgesdk.workers import WorkerCrashed

Json = dict[str, Any]
_ERROR_SAMPLES = 32
"""Calibration samples on which the noise of each layer is measured when layers must go back to float."""
_SHOWN_SAMPLES = 8
"""The same when the figures are only shown."""
HARDLY_SMALLER = 0.9
"""Share of the float file's size above which the user is told that nothing was gained."""
_ARM64_SAMPLES = 64
_ARM64_SECONDS = 30.0
"""Samples that the emulator runs: it is thirty to a hundred times slower than this machine."""


@dataclass
class Maker:
    """Makes the variants of one run."""

    builder: Builder
    imported: Imported
    _made: dict[str, Future[Variant]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def variants(self, plans: Sequence[VariantPlan]) -> list[Variant]:
        """Make all variants, several at a time; the first failure ends the run."""
        with ThreadPoolExecutor(max_workers=max(1, 2 * len(plans))) as threads:
            jobs = [threads.submit(self._variant, plan) for plan in plans]
            try:
                done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
                for job in done:
                    job.result()
                made = [job.result() for job in jobs]
                twins = [self._twin(one) for one in made]
                # Races are run at the end, when nothing else runs here, and in processes of their own.
                found = [self._finished(one, twin) for one, twin in zip(made, twins, strict=True)]
            except BaseException:  # Ctrl-C too: the other variants' threads end only when their workers do
                self.builder.pool.stop()
                raise
        return list({variant.lowered.id: variant for variant in found}.values())

    def _variant(self, plan: VariantPlan) -> list[Variant]:
        """One variant, or with ``auto`` all candidates; of several runtimes, by the first that takes the model."""
        tried: list[str] = []
        for one in (plan, *plan.alternatives):
            try:
                made = self._candidates(one) if one.candidates else [self._once(one)]
            except (UnsupportedError, GateError) as error:
                if not plan.alternatives:
                    raise
                tried.append(f"{one.runtime}: {error.message} {error.why}")
                continue
            passed_over = Warn("runtime_passed_over", " ".join(tried))
            return [replace(v, warnings=(*v.warnings, passed_over)) for v in made] if tried else made
        raise UnsupportedError(
            "no_runtime", "No runtime takes this model.", why=" ".join(tried),
            fix="Name one with --runtime to see its full message.",
        )  # fmt: skip

    def _once(self, plan: VariantPlan) -> Variant:
        """The variant of a plan; whoever asks second waits for the first."""
        with self._lock:
            future = self._made.get(plan.id)
            mine = future is None
            if future is None:
                future = self._made[plan.id] = Future()
        if mine:
            try:
                future.set_result(self._cached(plan))
            except BaseException as error:  # the waiting threads must hear of it, whatever it is
                future.set_exception(error)
        return future.result()

    def _cached(self, plan: VariantPlan) -> Variant:
        self._check_form(plan)
        builder, samples = self.builder, self.builder.samples
        judged = (
            [samples.fingerprint, samples.metric, builder.config.max_drop, _emulator(plan.runtime)] if samples else []
        )
        key = caching.key(
            "variant",
            self.imported.fingerprint,
            plan.id,
            lower_config(builder.config, plan),
            builder.config.seed,
            judged,
        )
        file = plan.id + plan.suffix(builder.config)
        entry = builder.cache.get(key, builder.folder / "cached" / plan.id)
        if entry:
            lowered = LOWERED.validate_python(entry.document["lowered"])
            extra = tuple(entry.files[p.name] for p in lowered.extra_files)
            lowered = replace(lowered, path=entry.files[file], extra_files=extra)
            verification = VERIFICATION.validate_python(entry.document["verification"])
            kept = entry.document["guarded"]
            guarded = GUARDED.validate_python(kept) if kept else None
        else:
            lowered, verification, guarded = self._made_anew(plan, file)
            self._keep(key, lowered, verification, guarded)
        said: tuple[Warn, ...] = ()
        if guarded:
            said = remarks(plan.id, guarded.evaluation, builder.config.max_drop) + _about_search(plan.id, guarded)
        return Variant(
            lowered, verification, file, caching.sha256_file(lowered.path), (*lowered.warnings, *said), guarded
        )

    def _keep(self, key: str, lowered: Lowered, verification: Verification, guarded: Guarded | None) -> None:
        document = {
            "lowered": LOWERED.dump_python(lowered, mode="json"),
            "verification": VERIFICATION.dump_python(verification, mode="json"),
            "guarded": GUARDED.dump_python(guarded, mode="json") if guarded else None,
        }
        self.builder.cache.put(key, document, {p.name: p for p in (lowered.path, *lowered.extra_files)})

    def _made_anew(self, plan: VariantPlan, file: str) -> tuple[Lowered, Verification, Guarded | None]:
        folder = self.builder.folder / plan.id
        if not self._can_judge(plan):
            return *self.builder.descend(plan, self.imported, folder / file), None
        tools = Tools(
            lower=lambda keep, where: self.builder.descend(plan, self.imported, where / file, keep),
            evaluate=lambda lowered: self._evaluate(plan, lowered),
            errors=lambda: self._errors(plan, _ERROR_SAMPLES, alone=True),
            report=self.builder.progress.update,
        )
        try:
            lowered, verification, guarded = Search(plan.id, self.builder.config.max_drop, tools, folder).run()
        except GateError as error:
            raise self._with_doubts(error, plan.quantization) from error
        return lowered, verification, self._complete(plan, lowered, guarded)

    def _with_doubts(self, error: GateError, scheme: str) -> GateError:
        """What is odd about the data is the likeliest cause of a refusal; the scheme that failed is no way out."""
        said = " ".join(w.message for w in self.builder.samples.warnings) if self.builder.samples else ""
        why = f"{error.why} About the data: {said}" if said else error.why
        fix = other_schemes(error.fix, scheme)
        if said:
            fix = f"First see to the data (see above). Then: {fix}"
        return GateError(error.code, error.message, why=why, fix=fix, details=error.details)

    def _complete(self, plan: VariantPlan, lowered: Lowered, guarded: Guarded) -> Guarded:
        """What the report shows of a file that passed: noise of its layers, the processor, arm64's answers."""
        from edgesdk import emulated

        if not is_quantized(plan.quantization):
            return guarded
        calibrated = schemes()[plan.quantization].calibrated
        errors = guarded.errors or (self._errors(plan, _SHOWN_SAMPLES, alone=False) if calibrated else ())
        guarded = replace(
            guarded,
            errors=errors,
            max_drop=self.builder.config.max_drop,
            host=emulated.host_cpu().to_json(),
            stages=self._stages(plan, lowered),
        )
        return self._on_arm64(plan, lowered, guarded)

    def _stages(self, plan: VariantPlan, lowered: Lowered) -> tuple[Stage, ...]:
        """Where a training with simulated int8 lost what it lost (pitfall Q-13)."""
        if not schemes()[plan.quantization].labelled:
            return ()
        args = self._args(plan, file=str(lowered.path))
        return stages_of(lowered.warnings, self._run(plan, "score", args)["value"])

    def _can_judge(self, plan: VariantPlan) -> bool:
        """Files that no engine here runs are judged on the device; float files only when there is labelled data."""
        runtime = find(plan.runtime)
        if self.builder.samples is None:
            return False
        if plan.backend and plan.backend not in runtime.runs_here:
            return is_quantized(plan.quantization) and plan.backend in runtime.stand_ins
        return is_quantized(plan.quantization) or self.builder.config.eval is not None

    def _check_form(self, plan: VariantPlan) -> None:
        """Refuse early when this runtime needs a form of the model that could not be made."""
        own = {"torchscript": "script", "onnx": "onnx"}.get(plan.runtime)
        if self.imported.has["program"] or (own and self.imported.has[own]) or plan.runtime == "null":
            return
        raise self.imported.no_program or UnsupportedError(
            "no_program", f"The {plan.runtime} runtime can't take this model.",
            why="It could not be turned into an exported program.", fix="Export it with torch.export and package the .pt2.",
        )  # fmt: skip

    # -- what the guard needs of the workers --------------------------------------------------------------------------

    def _args(self, plan: VariantPlan, **more: Any) -> Json:
        signature = self.imported.signature.to_json()
        data = self.builder.samples.data if self.builder.samples else "made up"
        common = {"folder": str(self.builder.folder), "data": data, "store": STORES[data]}
        return {**common, "runtime": plan.runtime, "signature": signature, **more}

    def _asked(self) -> Json:
        return {"metric": self.builder.config.metric, "eval": self.builder.config.eval}

    def _run(self, plan: VariantPlan, job: str, args: Json, **where: Any) -> Json:
        """A job on the file of a plan.

        Raises:
            InputError: its worker was killed, or ended where the user's metric ran.
            UnsupportedError: the engine crashed.
        """
        try:
            return self.builder.run(plan.id, f"_data_jobs:{job}", args, **where)
        except WorkerCrashed as crash:
            code = users_code(self.builder.config, "metric") if "metric" in args else []
            if code:
                raise _crashes.in_users_code(f"Measuring {plan.id}", code, crash) from crash
            raise _crashes.in_lowered_file(plan.id, plan.runtime, crash) from crash

    def _evaluate(self, plan: VariantPlan, lowered: Lowered) -> Evaluation:
        args = self._args(plan, file=str(lowered.path), **self._asked())
        return EVALUATION.validate_python(self._run(plan, "evaluate", args))

    def _errors(self, plan: VariantPlan, samples: int, *, alone: bool) -> tuple[LayerError, ...]:
        args = self._args(plan, samples=samples, alone=alone)
        # Schemes without calibration measure their noise on what they are judged on.
        args["config"] = {"calibration": str(self.builder.folder / args["store"]), **self.builder.lower_args(plan)}
        found: tuple[LayerError, ...] = ERRORS.validate_python(self._run(plan, "layer_errors", args)["errors"])
        return found

    def _on_arm64(self, plan: VariantPlan, lowered: Lowered, guarded: Guarded) -> Guarded:
        """The same judgement on the arithmetic of phones, where the emulator is set up."""
        missing = _emulator(plan.runtime)
        if plan.backend in find(plan.runtime).stand_ins:
            missing = f"{plan.backend} files run on their own devices only; the figures are PyTorch's."
        if missing:
            return replace(guarded, arm64_why=missing)
        args = self._args(plan, file=str(lowered.path), limit=_ARM64_SAMPLES, seconds=_ARM64_SECONDS, **self._asked())
        both = ARM64.validate_python(self._run(plan, "on_arm64", args))
        found = both.evaluation
        # A file that is as bad here on these few samples passed on all of them.
        fault = shortfall(found, None) if not shortfall(both.host, None) else None
        if fault:
            raise GateError(
                "arm64_differs", f"{plan.id} is good here and not on arm64: {fault}.",
                why=f"Here: {measured(both.host)}. On arm64: {measured(found)}.",
                fix="Try another --runtime, or --quantize fp16.",
                details={"id": plan.id, "arm64": EVALUATION.dump_python(found, mode="json")},
            )  # fmt: skip
        return replace(guarded, arm64=found, arm64_host=both.host, arm64_equal=both.equal)

    # -- float twins, races, and the choice of auto -------------------------------------------------------------------

    def _candidates(self, plan: VariantPlan) -> list[Variant]:
        """Everything that ``auto`` may choose from, float first; a scheme that fails is out."""
        with ThreadPoolExecutor(max_workers=len(plan.candidates)) as threads:
            jobs = [(one, threads.submit(self._once, one)) for one in plan.candidates]
        made = [jobs[0][1].result()]
        tried: dict[str, str] = {}
        for one, job in jobs[1:]:
            try:
                made.append(job.result())
            except (UnsupportedError, GateError) as error:
                tried[one.id] = error.message
        return [replace(v, guarded=replace(v.guarded or _unjudged(), tried=tried)) for v in made]

    def _finished(self, made: list[Variant], twin: Variant | None) -> Variant:
        if _has_choice(made):
            return self._chosen(made)
        return self._raced(made[0], twin) if twin else made[0]

    def _twin(self, made: list[Variant]) -> Variant | None:
        """The float32 file to race against: of the same runtime and back end; None when there is none, or no need."""
        lowered, guarded = made[0].lowered, made[0].guarded
        # Half precision is timed where it is judged on data; a float16 file alone needs no float32 twin.
        wanted = is_quantized(lowered.quantization) or (lowered.quantization in schemes() and guarded is not None)
        if _has_choice(made) or not wanted or made[0].verification.verified == "not_run":
            return None
        with contextlib.suppress(UnsupportedError, GateError):
            return self._once(VariantPlan(lowered.runtime, lowered.backend, "none"))
        return None

    def _raced(self, variant: Variant, twin: Variant) -> Variant:
        race = self._race(variant, twin)
        config, id_ = self.builder.config, variant.lowered.id
        guarded = replace(variant.guarded or _unjudged(), race=race, float_bytes=twin.lowered.path.stat().st_size)
        said = _about_size(variant, twin)
        if race.slower:
            times = (
                f"{race.ratio:.2f} times its time, medians {race.p50:.3g} and {race.float_p50:.3g} ms ({race.where})"
            )
            if config.require_faster:
                raise GateError(
                    "slower_than_float", f"{id_} is slower than float32: {times}.",
                    why=f"The ratio is {race.ratio:.2f} (95 % interval {race.low:.2f} to {race.high:.2f}): quantizing and "
                    "dequantizing around float operators costs more than the integer arithmetic saves.",
                    fix="Leave --require-faster out if size is the aim, or keep float32.", details={"id": id_},
                )  # fmt: skip
            said += (
                Warn(
                    "slower_than_float", f"{id_} is slower than float32: {times}. Keep float32 unless size is the aim."
                ),
            )
        return replace(variant, guarded=guarded, warnings=(*variant.warnings, *said))

    def _race(self, variant: Variant, twin: Variant) -> Race:
        key = caching.key("race", variant.sha256, twin.sha256)
        entry = self.builder.cache.get(key, self.builder.folder / "race", count=0)
        if entry:
            return RACE.validate_python(entry.document)
        self.builder.progress.update(f"timing {variant.lowered.id} against float32", None)
        plan = VariantPlan(variant.lowered.runtime, variant.lowered.backend, variant.lowered.quantization)
        args = self._args(plan, file=str(variant.lowered.path), twin=str(twin.lowered.path))
        # Two loaded files beside what lowering left would be the run's peak. Worker 0 may hold the model.
        result = self._run(plan, "race", args, fresh=True, not_on=0)
        self.builder.cache.put(key, result, {})
        return RACE.validate_python(result)

    def _chosen(self, made: Sequence[Variant]) -> Variant:
        """The smallest candidate that is not slower than float32; float32 itself if none is."""
        twin, tried = made[0], dict(made[0].guarded.tried) if made[0].guarded else {}
        by_size = sorted(made[1:], key=lambda v: v.lowered.path.stat().st_size)
        for variant in by_size:
            size, limit = variant.lowered.path.stat().st_size, twin.lowered.path.stat().st_size
            if size >= limit:
                tried[variant.lowered.id] = f"not smaller than float32: {facts(size, variant.guarded)}"
                continue
            raced = self._raced_quietly(variant, twin)
            race = raced.guarded.race if raced.guarded else None
            if race and race.slower and not self.builder.config.allow_slower:
                tried[variant.lowered.id] = f"slower than float32 ({race.where}): {facts(size, raced.guarded)}"
                continue
            others = [v for v in by_size if v.lowered.id not in tried and v is not variant]
            rest = {v.lowered.id: f"good, and larger: {_facts_of(v)}" for v in others}
            return _with_choice(raced, {**tried, **rest, variant.lowered.id: f"kept: {_facts_of(raced)}"})
        return _with_choice(twin, {**tried, twin.lowered.id: f"kept: {_facts_of(twin)}"})

    def _raced_quietly(self, variant: Variant, twin: Variant) -> Variant:
        raced = self._race(variant, twin)
        size = twin.lowered.path.stat().st_size
        return replace(variant, guarded=replace(variant.guarded or _unjudged(), race=raced, float_bytes=size))


def _has_choice(made: Sequence[Variant]) -> bool:
    """Whether these are the candidates of ``auto``."""
    return len(made) > 1 or bool(made[0].guarded and made[0].guarded.tried)


def _facts_of(variant: Variant) -> str:
    return facts(variant.lowered.path.stat().st_size, variant.guarded)


def _with_choice(variant: Variant, tried: dict[str, str]) -> Variant:
    said = "; ".join(f"{id_}: {what}" for id_, what in tried.items())
    guarded = replace(variant.guarded or _unjudged(), tried=tried)
    return replace(variant, guarded=guarded, warnings=(*variant.warnings, Warn("auto_choice", said)))


def _about_size(variant: Variant, twin: Variant) -> tuple[Warn, ...]:
    size, full = variant.lowered.path.stat().st_size, twin.lowered.path.stat().st_size
    if size <= HARDLY_SMALLER * full:
        return ()
    weights = sum(layer.bytes for layer in variant.lowered.layers)
    floats = sum(layer.bytes for layer in variant.lowered.layers if layer.precision == "float32")
    if 2 * weights < full or not floats:  # a loop of a recurrent layer, unrolled, or a very small net
        why = f"weights are only {units.size(weights)} of the float32 file; the graph takes the rest"
    else:
        why = f"{units.size(floats)} of {units.size(weights)} of weights are not quantized"
    return (Warn(
        "hardly_smaller", f"{variant.lowered.id} has {size / full:.0%} of the float32 file's {units.size(full)}: {why}. "
        "Another scheme, or float32, serves better.",
    ),)  # fmt: skip


def _about_search(id_: str, guarded: Guarded) -> tuple[Warn, ...]:
    if not guarded.restored:
        return ()
    first = guarded.probes[0]
    layers = "1 layer is" if len(guarded.restored) == 1 else f"{len(guarded.restored)} layers are"
    before = f"drop {first.drop:.2f}" if first.drop is not None else f"top-1 agreement {first.top1 or 0:.1%}"
    return (Warn(
        "layers_restored", f"{id_}: {layers} back in float so that --max-drop holds ({', '.join(guarded.restored)}); "
        f"with all of them in int8: {before}.",
    ),)  # fmt: skip


def _unjudged() -> Guarded:
    return Guarded(Evaluation(samples=0, data="none", where=""))


def _emulator(runtime: str) -> str | None:
    """None when this runtime's files can be run on emulated arm64 here, else why not."""
    from edgesdk import emulated

    if runtime not in emulated.RUNTIMES:
        return f"The emulator runs files of {' and '.join(emulated.RUNTIMES)}."
    return emulated.missing(runtime)
