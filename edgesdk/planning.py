"""What a run will do: the variants to lower, and everything that can be refused before any work is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgesdk import targets
from edgesdk.artifacts import variant_id
from edgesdk.errors import UsageError
from edgesdk.quantize import schemes
from edgesdk.runtimes import EdgeRuntime, find, require, runtimes
from edgesdk.targets import Target

if TYPE_CHECKING:
    from edgesdk.importing import Located
    from edgesdk.recipe import PackageConfig

AUTO_ORDER = ("executorch", "onnx", "torchscript")
"""Runtimes that ``--runtime auto`` tries: the first that takes the model is shipped."""


@dataclass(frozen=True)
class VariantPlan:
    """One file to make.

    Attributes:
        alternatives: tried in turn when this runtime can't take the model (``--runtime auto``).
        candidates: all made, and the best of them kept (``--quantize auto``); this plan itself is then none.
    """

    runtime: str
    backend: str | None
    quantization: str
    alternatives: tuple[VariantPlan, ...] = ()
    candidates: tuple[VariantPlan, ...] = ()

    @property
    def id(self) -> str:
        return variant_id(self.runtime, self.backend, self.quantization)

    def suffix(self, config: PackageConfig) -> str:
        return ".ort" if self.runtime == "onnx" and config.ort_format else find(self.runtime).suffix


@dataclass(frozen=True)
class Job:
    """One run, worked out before anything heavy starts."""

    config: PackageConfig
    located: Located
    plans: tuple[VariantPlan, ...]
    name: str
    labels: tuple[str, ...] | None
    key: str | None
    """Content address of the whole result; None when the import runs user code, which can read anything."""


def plan_variants(config: PackageConfig, target: Target) -> tuple[VariantPlan, ...]:
    """The variants to make, in the order asked, without repetitions.

    Raises:
        UsageError: a back end belongs to no chosen runtime, or a scheme isn't one of the runtime's.
        MissingToolError: a runtime's libraries aren't installed.
    """
    if not config.runtimes and not config.backends:
        pairs = list(target.variants)
    else:
        pairs = [pair for name in _runtime_names(config, target) for pair in _backends(name, config)]
        _check_backends(config, pairs)
    plans: dict[str, VariantPlan] = {}
    for quantization in config.quantize:
        for runtime, backend in pairs:
            plan = _plan(runtime, backend, quantization, config)
            plans.setdefault(plan.id if runtime != "auto" else f"auto-{quantization}", plan)
    for plan in plans.values():
        for one in (plan, *plan.alternatives):
            _check(one)
    return tuple(plans.values())


def _runtime_names(config: PackageConfig, target: Target) -> list[str]:
    return list(dict.fromkeys(config.runtimes or (runtime for runtime, _ in target.variants)))


def _backends(name: str, config: PackageConfig) -> Iterator[tuple[str, str | None]]:
    if name == "auto":
        yield name, None
        return
    known = find(name).backends
    chosen: list[str | None] = [b for b in config.backends if b in known] or list(known[:1]) or [None]
    for backend in chosen:
        yield name, backend


def _check_backends(config: PackageConfig, pairs: list[tuple[str, str | None]]) -> None:
    unused = [b for b in config.backends if b not in {backend for _, backend in pairs}]
    if unused:
        owners = ", ".join(r.name for r in runtimes().values() if unused[0] in r.backends)
        raise UsageError(
            "backend_without_runtime", f"--backend {unused[0]} fits none of the chosen runtimes.",
            why=f"It is a back end of {owners}.", fix=f"Add --runtime {owners}, or leave --backend out.",
        )  # fmt: skip


def _plan(runtime: str, backend: str | None, quantization: str, config: PackageConfig) -> VariantPlan:
    if runtime != "auto":
        return VariantPlan(
            runtime, backend, quantization, candidates=_candidates(runtime, backend, quantization, config)
        )
    present = [find(name) for name in AUTO_ORDER if find(name).missing() is None]
    chain = [_plan(r.name, next(iter(r.backends), None), quantization, config) for r in present]
    if not chain:
        require(find(AUTO_ORDER[0]))
    return replace(chain[0], alternatives=tuple(chain[1:]))


def _candidates(runtime: str, backend: str | None, quantization: str, config: PackageConfig) -> tuple[VariantPlan, ...]:
    """What ``--quantize auto`` tries: float, then every scheme of the runtime that needs nothing more from the user."""
    if quantization != "auto":
        return ()
    known = find(runtime).quantizations
    sensible = [
        name
        for name, scheme in schemes().items()
        if name in known
        and not scheme.labelled  # training changes the weights: only when asked for by name
        and (not scheme.calibrated or config.calibration)
        and (scheme.weight_bits >= 8 or config.eval)  # int4 loses too much to go by made-up inputs
    ]
    return tuple(VariantPlan(runtime, backend, name) for name in ("none", *sensible))


def _check(plan: VariantPlan) -> None:
    runtime: EdgeRuntime = find(plan.runtime)
    if plan.quantization not in (*runtime.quantizations, "auto"):
        raise UsageError(
            "scheme_not_of_runtime", f"{runtime.name} has no scheme '{plan.quantization}'.",
            why=f"It knows {', '.join(runtime.quantizations)}.", fix="Choose another --quantize or --runtime.",
        )  # fmt: skip
    require(runtime)


def as_json(
    config: PackageConfig, plans: tuple[VariantPlan, ...], name: str, kind: str, cached: bool
) -> dict[str, Any]:
    """The ``edgesdk.plan/1`` object of ``--dry-run``."""
    return {
        "schema": "edgesdk.plan/1",
        "model": config.model,
        "format": kind,
        "name": name,
        "version": config.version,
        "target": config.target,
        "abis": list(targets.find(config.target).abis),
        "output": str(config.folder(name)),
        "signed": config.sign is not None,
        "cached": cached,
        "variants": [
            {"id": p.id, "runtime": p.runtime, "backend": p.backend, "quantization": p.quantization,
             "file": p.id + p.suffix(config), "or_else": [a.id for a in p.alternatives],
             **({"candidates": [c.id for c in p.candidates]} if p.candidates else {})}
            for p in plans
        ],
        "steps": ["import", *(["read samples"] if config.calibration or config.eval else []), "lower", "verify", "bundle"],
    }  # fmt: skip


def image_size(config: PackageConfig) -> tuple[int, int] | None:
    """(height, width) of ``--image``."""
    side = config.preprocess.image if config.preprocess else None
    return (side, side) if isinstance(side, int) else side
