"""``edgesdk bundle FILE… --against MODEL``: files that the user already has, verified and wrapped."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgesdk.cli import _options as opt
from edgesdk.cli._app import Common, verb

if TYPE_CHECKING:
    from edgesdk.cli._output import Output


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Check files that are already lowered against the model they were made from, and write a package with them.

    A file that gives other answers than MODEL is refused: nothing is shipped unverified.
    """

    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=".pte, .ptl, .onnx, .ort or .mlpackage files.")]
    against: Annotated[
        str, typer.Option("--against", metavar="MODEL", help=f"The original: {opt.MODEL}", rich_help_panel="Model")
    ]
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
        Path | None, typer.Option("--sign", metavar="KEY", help="Sign the bundle.", rich_help_panel="Output")
    ] = None
    image: opt.Image = None
    resize: opt.Resize = None
    mean: opt.Mean = None
    std: opt.Std = None
    interpolation: opt.Interpolation = None
    labels: opt.Labels = None
    inputs: opt.Inputs = None
    arch: opt.Arch = None
    trust_pickle: opt.TrustPickle = False


def run(options: Options, out: Output) -> int:
    from edgesdk import api
    from edgesdk.cli import _package_text as text
    from edgesdk.recipe import resolve

    ours = {"json", "quiet", "verbose", "files", "against", "targets"}
    given = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in ours}
    given = {name: value for name, value in given.items() if value is not False}
    configs = resolve({**given, "model": options.against, "targets": options.targets or ["linux"]})
    with out.working() as progress:
        packages = [api.bundle(options.files, config, progress) for config in configs]
    documents = [package.document for package in packages]
    brief = "\n".join(str(document["bundle"]) for document in documents)
    out.answer(text.one_or("packages", documents), lambda console: text.show_packages(console, documents), brief)
    return 0


COMMAND = verb(Options, run, "bundle")
