"""Compare a lowered file, run by its real engine, with the original model.

The figures are those of the field: largest and mean absolute error, signal-to-noise ratio
``10·log10(Σ ref² / Σ (ref − got)²)`` in dB, cosine similarity, and agreement of the best class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgesdk.artifacts import OutputFidelity, Signature, Verification, Warn
from edgesdk.samples import Case, Feed, describe_shapes

if TYPE_CHECKING:
    from edgesdk.runtimes import Runner

Outputs = dict[str, "np.ndarray"]


@dataclass(frozen=True)
class Tolerance:
    """What still counts as the same answer.

    Attributes:
        relative: largest error as a share of the output's largest magnitude. Float kernels of two engines differ in
            the order of their sums: about 1e-6 per layer, and deep nets amplify it; 1e-3 leaves three digits.
        snr_db: least signal-to-noise ratio. 55 dB is what 1e-3 relative error gives at a crest factor of two.
        flips: share of integer or boolean values that may differ (argmax ties).
    """

    relative: float = 1e-3
    snr_db: float = 55.0
    flips: float = 0.0

    def looser(self, other: Tolerance | None) -> Tolerance:
        """What either of the two allows."""
        if other is None:
            return self
        return Tolerance(
            max(self.relative, other.relative), min(self.snr_db, other.snr_db), max(self.flips, other.flips)
        )

    def stricter(self, other: Tolerance) -> Tolerance:
        """What both of the two allow."""
        return Tolerance(
            min(self.relative, other.relative), max(self.snr_db, other.snr_db), min(self.flips, other.flips)
        )


TOLERANCES: Mapping[str, Tolerance] = {
    "none": Tolerance(),
    # Half precision carries 11 bits: 2⁻¹¹ = 4.9e-4 per rounding, some dozens of roundings deep. XNNPACK and ARM also add up
    # in it: at 41 dB the worst of MiniLM's 2.5 million values over 200 sentences, at padding, is off by 6.5 % of the largest.
    "fp16": Tolerance(relative=1e-1, snr_db=34.0, flips=0.01),
    # A user's own file of unknown precision (edgesdk bundle): 20 dB is where int8 that is still useful ends.
    "custom": Tolerance(relative=0.3, snr_db=20.0, flips=0.05),
}
ROUNDED = Tolerance(relative=0.25, snr_db=25.0, flips=0.05)
"""The most that is allowed to a model that comes quantized, whatever its own roundings explain."""
ABSOLUTE_FLOOR = 1e-6
"""Errors below this are never held against an output whose values are (nearly) zero."""


def run_cases(runner: Runner, signature: Signature, cases: Sequence[Case]) -> list[list[Outputs]]:
    """Run every case on a loaded file, each from the initial state; a list over the steps for each case."""
    names = [spec.name for spec in signature.outputs]
    found = []
    for case in cases:
        runner.reset()
        steps = []
        for feed in case.feeds:
            values = runner.run([np.asarray(feed[spec.name], order="C") for spec in signature.inputs])
            steps.append(dict(zip(names, values, strict=True)))
        found.append(steps)
    return found


def compare(
    signature: Signature,
    cases: Sequence[Case],
    reference: Sequence[Sequence[Outputs]],
    found: Sequence[Sequence[Outputs]],
    tolerance: Tolerance | None,
    *,
    engine: str = "",
    measured: Callable[[Case], bool] | None = None,
    roundings: Mapping[str, Tolerance] | None = None,
) -> Verification:
    """Judge what an engine answered against what the original answered on the same cases.

    Args:
        tolerance: None judges shapes, dtypes and finiteness alone.
        measured: the cases whose errors are counted; None counts all. Shapes and dtypes are checked on every case.
        roundings: what the original's own roundings explain, by output, where that is more than ``tolerance``.
    """
    outputs, faults, allowed = [], [], []
    kept = [measured is None or measured(case) for case in cases]
    for spec in signature.outputs:
        wanted = [step[spec.name] for case in reference for step in case]
        given = [step[spec.name] for case in found for step in case]
        fault = _structural_fault(wanted, given)
        if fault:
            faults.append(f"output '{spec.name}' {fault}")
            continue
        counted = [use for use, case in zip(kept, reference, strict=True) for _ in case]
        wanted = [array for array, use in zip(wanted, counted, strict=True) if use]
        given = [array for array, use in zip(given, counted, strict=True) if use]
        fidelity = fidelity_of(spec.name, wanted, given)
        outputs.append(fidelity)
        if tolerance is None:
            continue
        allowed.append(tolerance.looser((roundings or {}).get(spec.name)))
        fault = _numeric_fault(fidelity, wanted, given, allowed[-1])
        if fault:
            faults.append(f"output '{spec.name}' {fault}")
    return Verification(
        verified=not faults,
        outputs=tuple(outputs),
        samples=sum(len(case.feeds) for case, use in zip(cases, kept, strict=True) if use),
        shapes=describe_shapes(tuple(cases)),
        tolerance=max((one.relative for one in allowed), default=0.0),
        why="; ".join(faults) or None,
        engine=engine,
        cpu_flags=cpu_flags(),
    )


def _structural_fault(wanted: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> str | None:
    for one, other in zip(wanted, given, strict=True):
        if one.shape != other.shape:
            return f"has the shape {list(other.shape)} instead of {list(one.shape)}"
        if one.dtype != other.dtype:
            return f"has the dtype {other.dtype} instead of {one.dtype}"
        if one.dtype.kind in "fc" and not np.array_equal(np.isfinite(one), np.isfinite(other)):
            return "has NaN or infinite values where the original has none, or the other way round"
    return None


def _numeric_fault(
    fidelity: OutputFidelity, wanted: Sequence[np.ndarray], given: Sequence[np.ndarray], tolerance: Tolerance
) -> str | None:
    if wanted[0].dtype.kind not in "fc":
        total = sum(one.size for one in wanted)
        flips = sum(int(np.count_nonzero(one != other)) for one, other in zip(wanted, given, strict=True))
        return f"differs in {flips} of {total} values" if flips > tolerance.flips * total else None
    allowed = max(ABSOLUTE_FLOOR, tolerance.relative * fidelity.max_abs_reference)
    if fidelity.max_abs_error > allowed:
        return f"is off by {fidelity.max_abs_error:.3g}, more than {allowed:.3g}"
    if fidelity.max_abs_error <= ABSOLUTE_FLOOR:  # two engines' sigmoids of large negative numbers differ by 1e-7
        return None
    if fidelity.snr_db is not None and fidelity.snr_db < tolerance.snr_db:
        return f"has a signal-to-noise ratio of {fidelity.snr_db:.1f} dB, less than {tolerance.snr_db:.0f} dB"
    return None


def fidelity_of(name: str, wanted: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> OutputFidelity:
    """Figures of one output over all samples. Non-finite values (equal on both sides) are left out.

    Args:
        wanted: the original's arrays, any shapes, one per sample.
        given: the engine's arrays, of the same shapes.
    """
    ref = np.concatenate([_reals(a) for a in wanted]) if wanted else np.zeros(0)
    got = np.concatenate([_reals(a) for a in given]) if given else np.zeros(0)
    finite = np.isfinite(ref) & np.isfinite(got)
    ref, got = ref[finite], got[finite]
    error = np.abs(ref - got)
    signal, noise = float(ref @ ref), float(error @ error)
    norms = float(np.linalg.norm(ref) * np.linalg.norm(got))
    return OutputFidelity(
        name=name,
        max_abs_error=float(error.max(initial=0.0)),
        mean_abs_error=float(error.mean()) if error.size else 0.0,
        max_abs_reference=float(np.abs(ref).max(initial=0.0)),
        snr_db=_snr_db(signal, noise),
        cosine=float(ref @ got) / norms if norms else None,
        top1_agreement=_top1(wanted, given),
    )


def _reals(array: np.ndarray) -> np.ndarray:
    """All values in a row; a complex one is two."""
    flat = np.ascontiguousarray(array).ravel()
    wide = flat.astype(np.complex128).view(np.float64) if flat.dtype.kind == "c" else flat.astype(np.float64)
    return np.asarray(wide)


def _snr_db(signal: float, noise: float) -> float | None:
    """In dB; None for no error at all, −999 when there is no signal to compare with (JSON has no infinity)."""
    if noise == 0:
        return None
    return float(10 * np.log10(signal / noise)) if signal > 0 else -999.0


def _top1(wanted: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> float | None:
    """Share of rows whose best class agrees; None unless the output is float scores ``[N, K]`` with K > 1."""
    if not wanted or wanted[0].ndim != 2 or wanted[0].shape[1] < 2 or wanted[0].dtype.kind != "f":
        return None
    same = np.concatenate([np.argmax(a, 1) == np.argmax(b, 1) for a, b in zip(wanted, given, strict=True)])
    return float(same.mean()) if same.size else None


def constant_outputs(signature: Signature, reference: Sequence[Sequence[Outputs]]) -> tuple[str, ...]:
    """Float outputs that hardly vary over the samples: an agreement on them proves nothing."""
    names = []
    for spec in signature.outputs:
        arrays = [step[spec.name] for case in reference for step in case]
        same_shape = [a for a in arrays if a.shape == arrays[0].shape and a.dtype.kind == "f" and a.size]
        if len(same_shape) < 2:
            continue
        stack = np.stack(same_shape).astype(np.float64)
        scale = float(np.nanmax(np.abs(stack), initial=0.0))
        if float(np.nanmax(np.ptp(stack, axis=0), initial=0.0)) <= 1e-5 * scale or scale == 0.0:
            names.append(spec.name)
    return tuple(names)


def _tiny_outputs(signature: Signature, reference: Sequence[Sequence[Outputs]]) -> list[str]:
    """Float outputs with nothing but zeros and values below ``ABSOLUTE_FLOOR``, though not zeros alone."""
    names = []
    for spec in signature.outputs:
        arrays = [step[spec.name] for case in reference for step in case]
        sizes = [float(np.abs(a).max(initial=0.0)) for a in arrays if a.dtype.kind == "f"]
        if 0.0 < max(sizes, default=0.0) < ABSOLUTE_FLOOR:
            names.append(spec.name)
    return names


def reference_warnings(signature: Signature, reference: Sequence[Sequence[Outputs]]) -> tuple[Warn, ...]:
    """What the original's own answers say about the worth of a comparison with them."""
    found = []
    constant = constant_outputs(signature, reference)
    if constant:
        found.append(
            Warn(
                "constant_output",
                f"The original answers (nearly) the same for every sample in {', '.join(constant)}: are its weights "
                "trained? Agreement on a constant output proves little.",
            )
        )
    tiny = _tiny_outputs(signature, reference)
    if tiny:
        found.append(Warn(
            "tiny_output", f"The original's values in {', '.join(tiny)} are all below {ABSOLUTE_FLOOR:g}. Errors of that size "
            "aren't held against a file, since engines differ by as much where a sigmoid ends; here only the signal-to-noise "
            "ratio says how good a file is. Let the model answer in another unit.",
        ))  # fmt: skip
    bad = [
        spec.name
        for spec in signature.outputs
        if any(
            step[spec.name].dtype.kind == "f" and not np.isfinite(step[spec.name]).all()
            for c in reference
            for step in c
        )
    ]
    if bad:
        found.append(Warn("non_finite_output", f"The original itself answers NaN or infinity in {', '.join(bad)}."))
    return tuple(found)


def cpu_flags() -> tuple[str, ...]:
    """The CPU features that decide which kernels ran here, e.g. ``("avx2", "avx512_vnni")``; empty when unknown."""
    wanted = (
        "avx",
        "avx2",
        "avx_vnni",
        "avx512f",
        "avx512_vnni",
        "amx_int8",
        "asimd",
        "asimddp",
        "i8mm",
        "fphp",
        "sve",
    )
    try:
        with Path("/proc/cpuinfo").open() as file:
            lines = [line for line in file if line.startswith(("flags", "Features"))]
    except OSError:
        return ()
    have = set(lines[0].split(":", 1)[1].split()) if lines else set()
    return tuple(flag for flag in wanted if flag in have)


Reference = Callable[[Sequence[Feed]], list[Outputs]]
