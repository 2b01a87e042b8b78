"""What a worker process does, one function a job: JSON in, JSON out, arrays and models through files.

Every function takes ``(args, report)``; paths in ``args`` are absolute or relative to the shared working directory.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from edgesdk import modelfile
from edgesdk._memory import frugal, tight
from edgesdk.artifacts import Lowered, Model, Signature, TensorSpec, Verification, Warn
from edgesdk.errors import EdgeError, GateError

if TYPE_CHECKING:
    from edgesdk.importing import ImportOptions
    from edgesdk.runtimes import EdgeRuntime, LowerConfig
    from edgesdk.samples import Case, Feed
    from edgesdk.session import SelfTest

Json = dict[str, Any]
Report = Callable[..., None]

LOWERED = TypeAdapter(Lowered)
VERIFICATION = TypeAdapter(Verification)

_held: dict[str, Model] = {}
"""Models that this process imported or read, by their folder: a lowering in the same process needs no file."""


def warm(args: Json, report: Report) -> Json:
    """Load what a later job of this process needs; see ``EdgeRuntime.warm_up``."""
    runtime_of(args["runtime"]).warm_up(lowering=args["lowering"])
    return {}


def import_options(args: Json) -> ImportOptions:
    from edgesdk.importing import ImportOptions

    inputs = tuple(TensorSpec.from_json(spec) for spec in args["inputs"])
    image = tuple(args["image"]) if args.get("image") else None
    return ImportOptions(
        inputs=inputs, arch=args["arch"], trust_pickle=args["trust_pickle"], image=image,
        needs_program=args.get("needs_program", True),
    )  # fmt: skip


def import_model(args: Json, report: Report) -> Json:
    """Import MODEL, make samples, run the original on them; leave ``cases.npz`` and ``reference.npz`` in ``folder``."""
    from edgesdk.importing import import_model as read
    from edgesdk.importing import locate
    from edgesdk.importing._reference import reference_steps
    from edgesdk.quantize._already import about_simulation, comes_quantized, refuse_quantized_tensors, refuse_unfinished
    from edgesdk.quantize._steps import roundings

    one_thread()
    gc.disable()  # importing torch and tracing make millions of lasting objects; collections in between find nothing
    options = import_options(args)
    report("reading the model", None)
    model = _prepared(read(locate(args["model"], options), options), args)
    refuse_unfinished(model)
    folder = Path(args["folder"])
    report("running the original", None)
    cases, reference = _references(model, args["seed"], folder, reference_steps)
    _held[args["folder"]] = model
    if args["save"]:
        refuse_quantized_tensors(model)
        report("saving the model", None)
        modelfile.save(model, folder)
    return {
        "model": modelfile.describe(model),
        "fingerprint": modelfile.fingerprint(model),
        "no_program": _error_of(model),
        "has": {
            "program": model.program is not None,
            "script": model.script is not None,
            "onnx": model.onnx is not None,
        },
        "warnings": [w.to_json() for w in (*_reference_warnings(model.signature, reference), *about_simulation(model))],
        "came_quantized": comes_quantized(model),
        "roundings": {name: asdict(one) for name, one in roundings(model, cases, reference).items()},
        **_statistics(model),
    }


def one_thread() -> None:
    """Tracing and compiling gain nothing from more threads, and workers share the cores."""
    import torch

    torch.set_num_threads(1)


def _prepared(model: Model, args: Json) -> Model:
    """The model with what the user said about pictures, labels and licence."""
    from edgesdk.feeding import with_user_words

    return with_user_words(
        model, preprocess=args.get("preprocess"), labels=args.get("labels"), license=args.get("license")
    )


def _references(model: Model, seed: int, folder: Path, run: Any) -> tuple[tuple[Case, ...], list[list[Feed]]]:
    from edgesdk.samples import make_cases, save_cases, save_outputs

    cases = make_cases(
        model.signature, int_ranges=model.int_ranges, preprocess=model.preprocess, stateful=model.stateful, seed=seed
    )
    reference = [run(model, case.feeds) for case in cases]
    save_cases(folder / "cases.npz", cases)
    save_outputs(folder / "reference.npz", reference)
    return cases, reference


def _reference_warnings(signature: Signature, reference: Sequence[Sequence[Feed]]) -> Sequence[Any]:
    from edgesdk.fidelity import reference_warnings

    return reference_warnings(signature, reference)


def _error_of(model: Model) -> Json | None:
    return model.no_program.to_json() if isinstance(model.no_program, EdgeError) else None


def _statistics(model: Model) -> Json:
    """Parameters, MACs and bytes of the original's weights, as far as they can be told."""
    if model.program is not None:
        from edgesdk.inspection.macs import count

        parameters = list(model.program.parameters())
        weights = [*parameters, *model.program.buffers()]
        return {
            "parameters": sum(p.numel() for p in parameters),
            "macs": count(model.program),
            "weight_bytes": sum(t.numel() * t.element_size() for t in weights),
        }
    if model.script is not None:
        weights = [*model.script.parameters(), *model.script.buffers()]
        size = sum(t.numel() * t.element_size() for t in weights)
        return {"parameters": sum(p.numel() for p in model.script.parameters()), "macs": None, "weight_bytes": size}
    size = model.onnx.stat().st_size if model.onnx else 0
    return {"parameters": None, "macs": None, "weight_bytes": size}


def model_of(folder: str) -> Model:
    """The model of a run's folder: the one this process imported, else the one on disk."""
    if folder not in _held:
        _held[folder] = modelfile.load(Path(folder))
    return _held[folder]


def let_go(folder: str) -> None:
    """Forget the model of a run that has it on disk: other jobs of this process then have its memory."""
    _held.pop(folder, None)


def lower(args: Json, report: Report) -> Json:
    """Lower the model of ``folder`` for one runtime; returns the :class:`Lowered` as JSON."""
    with frugal(args.get("frugal", False)):
        try:
            return _lower(args, report)
        finally:
            if args.get("frugal"):
                let_go(args["folder"])


def _lower(args: Json, report: Report) -> Json:
    from edgesdk.quantize import _already
    from edgesdk.runtimes import find

    one_thread()
    runtime = find(args["runtime"])
    config = lower_config_of(args["config"])
    report("loading the model", None)
    model = model_of(args["folder"])
    # Quantizers look at an ONNX graph themselves, when they have read it.
    if config.quantization == "fp16" or (config.quantization != "none" and model.onnx is None):
        _already.refuse(model, config.quantization)
    # TorchScript Lite stores float16 but computes in float32, and a user's ONNX graph is narrowed as it is.
    said: tuple[Warn, ...] = ()
    as_it_is = runtime.name == "torchscript" or (runtime.name == "onnx" and model.onnx is not None)
    if config.quantization == "fp16" and model.program is not None and not as_it_is:
        report("converting to float16", None)
        whole, model = model, _half(model, Path(args["folder"]), runtime.never_half)
        said = model.warnings[len(whole.warnings) :]
    report(f"lowering for {args['runtime']}", None)
    lowered = runtime.lower(model, config, Path(args["out"]))
    lowered = replace(lowered, warnings=(*said, *lowered.warnings))
    result: Json = LOWERED.dump_python(lowered, mode="json")
    return result


def lower_config_of(document: Json) -> LowerConfig:
    """``LowerConfig`` from its JSON."""
    from edgesdk.runtimes import LowerConfig

    calibration = document.get("calibration")
    keep = tuple(document.get("keep_float", ()))
    return LowerConfig(**{**document, "calibration": Path(calibration) if calibration else None, "keep_float": keep})


def _half(model: Model, folder: Path, never: frozenset[str]) -> Model:
    from edgesdk.runtimes._fp16 import to_half
    from edgesdk.samples import load_cases

    feeds = [feed for case in load_cases(folder / "cases.npz") for feed in case.feeds]
    return to_half(model, feeds, never)


def verify(args: Json, report: Report) -> Json:
    """Run a lowered file on its engine over the cases of ``folder``; returns the :class:`Verification` as JSON."""
    from edgesdk.fidelity import TOLERANCES, Tolerance, compare, run_cases
    from edgesdk.samples import is_real, load_cases, load_outputs

    runtime = runtime_of(args["runtime"])
    signature = Signature.from_json(args["signature"])
    folder = Path(args["folder"])
    cases, reference = load_cases(folder / "cases.npz"), load_outputs(folder / "reference.npz")
    report(f"running on {args['runtime']}", None)
    with tight():
        runner = runtime.load(Path(args["file"]), signature)
    try:
        found = run_cases(runner, signature, cases)
    finally:
        runner.close()
    # Integer schemes have no tolerance of their own: the guard judges them on data. Here they must run and be well formed.
    tolerance = TOLERANCES.get(args["quantization"])
    roundings = {name: Tolerance(**one) for name, one in args["roundings"].items()}
    measured = is_real if tolerance is None and any(map(is_real, cases)) else None
    engine = f"{args['runtime']} {runtime.version()}"
    result: Json = VERIFICATION.dump_python(
        compare(signature, cases, reference, found, tolerance, engine=engine, measured=measured, roundings=roundings),
        mode="json",
    )
    return result


def runtime_of(name: str) -> EdgeRuntime:
    """The runtime of that name, found without loading the others' engines."""
    from edgesdk.runtimes import find

    return find(name)


def check_bundle(args: Json, report: Report) -> Json:
    """Open the finished bundle and run its golden vectors on every variant that this machine can run.

    Raises:
        GateError: a variant's answers differ from the golden ones.
    """
    import edgesdk
    from edgesdk.bundle import EdgeBundle

    with EdgeBundle.open(Path(args["bundle"])) as bundle:
        signature = bundle.signature
    for variant in args["variants"]:
        report(f"checking {variant}", None)
        with tight():
            session = edgesdk.load(args["bundle"], variant)
        with session:
            test = session.self_test()
        if not test.ok:
            raise GateError(
                "golden_mismatch", f"{variant}: the finished bundle doesn't reproduce its golden outputs.",
                why=_why(test) or "The file answers differently in a fresh process.",
                fix="Run again with --no-cache; if it stays so, the model may not be deterministic.",
            )  # fmt: skip
    return {"signature": signature}


def against(args: Json, report: Report) -> Json:
    """Compare variants of a bundle with a source model; returns a verdict for each."""
    from edgesdk.against import compare_bundle
    from edgesdk.bundle import EdgeBundle

    one_thread()
    with EdgeBundle.open(Path(args["bundle"])) as bundle:
        found = compare_bundle(bundle, args["against"], import_options(args), report)
    return {"variants": [_verdict(id_, found[id_]) for id_ in args["variants"]]}


def _verdict(id_: str, verification: Verification) -> Json:
    outputs = verification.outputs
    return {
        "id": id_,
        "ran": verification.verified != "not_run",
        "max_abs_error": max((o.max_abs_error for o in outputs), default=None),
        "snr_db": min((o.snr_db for o in outputs if o.snr_db is not None), default=None),
        "why": verification.why,
        "ok": {"not_run": None}.get(str(verification.verified), verification.verified),
    }


def golden(args: Json, report: Report) -> Json:
    """Run the golden vectors of a bundle on each variant whose engine is here; returns a verdict for each."""
    import edgesdk
    from edgesdk.errors import MissingToolError, UnsupportedError

    found = []
    for id_ in args["variants"]:
        report(f"running {id_}", None)
        try:
            with edgesdk.load(args["bundle"], id_) as session:
                test = session.self_test()
        except (UnsupportedError, MissingToolError) as error:
            found.append(
                {"id": id_, "ran": False, "max_abs_error": None, "snr_db": None, "why": str(error), "ok": None}
            )
            continue
        except EdgeError as error:
            found.append(
                {"id": id_, "ran": False, "max_abs_error": None, "snr_db": None, "why": str(error), "ok": False}
            )
            continue
        found.append({
            "id": id_, "ran": True, "why": _why(test), "ok": test.ok,
            "max_abs_error": max((o.max_abs_error for o in test.outputs), default=None),
            "snr_db": min((o.snr_db for o in test.outputs if o.snr_db is not None), default=None),
        })  # fmt: skip
    return {"variants": found}


def _why(test: SelfTest) -> str | None:
    """What a failed self-test says, in words; None when it is fine."""
    if not test.calls:
        return "The bundle has no golden vectors."
    bad = [
        f"output '{o.name}' is off by {o.max_abs_error:.3g}, more than {o.tolerance:.3g}"
        for o in test.outputs
        if not o.ok
    ]
    return "; ".join(bad) or None
