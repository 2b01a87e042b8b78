"""Is a bundle whole, whose is it, and does it still answer right? The engines run in a process of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.api import Verdict
from edgesdk.bundle import EdgeBundle
from edgesdk.errors import EdgeError, GateError, IntegrityError
from edgesdk.workers import Pool, WorkerCrashed

if TYPE_CHECKING:
    from edgesdk.importing import ImportOptions
    from edgesdk.progress import Progress

Json = dict[str, Any]


def reach(
    path: Path, key: Path | None, against: str | None, source: ImportOptions | None, progress: Progress
) -> Verdict:
    """See :func:`edgesdk.api.verify`."""
    progress.stage("checking hashes and signature")
    try:
        with EdgeBundle.open(path, key=key) as bundle:
            signature, ids = bundle.signature, [v.id for v in bundle.manifest.variants]
    except IntegrityError as error:
        state = (
            error.code.removeprefix("signature_") if error.code.startswith("signature_") else _unknown_signature(path)
        )
        return Verdict(False, state, (), 6, f"{error.message} {error.why}")
    if against is not None:
        progress.stage(f"comparing with {against}")
        return _judge(signature, _in_worker(path, ids, _against_args(path, against, source), progress), 5)
    progress.stage("running the golden vectors")
    return _judge(signature, _in_worker(path, ids, {"bundle": str(path)}, progress), 6)


def _unknown_signature(path: Path) -> str:
    """The signature's state of a bundle whose payload is damaged: headers and signature may still be whole."""
    try:
        with EdgeBundle.open(path, check="layout") as bundle:
            return bundle.signature
    except EdgeError:
        return "invalid"


def _against_args(path: Path, against: str, source: ImportOptions | None) -> Json:
    asked: Json = {"inputs": [], "arch": None, "trust_pickle": False, "image": None}
    if source is not None:
        asked = {
            "inputs": [spec.to_json() for spec in source.inputs], "arch": source.arch,
            "trust_pickle": source.trust_pickle, "image": list(source.image) if source.image else None,
        }  # fmt: skip
    return {"bundle": str(path), "against": against, **asked}


def _in_worker(path: Path, ids: list[str], args: Json, progress: Progress) -> list[Json]:
    """Verdicts by variant. A crash takes one variant with it, not the others: each then gets a process of its own."""
    job = "edgesdk._jobs:against" if "against" in args else "edgesdk._jobs:golden"
    with tempfile.TemporaryDirectory(prefix="edgesdk-verify-") as folder, Pool(1, Path(folder)) as pool:
        try:
            found: list[Json] = pool.submit(job, {**args, "variants": ids}, progress.update).result()[1]["variants"]
            return found
        except WorkerCrashed:
            return [_alone(pool, job, {**args, "variants": [one]}, progress) for one in ids]
        except GateError as error:
            return [
                {"id": one, "ran": False, "max_abs_error": None, "snr_db": None, "why": str(error), "ok": False}
                for one in ids
            ]


def _alone(pool: Pool, job: str, args: Json, progress: Progress) -> Json:
    try:
        found: Json = pool.submit(job, args, progress.update).result()[1]["variants"][0]
        return found
    except WorkerCrashed as crash:
        why = f"The engine crashed: {crash}."
        return {"id": args["variants"][0], "ran": False, "max_abs_error": None, "snr_db": None, "why": why, "ok": False}


def _judge(signature: str, variants: list[Json], exit: int) -> Verdict:
    shown: tuple[Mapping[str, Any], ...] = tuple({k: v for k, v in one.items() if k != "ok"} for one in variants)
    bad = [one for one in variants if one["ok"] is False]
    if bad:
        return Verdict(False, signature, shown, exit, "; ".join(f"{one['id']}: {one['why']}" for one in bad))
    return Verdict(True, signature, shown)
