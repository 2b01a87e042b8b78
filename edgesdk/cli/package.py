"""``edgesdk package MODEL --target android``: the whole pipeline."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgesdk.cli import _options as opt
from edgesdk.cli._app import Common, verb

if TYPE_CHECKING:
    from edgesdk.cli._output import Output

_WHAT, _HOW = "What is made", "How"


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Take MODEL to an app: lower it, check every file against the original, and write a folder that an app team drops in.

    The default for Android is one float32 file for ExecuTorch with XNNPACK, for arm64-v8a and x86_64, in an Android
    library. Options override the recipe, the recipe overrides the defaults.
    """

    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=opt.MODEL, show_default=False)] = None
    targets: opt.Target = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The output folder. Default: dist/NAME-TARGET.",
            rich_help_panel="Output",
        ),
    ] = None
    force: opt.Force = False
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the package. Default: the model's.", rich_help_panel="Output")
    ] = None
    version: Annotated[
        str | None, typer.Option("--version", help="Version of the package. Default: 1.0.0.", rich_help_panel="Output")
    ] = None
    license: Annotated[
        str | None, typer.Option("--license", help="Licence of the model, for the manifest.", rich_help_panel="Output")
    ] = None
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign", metavar="KEY", help="Sign the bundle ('edgesdk keys new' makes a key).", rich_help_panel="Output"
        ),
    ] = None
    inputs: opt.Inputs = None
    arch: opt.Arch = None
    trust_pickle: opt.TrustPickle = False
    runtimes: Annotated[
        list[str] | None,
        typer.Option(
            "--runtime", metavar="NAME", autocompletion=opt.RUNTIMES, rich_help_panel=_WHAT,
            help="executorch, torchscript, onnx or auto. Repeatable. Default: what the target prefers.",
        ),
    ] = None  # fmt: skip
    backends: Annotated[
        list[str] | None,
        typer.Option(
            "--backend", metavar="NAME", autocompletion=opt.BACKENDS, rich_help_panel=_WHAT,
            help="xnnpack, coreml, vulkan, mps or portable. Repeatable. Default: xnnpack.",
        ),
    ] = None  # fmt: skip
    quantize: Annotated[
        list[str] | None,
        typer.Option(
            "--quantize", metavar="SCHEME", autocompletion=opt.SCHEMES, rich_help_panel=_WHAT,
            help="none, fp16, dynamic-int8, static-int8, qat-int8, weight-int8, weight-int4 or auto. Repeatable: exactly "
            "these are made. Default: none.",
        ),
    ] = None  # fmt: skip
    prune: Annotated[
        float | None,
        typer.Option(
            "--prune",
            metavar="RATIO",
            help="Share of the channels to remove, 0 to 1 (not in this version).",
            rich_help_panel=_WHAT,
        ),
    ] = None
    opset: Annotated[int | None, typer.Option("--opset", help="ONNX opset.", rich_help_panel=_WHAT)] = None
    ort_format: Annotated[
        bool, typer.Option("--ort-format", help="Write ONNX Runtime's .ort instead of .onnx.", rich_help_panel=_WHAT)
    ] = False
    bytecode: Annotated[
        int | None, typer.Option("--bytecode", help="TorchScript Lite bytecode version, 4 to 8.", rich_help_panel=_WHAT)
    ] = None
    image: opt.Image = None
    resize: opt.Resize = None
    mean: opt.Mean = None
    std: opt.Std = None
    interpolation: opt.Interpolation = None
    labels: opt.Labels = None
    calibration: opt.Calibration = None
    eval: opt.Eval = None
    metric: opt.Metric = None
    max_drop: opt.MaxDrop = None
    require_faster: opt.RequireFaster = False
    allow_slower: opt.AllowSlower = False
    recipe: Annotated[
        Path | None,
        typer.Option(
            "--recipe",
            metavar="FILE",
            help="Read settings from a recipe ('edgesdk init MODEL' writes one).",
            rich_help_panel=_HOW,
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.", rich_help_panel=_HOW)
    ] = False
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither read nor write the cache.", rich_help_panel=_HOW)
    ] = False
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", help="Worker processes. Default: as many as fit.", rich_help_panel=_HOW),
    ] = None

    def given(self) -> dict[str, Any]:
        """What was said, by field of ``PackageConfig``; a flag counts when it is set."""
        ours = {"json", "quiet", "verbose", "recipe", "dry_run"}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ours}
        return {name: value for name, value in values.items() if value is not None and value is not False}


def run(options: Options, out: Output) -> int:
    from edgesdk.cli import _package_text as text
    from edgesdk.recipe import resolve

    configs = resolve(options.given(), options.recipe)
    from edgesdk import pipeline

    if options.dry_run:
        with out.working():
            plans = [pipeline.plan(config) for config in configs]
        out.answer(text.one_or("plans", plans), lambda console: text.show_plans(console, plans))
        return 0
    with out.working() as progress:
        packages = pipeline.run_all(configs, progress)
    documents = [package.document for package in packages]
    brief = "\n".join(str(document["bundle"]) for document in documents)
    out.answer(
        text.one_or("packages", documents),
        lambda console: text.show_packages(console, documents),
        brief,
    )
    return 0


COMMAND = verb(Options, run, "package")
