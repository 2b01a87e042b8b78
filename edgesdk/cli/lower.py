"""``edgesdk lower MODEL --runtime NAME -o FILE``: one model, one runtime, one file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from edgesdk.cli import _options as opt
from edgesdk.cli._app import Common, verb

if TYPE_CHECKING:
    from edgesdk.cli._output import Output

_WHAT = "What is made"


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Lower MODEL to one file for one runtime, and check it against the original; no bundle, no project.

    'edgesdk bundle' wraps such files later; 'edgesdk package' does both at once.
    """

    model: Annotated[str, typer.Argument(metavar="MODEL", help=opt.MODEL)]
    output: opt.OutputFile
    force: opt.Force = False
    runtime: Annotated[
        str,
        typer.Option(
            "--runtime", metavar="NAME", autocompletion=opt.RUNTIMES, rich_help_panel=_WHAT,
            help="executorch, torchscript, onnx or auto. Default: executorch.",
        ),
    ] = "executorch"  # fmt: skip
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend", metavar="NAME", autocompletion=opt.BACKENDS, rich_help_panel=_WHAT,
            help="xnnpack, coreml, vulkan, mps or portable. Default: the runtime's first.",
        ),
    ] = None  # fmt: skip
    quantize: Annotated[
        str,
        typer.Option(
            "--quantize", metavar="SCHEME", autocompletion=opt.SCHEMES, rich_help_panel=_WHAT,
            help="none, fp16, dynamic-int8, static-int8, qat-int8, weight-int8, weight-int4 or auto. Default: none.",
        ),
    ] = "none"  # fmt: skip
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
    inputs: opt.Inputs = None
    arch: opt.Arch = None
    trust_pickle: opt.TrustPickle = False


def run(options: Options, out: Output) -> int:
    return lower(options, out, "edgesdk.lower/1")


def lower(options: Options, out: Output, schema: str) -> int:
    """Make the one file that ``options`` ask for, and say what became of it."""
    from edgesdk import api
    from edgesdk.cli import _package_text as text
    from edgesdk.recipe import resolve

    ours = {"json", "quiet", "verbose", "output", "runtime", "backend"}
    given = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in ours}
    # The files that the three targets take are the same; linux is the one that runs here.
    given |= {"runtimes": options.runtime, "backends": options.backend, "targets": "linux"}
    (config,) = resolve({k: v for k, v in given.items() if v is not False})
    with out.working() as progress:
        made, warnings = api.lower(config, options.output, progress)
    document = {
        "schema": schema, "output": str(options.output), "variant": made.to_json(),
        "warnings": [warning.to_json() for warning in warnings],
    }  # fmt: skip
    out.answer(document, lambda console: text.show_file(console, document), str(options.output))
    return 0


COMMAND = verb(Options, run, "lower")
