"""Single steps as functions: ``lower`` (one model, one runtime, one file) and ``bundle`` (files that already exist)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from edgesdk import _crashes
from edgesdk import cache as caching
from edgesdk._disk import disk_error
from edgesdk.artifacts import Lowered, Package, VariantResult, Verification, Warn, variant_id
from edgesdk.building import Builder, Imported, Variant, wants_samples
from edgesdk.errors import EdgeError, GateError, InputError, UnsupportedError, UsageError
from edgesdk.making import bundled, import_args
from edgesdk.output import check_not_read, emit
from edgesdk.pipeline import files_read, finished, prepare
from edgesdk.planning import Job, VariantPlan
from edgesdk.progress import Progress
from edgesdk.recipe import PackageConfig
from edgesdk.variants import Maker
from edgesdk.workers import Pool, WorkerCrashed

_RUNTIME_OF = {"executorch": "executorch", "torchscript_lite": "torchscript", "onnx": "onnx", "ort": "onnx"}
"""Runtime by the format that the bytes show."""


def lower(config: PackageConfig, output: Path, progress: Progress) -> tuple[VariantResult, tuple[Warn, ...]]:
    """Lower a model for the one runtime of ``config`` to the file ``output``, and check it against the original.

    Raises:
        UsageError: ``output`` exists (and ``config.force`` is not set), or several runtimes are asked for.
        EdgeError: see ``pipeline.run``; ``output`` isn't touched then.
    """
    _check_free(output, config.force)
    job = prepare(config)
    check_not_read(output, files_read(config, job.located))
    if len(job.plans) != 1:
        raise UsageError(
            "several_variants", "Only one file is made here.", why=f"Asked for are {', '.join(p.id for p in job.plans)}.",
            fix="Name one --runtime, one --backend and one --quantize, or use edgesdk package.",
        )  # fmt: skip
    _check_suffix(output, job)
    cache = caching.Cache(enabled=not config.no_cache)
    with cache.work_folder() as work, Pool(2, work) as pool:
        builder = Builder(config, import_args(job), work, cache, progress, pool)
        progress.stage("importing")
        imported = builder.import_model(job.plans)
        if wants_samples(config):
            progress.stage("reading samples")
            builder.read_samples()
        progress.stage("lowering and verifying")
        (variant,) = Maker(builder, imported).variants(job.plans)
        _deliver(variant, output)
    progress.done()
    samples = builder.samples.warnings if builder.samples else ()
    return _result(variant, output), tuple(dict.fromkeys((*imported.warnings, *samples, *variant.warnings)))


def _check_free(output: Path, force: bool) -> None:
    if output.is_dir() or (output.exists() and not force):
        what = "is a folder" if output.is_dir() else "exists"
        raise UsageError(
            "output_exists", f"{output} {what}.", why="A file is never written over unasked.",
            fix="Choose another name with -o, or replace the file with --force.",
        )  # fmt: skip
    if not output.absolute().parent.is_dir():
        raise UsageError(
            "output_no_folder", f"The folder of {output} doesn't exist.", why="One file is written, and no folders are made for it.",
            fix=f"Make it first: mkdir -p {output.parent}",
        )  # fmt: skip


_ASKED_BY = {
    ".pte": "--runtime executorch", ".ptl": "--runtime torchscript", ".onnx": "--runtime onnx", ".ort": "--runtime onnx --ort-format",
}  # fmt: skip


def _check_suffix(output: Path, job: Job) -> None:
    """Refuse a name by which apps, and ONNX Runtime itself, would take the file for another kind than it will be."""
    (plan,) = job.plans
    right, asked = plan.suffix(job.config), _ASKED_BY.get(output.suffix.lower())
    if asked is None or plan.alternatives or output.suffix.lower() == right:
        return
    raise UsageError(
        "suffix_of_another_kind", f"{output} has the suffix of another kind of file: what is asked for is a {right}.",
        why="Apps and engines go by the suffix.", fix=f"Write -o {output.with_suffix(right)}, or ask for the other kind: {asked}",
    )  # fmt: skip


def _deliver(variant: Variant, output: Path) -> None:
    """Copy beside the target, then rename: there is never half a file. External data goes beside it, by its own name."""
    files = [
        *((extra, output.parent / extra.name) for extra in variant.lowered.extra_files),
        (variant.lowered.path, output),
    ]
    for source, target in files:
        temporary = target.with_name(f".{target.name}.edgesdk-part")
        try:
            shutil.copyfile(source, temporary)
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise disk_error(error) or error from error


def _result(variant: Variant, output: Path) -> VariantResult:
    return VariantResult(
        variant.lowered,
        variant.verification,
        output.name,
        output.stat().st_size,
        variant.sha256,
        variant.lowered.rung,
        guarded=variant.guarded,
    )


def bundle(files: Sequence[Path], config: PackageConfig, progress: Progress) -> Package:
    """Package lowered files that already exist: each is run by its engine and compared with ``config.model`` first.

    Raises:
        InputError: a file is missing, damaged or of no kind that a bundle holds.
        GateError: a file answers differently from the model.
    """
    begin = time.perf_counter()
    job = prepare(config)
    lowered = [_adopt(path) for path in files]
    clash = next((low.id for i, low in enumerate(lowered) if low.id in [o.id for o in lowered[:i]]), None)
    if clash:
        raise UsageError(
            "same_variant_twice", f"Two files are both {clash}.", why="A bundle holds one file for each runtime and back end.",
            fix="Bundle them separately.",
        )  # fmt: skip
    folder = config.folder(job.name).absolute()
    cache = caching.Cache(enabled=False)
    with cache.work_folder() as work, Pool(2, work) as pool:
        builder = Builder(config, import_args(job), work, cache, progress, pool)
        progress.stage("importing")
        imported = builder.import_model(())
        progress.stage("verifying")
        variants = [_checked(builder, imported, low, work) for low in lowered]
        document, made = bundled(job, builder, imported, variants)
        progress.stage("writing the package")
        emit(document, made, folder, force=config.force)
    progress.done()
    return finished(document, folder, cache, time.perf_counter() - begin)


def _adopt(path: Path) -> Lowered:
    """What a user's file is, from its bytes.

    Raises:
        InputError: it is nothing that a bundle can hold.
    """
    from edgesdk.importing import ImportOptions, locate

    if path.suffix == ".mlpackage" and path.is_dir():
        raise UnsupportedError(
            "mlpackage_unsupported", f"{path} can't be bundled on this machine.",
            why="A Core ML package is a folder that only macOS can run, so it can't be verified here.",
            fix="Package the source model with --runtime executorch --backend coreml instead.",
        )  # fmt: skip
    kind = locate(str(path), ImportOptions()).kind
    if kind not in _RUNTIME_OF:
        raise InputError(
            "not_lowered", f"{path} is a {kind.replace('_', ' ')}, not a lowered file.",
            why="A bundle holds .pte, .ptl, .onnx and .ort files.", fix=f"Lower it first: edgesdk package {path}",
        )  # fmt: skip
    runtime = _RUNTIME_OF[kind]
    backend = _backend(path) if runtime == "executorch" else None
    return Lowered(runtime, backend, "none", path, "full")


def _backend(path: Path) -> str:
    """The back end that a ``.pte`` names in its bytes."""
    data = path.read_bytes()
    names = {b"XnnpackBackend": "xnnpack", b"CoreMLBackend": "coreml", b"VulkanBackend": "vulkan", b"MPSBackend": "mps"}
    return next((name for text, name in names.items() if text in data), "portable")


def _checked(builder: Builder, imported: Imported, lowered: Lowered, work: Path) -> Variant:
    """The file under its place in the bundle, verified; looser than float32 when it only then agrees."""
    suffix = (
        lowered.path.suffix
        if lowered.path.suffix in (".ort", ".onnx")
        else {"executorch": ".pte"}.get(lowered.runtime, ".ptl")
    )
    for scheme in ("none", "fp16", "custom"):
        placed = work / (variant_id(lowered.runtime, lowered.backend, scheme) + suffix)
        shutil.copyfile(lowered.path, placed)
        extra = _external(lowered, work)
        candidate = replace(lowered, path=placed, quantization=scheme, extra_files=extra)
        verification = _verified(builder, imported, candidate)
        if verification.verified is not False:
            break
        placed.unlink()
    else:
        raise GateError(
            "not_faithful", f"{lowered.path} answers differently from {builder.config.model}: {verification.why}.",
            why="It was made from another model, with other weights, or loses too much by quantization.",
            fix="Bundle the file with the model it was made from.",
            details={"outputs": [o.to_json() for o in verification.outputs]},
        )  # fmt: skip
    note = () if scheme == "none" else (_loose(lowered.path, verification),)
    return Variant(candidate, verification, placed.name, caching.sha256_file(placed), note)


def _external(lowered: Lowered, work: Path) -> tuple[Path, ...]:
    if lowered.runtime != "onnx" or lowered.path.suffix == ".ort":
        return ()
    placed = []
    for name in sorted(_external_names(lowered.path)):
        source, target = lowered.path.parent / name, work / name
        _check_inside(lowered.path, source, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        placed.append(target)
    return tuple(placed)


def _external_names(path: Path) -> set[str]:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    from edgesdk.modelfile import external_files

    try:
        return external_files(path)
    except DecodeError as exc:
        raise InputError(
            "damaged_file", f"{path} is damaged: it begins like an ONNX model, but can't be read ({exc}).",
            why="The download or copy was cut short, or the file was changed afterwards.", fix="Get the file again.",
        ) from exc  # fmt: skip


def _check_inside(path: Path, source: Path, name: str) -> None:
    """The name comes from the file, which may be anybody's: it must not lead out of the folders read and written.

    Raises:
        InputError: it is absolute, climbs, is a link to elsewhere, or no file is there.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    inside = bool(parts) and not name.startswith(("/", "\\")) and ".." not in parts and ":" not in parts[0]
    if not inside or not source.resolve().is_relative_to(path.parent.resolve()):
        raise InputError(
            "unsafe_external_data", f"{path} is refused: it takes weights from {name[:120]!r}, outside its own folder.",
            why="Such a name could read or overwrite files that have nothing to do with the model.",
            fix="Save the model with its weights inside, or in a file beside it, and get it from a source you trust.",
        )  # fmt: skip
    if len(name.encode()) > 255 or not source.is_file():
        raise InputError(
            "missing_file", f"{path} needs the file {name[:120]!r} beside it, which isn't there.",
            why="An ONNX model may keep its weights in a second file, and only one of the two was copied.",
            fix="Put both files into one folder, under the names that they were saved with.",
        )  # fmt: skip


def _verified(builder: Builder, imported: Imported, lowered: Lowered) -> Verification:
    plan = VariantPlan(lowered.runtime, lowered.backend, lowered.quantization)
    try:
        return builder.verify(plan, imported, lowered, 0)
    except WorkerCrashed as crash:
        raise _crashes.in_lowered_file(lowered.path.name, lowered.runtime, crash) from crash
    except EdgeError as error:
        if error.code in ("shape_mismatch", "dtype_mismatch", "input_unknown"):
            return Verification(verified=False, why=error.message)
        raise


def _loose(path: Path, verification: Verification) -> Warn:
    snr = min((o.snr_db for o in verification.outputs if o.snr_db is not None), default=0.0)
    return Warn(
        "reduced_precision",
        f"{path.name} agrees with the model only to {snr:.0f} dB, as a quantized or half-precision file does.",
    )
