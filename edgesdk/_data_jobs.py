"""Worker jobs around data: read it, run the original and the lowered files on it, time them. JSON in, JSON out."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgesdk import modelfile
from edgesdk._jobs import Json, Report, let_go, lower_config_of, model_of, one_thread, runtime_of
from edgesdk._memory import frugal, give_back, tight
from edgesdk.artifacts import Signature, Warn
from edgesdk.errors import InputError
from edgesdk.evaluation import ARM64, ERRORS, EVALUATION, RACE, Arm64

if TYPE_CHECKING:
    from edgesdk._comparing import Comparison
    from edgesdk.artifacts import Model
    from edgesdk.data import SamplesInfo, Store
    from edgesdk.metrics import Metric
    from edgesdk.runtimes import Runner

Role = Literal["calibration", "evaluation"]
_REAL_CASES = 8
"""Samples of the user's data that join the inputs every file is verified with, and that become golden vectors."""
_JUDGED_CALIBRATION = 256
STORES = {"evaluation": "evaluation", "calibration": "calibration", "made up": "judge"}
"""Folder of the samples that files are judged on, by what they are."""


def read_samples(args: Json, report: Report) -> Json:
    """Read ``calibration`` and ``eval``, check them, and run the original on what files will be judged on.

    Leaves the stores ``calibration``, ``judge`` (samples) and ``judge-reference`` (the original's outputs) in ``folder``, and
    puts the first samples among the verification cases.
    """
    from edgesdk.data import Store

    one_thread()
    folder = Path(args["folder"])
    model = model_of(args["folder"])
    warnings: list[Warn] = []
    prints = []
    asked: tuple[tuple[Role, str | None, int | None], ...] = (
        ("calibration", args["calibration"], args["limit"]),
        ("evaluation", args["eval"], None),
    )
    for role, text, limit in asked:
        if text:
            info = _read(
                Reading(text, role, limit, args["seed"], _is_users(args["metric"])), model, folder / role, report
            )
            warnings += info.warnings
            prints.append(info.fingerprint)
    warnings += _about_both(prints, folder, model)
    data = "evaluation" if args["eval"] else "calibration" if args["calibration"] else "made up"
    count = _write_judge(model, folder, data, report)
    metric = _metric(args, model, Store(folder / STORES[data])) if args["eval"] else None
    if metric is not None:
        _score_original(metric, Store(folder / STORES[data]), Store(folder / "judge-reference"))
    if data != "made up":
        _extend_cases(folder, Store(folder / STORES[data]))
    digest = hashlib.sha256("".join([data, *prints]).encode()).hexdigest()
    let_go(args["folder"])
    give_back()
    return {
        "data": data, "count": count, "metric": metric.name if metric else None, "fingerprint": digest,
        "warnings": [w.to_json() for w in dict.fromkeys(warnings)],
    }  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What is read, for what, how much of it; ``free_labels`` when the user's own metric knows what they mean."""

    text: str
    role: Role
    limit: int | None
    seed: int
    free_labels: bool


def _is_users(metric: str | None) -> bool:
    return metric is not None and ":" in metric


def _read(asked: Reading, model: Model, folder: Path, report: Report) -> SamplesInfo:
    """Samples of one role, on disk and checked.

    Raises:
        InputError: the data can't be read, don't fit the model, or can't serve this purpose.
    """
    from edgesdk.data import ModelFacts, Store, check_samples, write_samples

    facts = ModelFacts.of(model)
    report(f"reading the {asked.role} samples", None)
    balanced = asked.role == "calibration"
    info = write_samples(
        asked.text, facts, folder, limit=asked.limit, seed=asked.seed, balanced=balanced, report=report
    )
    warnings = check_samples(Store(folder), facts, asked.role, free_labels=asked.free_labels)
    return replace(info, warnings=(*info.warnings, *warnings))


def _about_both(prints: list[str], folder: Path, model: Model) -> tuple[Warn, ...]:
    """What calibration and evaluation samples say about each other."""
    from edgesdk.data import ModelFacts, Store, compare_samples

    if len(prints) < 2:
        return ()
    return tuple(compare_samples(Store(folder / "calibration"), Store(folder / "evaluation"), ModelFacts.of(model)))


def _write_judge(model: Model, folder: Path, data: str, report: Report) -> int:
    """What lowered files are judged on, and the original's answers to it; the number of samples."""
    from edgesdk.data import Sample, Store, StoreWriter
    from edgesdk.importing._reference import reference_stream
    from edgesdk.samples import load_cases

    if data == "made up":
        cases = load_cases(folder / "cases.npz")
        with StoreWriter(folder / "judge") as made:
            for index, feed in enumerate(feed for case in cases for feed in case.feeds):
                made.append(Sample(feed, None, f"made-up sample {index}"))
    judge = Store(folder / STORES[data])
    count = min(len(judge), _JUDGED_CALIBRATION) if data == "calibration" else len(judge)
    with StoreWriter(folder / "judge-reference") as writer:
        answers = reference_stream(model, (sample.feed for sample in judge.first(count)))
        for index, answer in enumerate(_told(answers, count, "running the original on the samples", report)):
            writer.append(Sample(answer, None, str(index)))
    return count


def _told(items: Iterable[Any], count: int, words: str, report: Report) -> Iterator[Any]:
    for index, item in enumerate(items):
        if index % 16 == 0:
            report(f"{words}: {index} of {count}", index / max(1, count))
        yield item


def _extend_cases(folder: Path, judge: Store) -> None:
    """Put the first samples before the made-up cases: files are verified on them, and bundles carry them."""
    from edgesdk.data import Store
    from edgesdk.samples import REAL, Case, is_real, load_cases, load_outputs, save_cases, save_outputs

    answers = Store(folder / "judge-reference")
    count = min(_REAL_CASES, len(answers))
    stateful = len(load_cases(folder / "cases.npz")[0].feeds) > 1
    feeds = [judge[i].feed for i in range(count)]
    outputs = [answers[i].feed for i in range(count)]
    cases: list[Case] = [Case(REAL, tuple(feeds))] if stateful else [Case(REAL, (feed,)) for feed in feeds]
    reference = [outputs] if stateful else [[output] for output in outputs]
    # Without those of an earlier attempt, whose worker was killed in between.
    made = [case for case in load_cases(folder / "cases.npz") if not is_real(case)]
    known = load_outputs(folder / "reference.npz")
    known = known[len(known) - len(made) :]
    save_cases(folder / "cases.npz", (*cases, *made))
    save_outputs(folder / "reference.npz", [*reference, *known])


def _metric(args: Json, model: Model, judge: Store) -> Metric | None:
    """The metric asked for, or the one that the labels call for; None without labels.

    Raises:
        InputError: it doesn't fit labels and outputs, or was asked for without labels.
        UsageError: there is no such metric.
    """
    from edgesdk import metrics

    if args["metric"] is None:
        return metrics.choose(judge, model.signature, model.task)
    if not judge.labelled:
        raise InputError(
            "no_labels", f"--metric {args['metric']} needs labels, and {args['eval']} has none.",
            why="A metric compares answers with what they should be.",
            fix="Add them: an array 'label' in the .npz, a column 'label', or a folder for each class.",
        )  # fmt: skip
    return metrics.find(args["metric"], model.signature)


def _score_original(metric: Metric, judge: Store, reference: Store) -> None:
    """Try the metric on the original's answers: what it can't stand is said now and not after the lowering.

    Raises:
        InputError: ``metric_failed``.
    """
    tried = metric.fresh()
    for index in range(len(reference)):
        sample = judge[index]
        if sample.label is not None:
            tried.update(reference[index].feed, sample.label, sample.where)
    tried.value()


def evaluate(args: Json, report: Report) -> Json:
    """Run a lowered file over the data and compare it with the original's answers; an :class:`Evaluation` as JSON."""
    one_thread()
    bench = _Bench(args)
    with tight():
        runner = runtime_of(args["runtime"]).load(Path(args["file"]), bench.signature)
    comparison = bench.comparison()
    try:
        for index in _told(range(bench.count), bench.count, f"running {Path(args['file']).stem}", report):
            bench.step(index, runner, comparison)
    finally:
        runner.close()
    result: Json = EVALUATION.dump_python(comparison.result(args["data"], _HOST), mode="json")
    return result


def on_arm64(args: Json, report: Report) -> Json:
    """The first ``limit`` samples, or as many as ``seconds`` allow, on emulated arm64 and on this machine: both against the
    original, and against each other."""
    from edgesdk import emulated

    one_thread()
    bench = _Bench(args)
    path, count = Path(args["file"]), min(args["limit"], bench.count)
    runners = (
        emulated.load(args["runtime"], path, bench.signature),
        runtime_of(args["runtime"]).load(path, bench.signature),
    )
    comparisons = bench.comparison(), bench.comparison()
    values = equal = 0
    apart = 0.0
    deadline = time.monotonic() + args["seconds"]
    try:
        for index in _told(range(count), count, f"running {path.stem} on emulated arm64", report):
            if index >= _FEWEST and time.monotonic() > deadline:
                break
            both = [bench.step(index, *pair) for pair in zip(runners, comparisons, strict=True)]
            for phone, host in zip(*both, strict=True):
                values += phone.size
                equal += int(np.count_nonzero(phone == host))
                apart = max(apart, float(np.abs(phone.astype(np.float64) - host.astype(np.float64)).max(initial=0.0)))
    finally:
        for runner in runners:
            runner.close()
    phone_found, host_found = (
        c.result(args["data"], where) for c, where in zip(comparisons, ("arm64 (emulated)", _HOST), strict=True)
    )
    result: Json = ARM64.dump_python(Arm64(phone_found, host_found, equal / max(1, values), apart), mode="json")
    return result


_FEWEST = 4
"""Samples that the emulator runs at least, however slow it is."""
_HOST = f"{platform.machine()} host"


class _Bench:
    """What every run over the judged samples needs."""

    def __init__(self, args: Json) -> None:
        from edgesdk.data import Store

        folder = Path(args["folder"])
        self.signature = Signature.from_json(args["signature"])
        self.judge, self.reference = Store(folder / args["store"]), Store(folder / "judge-reference")
        self.count = len(self.reference)
        model = modelfile.described(folder)  # its words; the weights may stay on the disk
        self._labels = model.labels
        self._metric = _metric(args, model, self.judge) if args["eval"] else None
        self._names = [spec.name for spec in self.signature.outputs]

    def comparison(self) -> Comparison:
        from edgesdk._comparing import Comparison

        return Comparison(self.signature, self._metric, self._labels)

    def step(self, index: int, runner: Runner, comparison: Comparison) -> list[np.ndarray]:
        """One call, compared with the original's answer; its outputs."""
        sample = self.judge[index]
        given = runner.run([np.array(sample.feed[spec.name]) for spec in self.signature.inputs])
        comparison.update(sample, self.reference[index].feed, dict(zip(self._names, given, strict=True)))
        return given


def score(args: Json, report: Report) -> Json:
    """The metric that fits the calibration samples' labels, of a lowered file on the first of them; null when none does."""
    from edgesdk import metrics
    from edgesdk.data import Store
    from edgesdk.quantize._qat import JUDGED

    one_thread()
    signature = Signature.from_json(args["signature"])
    store = Store(Path(args["folder"]) / "calibration")
    metric = metrics.choose(store, signature)
    if metric is None or metric.name != "top1":  # training tells mean squared errors of its own kind for all others
        return {"value": None}
    runner = runtime_of(args["runtime"]).load(Path(args["file"]), signature)
    names = [spec.name for spec in signature.outputs]
    try:
        for sample in store.first(JUDGED):
            given = runner.run([np.array(sample.feed[spec.name]) for spec in signature.inputs])
            if sample.label is not None:
                metric.update(dict(zip(names, given, strict=True)), sample.label, sample.where)
    finally:
        runner.close()
    return {"value": metric.value()}


def layer_errors(args: Json, report: Report) -> Json:
    """Noise of each quantized layer, measured by the runtime on calibration samples."""
    one_thread()
    runtime = runtime_of(args["runtime"])
    report("measuring the noise of each layer", None)
    with frugal(True):
        found = runtime.layer_errors(
            model_of(args["folder"]), lower_config_of(args["config"]), args["samples"], alone=args["alone"]
        )
        let_go(args["folder"])
    return {"errors": ERRORS.dump_python(found, mode="json")}


def race(args: Json, report: Report) -> Json:
    """Time a quantized file against its float twin; a :class:`Race` as JSON."""
    from edgesdk._racing import race as run
    from edgesdk.data import Store

    runtime, signature = runtime_of(args["runtime"]), Signature.from_json(args["signature"])
    store = Store(Path(args["folder"]) / args["store"])
    names = [spec.name for spec in signature.inputs]
    feeds = [[np.array(sample.feed[name]) for name in names] for sample in store.first(8)]
    report("timing against float32", None)
    # The larger one first: loading takes up to three times the weights, and running once.
    with tight():
        runners = [runtime.load(Path(args[which]), signature, threads=1) for which in ("twin", "file")]
    try:
        result: Json = RACE.dump_python(run(runners[1], runners[0], feeds, threads=1), mode="json")
    finally:
        for runner in runners:
            runner.close()
    return result
