"""``edgesdk quantize MODEL --calibration DATA -o FILE``: one quantized file, judged on data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from edgesdk.cli import _options as opt
from edgesdk.cli._app import verb
from edgesdk.cli.lower import Options as LowerOptions
from edgesdk.cli.lower import lower

if TYPE_CHECKING:
    from edgesdk.cli._output import Output


@dataclass(frozen=True, kw_only=True)
class Options(LowerOptions):
    """Quantize MODEL into one file for one runtime, and judge that file on data against the original.

    'edgesdk package --quantize SCHEME' does the same within a package.
    """

    quantize: Annotated[
        str,
        typer.Option(
            "--quantize", metavar="SCHEME", autocompletion=opt.SCHEMES, rich_help_panel="What is made",
            help="static-int8, dynamic-int8, qat-int8, weight-int8, weight-int4, fp16 or auto. Default: auto.",
        ),
    ] = "auto"  # fmt: skip


def run(options: Options, out: Output) -> int:
    return lower(options, out, "edgesdk.quantize/1")


COMMAND = verb(Options, run, "quantize")
