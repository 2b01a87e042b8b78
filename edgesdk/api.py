"""The verbs as functions: what ``edgesdk.package``, ``edgesdk.inspect`` and ``edgesdk.verify`` are.

The command line calls the same functions; here every option is a keyword.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk import _disk
from edgesdk.artifacts import Package, TensorSpec, VariantResult, Warn, parse_input
from edgesdk.errors import InputError, UsageError
from edgesdk.progress import Progress, Silent

if TYPE_CHECKING:
    import torch

    from edgesdk.importing import ImportOptions
    from edgesdk.inspection import Inspection
    from edgesdk.recipe import PackageConfig

Json = dict[str, Any]


def package(
    source: str | Path | torch.nn.Module,
    target: str = "android",
    *,
    inputs: Sequence[str | TensorSpec] = (),
    runtime: str | Sequence[str] = (),
    backend: str | Sequence[str] = (),
    quantize: str | Sequence[str] = ("none",),
    progress: Progress | None = None,
    **options: Any,
) -> Package:
    """Package a model for a target: lower it, check every file against the original, write the folder.

    >>> package = edgesdk.package("model.pt2", target="android")
    >>> package.bundle
    PosixPath('…/dist/model-android/model.edge')

    Args:
        source: MODEL as on the command line, or an ``nn.Module`` (then ``inputs`` are needed unless they can be told).
        target: ``android``, ``ios`` or ``linux``.
        inputs: ``"NAME=float32[1..8,3,224,224]"`` or :class:`TensorSpec`, one for each input.
        runtime, backend, quantize: one or several, as ``--runtime``, ``--backend`` and ``--quantize``.
        progress: told what happens; see :class:`edgesdk.progress.Progress`.
        options: any further field of :class:`edgesdk.recipe.PackageConfig` (``output=…``, ``arch=…``, ``labels=…``).

    Raises:
        EdgeError: see :mod:`edgesdk.errors`; nothing is left behind then.
    """
    from edgesdk import pipeline
    from edgesdk.recipe import resolve

    with tempfile.TemporaryDirectory(prefix="edgesdk-") as folder:
        specs = tuple(parse_input(one) if isinstance(one, str) else one for one in inputs)
        if not isinstance(source, (str, Path)):
            source, specs, options = _saved_module(source, specs, options, Path(folder))
        given = {
            "model": str(source), "targets": (target,), "inputs": specs, "runtimes": _several(runtime),
            "backends": _several(backend), "quantize": _several(quantize), **options,
        }  # fmt: skip
        (config,) = resolve(given)
        return pipeline.run(config, progress or Silent())


def _several(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _saved_module(
    module: torch.nn.Module, inputs: tuple[TensorSpec, ...], options: Mapping[str, Any], folder: Path
) -> tuple[Path, tuple[TensorSpec, ...], dict[str, Any]]:
    """Export a module of this process to a file that the workers can read."""
    import copy

    import torch

    from edgesdk import modelfile
    from edgesdk.artifacts import Source
    from edgesdk.importing import ImportOptions, Located
    from edgesdk.importing._export import export_module
    from edgesdk.quantize._already import refuse_quantized_tensors

    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            "bad_source", f"package() takes a path, a name or an nn.Module, not {type(module).__name__}.",
            why="Only these can be exported.", fix="Hand in the module itself, or the path of a saved model.",
        )  # fmt: skip
    name = options.get("name") or type(module).__name__
    asked = ImportOptions(inputs=inputs)
    located = Located("module", name, Source(name, "exported_program"))
    model = export_module(copy.deepcopy(module), located, asked)  # eval() and .cpu() must not touch the caller's
    if model.program is None:
        raise model.no_program or InputError(
            "not_exportable",
            f"{name} can't be exported.",
            why="torch.export refused it.",
            fix="Save it as TorchScript instead.",
        )
    refuse_quantized_tensors(model)
    path = folder / f"{name}.pt2"
    try:
        with _disk.writing(path) as file:
            torch.export.save(model.program, file, extra_files={modelfile.EXTRA: modelfile.dumps(model)})
    except OSError as error:
        raise _disk.disk_error(error, str(folder), _disk.elsewhere(folder)) or error from error
    return path, (), {"name": name, **options}


def inspect(source: str | Path, *, inputs: Sequence[str | TensorSpec] = (), arch: str | None = None) -> Inspection:
    """Say what a model, ``.pte``, ``.ptl``, ``.onnx``, ``.pt2`` or ``.edge`` is. Nothing in it is executed.

    Raises:
        InputError: it is missing, damaged, or none of these.
    """
    from edgesdk import inspection
    from edgesdk.importing import ImportOptions

    specs = tuple(parse_input(one) if isinstance(one, str) else one for one in inputs)
    return inspection.inspect(str(source), ImportOptions(inputs=specs, arch=arch))


@dataclass(frozen=True)
class Verdict:
    """What ``verify`` found; ``exit`` is the code that the command leaves with."""

    ok: bool
    signature: str
    variants: tuple[Mapping[str, Any], ...] = ()
    exit: int = 0
    why: str | None = None
    warnings: tuple[str, ...] = field(default=())

    def to_json(self) -> Json:
        """The ``edgesdk.verify/1`` object."""
        return {
            "schema": "edgesdk.verify/1",
            "ok": self.ok,
            "signature": self.signature,
            "variants": [dict(v) for v in self.variants],
            **({"why": self.why} if self.why else {}),
        }


def verify(
    bundle: str | Path,
    *,
    key: Path | None = None,
    against: str | None = None,
    source: ImportOptions | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Check a bundle: hashes, signature, and its golden vectors on every engine that is installed.

    Args:
        key: public key to pin; an unsigned bundle or one signed by another key is not ok then.
        against: MODEL to compare with on fresh inputs, as on the command line.
        source: how to read ``against``.

    Returns:
        A verdict: ``ok`` False with ``exit`` 6 when something doesn't match, 5 when ``against`` answers differently.

    Raises:
        InputError: the bundle can't be read at all, or ``against`` can't.
    """
    from edgesdk import verdict

    return verdict.reach(Path(bundle), key, against, source, progress or Silent())


def lower(
    config: PackageConfig, output: Path, progress: Progress | None = None
) -> tuple[VariantResult, tuple[Warn, ...]]:
    """See :func:`edgesdk.steps.lower`."""
    from edgesdk import steps

    return steps.lower(config, output, progress or Silent())


def bundle(files: Sequence[Path], config: PackageConfig, progress: Progress | None = None) -> Package:
    """See :func:`edgesdk.steps.bundle`."""
    from edgesdk import steps

    return steps.bundle(files, config, progress or Silent())
