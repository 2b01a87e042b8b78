"""Which variant of a bundle runs on this machine, and why the others don't."""

from __future__ import annotations

import re

from edgesdk.bundle.manifest import Manifest, Variant
from edgesdk.errors import MissingToolError, UnsupportedError, UsageError, nearest
from edgesdk.runtimes import EdgeRuntime, require, runtimes


def choose(manifest: Manifest, wanted: str | None) -> tuple[Variant, EdgeRuntime]:
    """The variant of that id, or the first that runs here.

    Raises:
        UsageError: there is no such variant.
        MissingToolError: what it (or every variant) lacks is a library.
        UnsupportedError: it can't run here for another reason; the message says which for each.
    """
    if wanted is not None:
        return _named(manifest, wanted)
    reasons = {v.id: why_not(v) for v in manifest.variants}
    for variant in manifest.variants:
        if reasons[variant.id] is None:
            return variant, runtimes()[variant.runtime]
    absent = all(v.runtime in runtimes() and runtimes()[v.runtime].missing() for v in manifest.variants)
    extras = sorted({v.runtime for v in manifest.variants})
    kind = MissingToolError if absent else UnsupportedError
    raise kind(
        "runtime_missing" if absent else "no_variant_runs", f"No variant of {manifest.name} runs on this machine.",
        why=" ".join(f"{name}: {reason}" for name, reason in reasons.items()),
        fix=f"Install an engine: pip install 'edgesdk[{','.join(extras)}]'",
        details={"reasons": reasons},
    )  # fmt: skip


def _named(manifest: Manifest, wanted: str) -> tuple[Variant, EdgeRuntime]:
    found = {v.id: v for v in manifest.variants}
    if wanted not in found:
        raise UsageError(
            "unknown_variant", f"{manifest.name} has no variant '{wanted}'.", why=nearest(wanted, found),
            fix="Name one of them, or leave it out to take the first that runs.",
        )  # fmt: skip
    variant = found[wanted]
    if variant.runtime in runtimes():
        require(runtimes()[variant.runtime])
    reason = why_not(variant)
    if reason:
        raise UnsupportedError(
            "variant_unsupported", f"The variant '{wanted}' of {manifest.name} does not run on this machine.", why=reason,
            fix="Name another variant, or run it on the device it was made for.",
        )  # fmt: skip
    return variant, runtimes()[variant.runtime]


def why_not(variant: Variant) -> str | None:
    """None when the variant runs here, else a sentence that says why it doesn't."""
    runtime = runtimes().get(variant.runtime)
    if runtime is None:
        return f"This edgesdk has no runtime '{variant.runtime}'."
    missing = runtime.missing()
    if missing:
        return missing
    if variant.backend is not None and variant.backend not in runtime.runs_here:
        return f"Files for the back end '{variant.backend}' don't run on this machine."
    wanted, here = variant.runtime_version, runtime.version()
    if wanted.min and _release(here) < _release(wanted.min):
        return f"It needs {runtime.name} {wanted.min} or newer; {here} is installed."
    if wanted.max and _release(here) > _release(wanted.max):
        return f"It needs {runtime.name} {wanted.max} or older; {here} is installed."
    return None


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: ``2.15.0+cpu`` is (2, 15, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
