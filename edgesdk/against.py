"""``verify --against MODEL``: run the variants of a bundle on fresh samples and compare with a source model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model, Signature, Verification
from edgesdk.errors import EdgeError, GateError, InputError, UnsupportedError, UsageError
from edgesdk.fidelity import TOLERANCES, Tolerance, compare, run_cases
from edgesdk.runtimes import find
from edgesdk.samples import Case, Feed, make_cases

if TYPE_CHECKING:
    from edgesdk.bundle import EdgeBundle
    from edgesdk.importing import ImportOptions

Made = tuple[tuple[Case, ...], list[list[Feed]]]
"""Cases, and the original's answers to them."""
_SEED = 20_000
"""Other samples than those that packaging used."""


def compare_bundle(
    bundle: EdgeBundle, model_text: str, options: ImportOptions, report: Callable[..., None]
) -> dict[str, Verification]:
    """Verifications by variant id; a variant whose engine isn't here is "not_run".

    Raises:
        GateError: the model's inputs or outputs are others than the bundle's.
        InputError, UnsupportedError: the model can't be read.
    """
    from edgesdk.importing._reference import reference_steps
    from edgesdk.quantize._steps import roundings

    signature = Signature.from_json(bundle.manifest.signature.model_dump(mode="json", exclude_none=True))
    report("reading the model", None)
    model = _import(model_text, options, signature)
    cases = make_cases(
        signature, int_ranges=model.int_ranges, preprocess=model.preprocess, stateful=model.stateful, seed=_SEED
    )
    report("running the original", None)

    def answered(some: tuple[Case, ...]) -> Made:
        return some, [reference_steps(model, case.feeds) for case in some]

    fresh = answered(cases)
    kept: Made | None = None
    explained = roundings(model, *fresh)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for variant in bundle.manifest.variants:
            report(f"running {variant.id}", None)
            if variant.quantization in TOLERANCES:
                allowed = TOLERANCES[variant.quantization]
                found[variant.id] = _run(bundle, variant, signature, fresh, allowed, Path(folder), explained)
            else:  # ranges calibrated on data don't hold on made-up inputs: the bundle's own samples judge
                kept = kept or answered(_golden(bundle))
                found[variant.id] = _within(variant, _run(bundle, variant, signature, kept, None, Path(folder)))
    return found


def _golden(bundle: EdgeBundle) -> tuple[Case, ...]:
    """The inputs of the bundle's golden vectors, a case for each sequence."""
    import numpy as np

    sequences: dict[int, list[Feed]] = {}
    for call in sorted(bundle.manifest.golden, key=lambda g: (g.sequence, g.step)):
        feed = {
            t.name: np.frombuffer(bundle.file(t.file), np.dtype(t.dtype).newbyteorder("<"))
            .reshape(t.shape)
            .astype(t.dtype)
            for t in call.inputs
        }
        sequences.setdefault(call.sequence, []).append(feed)
    return tuple(Case("golden", tuple(feeds)) for feeds in sequences.values())


def _within(variant: Any, found: Verification) -> Verification:
    """Hold an integer variant to the errors that its manifest allows."""
    if found.verified is not True:
        return found
    over = [
        f"output '{o.name}' is off by {o.max_abs_error:.3g}, more than {variant.tolerances[o.name]:.3g}"
        for o in found.outputs
        if o.max_abs_error > variant.tolerances.get(o.name, 0.0)
    ]
    return replace(found, verified=not over, why="; ".join(over) or None)


def _import(text: str, options: ImportOptions, signature: Signature) -> Model:
    """The model, with the bundle's input shapes unless the user gave others."""
    from edgesdk.importing import import_model, locate

    asked = options if options.inputs else replace(options, inputs=signature.inputs)
    try:
        model = import_model(locate(text, asked), asked)
    except (InputError, UsageError, UnsupportedError) as error:
        if options.inputs:
            raise
        model = _import_freely(text, options, error)
    if _shape_of(model.signature) != _shape_of(signature):
        raise GateError(
            "signature_mismatch", f"{text} is another model than the one in the bundle.",
            why=f"It has {_words(model.signature)}; the bundle has {_words(signature)}.",
            fix="Compare with the model that the bundle was made from.",
        )  # fmt: skip
    return model


def _import_freely(text: str, options: ImportOptions, error: EdgeError) -> Model:
    """The model as it describes itself; the first error counts when it can't be read that way either."""
    from edgesdk.importing import import_model, locate

    try:
        return import_model(locate(text, options), options)
    except EdgeError:
        raise error from None


def _shape_of(signature: Signature) -> list[list[tuple[str, str, str]]]:
    """What has to agree: names, dtypes and shapes."""
    return [[(s.name, s.dtype, str(s)) for s in specs] for specs in (signature.inputs, signature.outputs)]


def _words(signature: Signature) -> str:
    return f"{', '.join(map(str, signature.inputs))} → {', '.join(map(str, signature.outputs))}"


def _run(
    bundle: EdgeBundle,
    variant: Any,
    signature: Signature,
    made: Made,
    tolerance: Tolerance | None,
    folder: Path,
    roundings: Mapping[str, Tolerance] | None = None,
) -> Verification:
    runtime = find(variant.runtime)
    why = runtime.missing()
    if why is None and variant.backend and variant.backend not in runtime.runs_here:
        why = f"The back end {variant.backend} can't run on this machine."
    if why:
        return Verification(verified="not_run", why=why)
    path = folder / variant.file
    bundle.extract(variant.file, path)
    for extra in variant.extra_files:
        bundle.extract(extra, folder / extra)
    runner = runtime.load(path, signature)
    try:
        found = run_cases(runner, signature, made[0])
    finally:
        runner.close()
    return compare(signature, made[0], made[1], found, tolerance, engine=runtime.name, roundings=roundings)
