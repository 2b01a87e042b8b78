"""Options that several verbs share, and the choices that the shell completes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from edgesdk.importing import ImportOptions


def choices(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Completion of an option's values. The values are checked later, so that a typo gets the nearest name."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _targets() -> Iterable[str]:
    from edgesdk.targets import targets

    return targets()


def _runtimes() -> Iterable[str]:
    from edgesdk.recipe import runtime_names

    return runtime_names()


def _recipe(constant: str) -> Callable[[], Iterable[str]]:
    def names() -> Iterable[str]:
        from edgesdk import recipe

        found: Iterable[str] = getattr(recipe, constant)
        return found

    return names


TARGETS, RUNTIMES = choices(_targets), choices(_runtimes)
BACKENDS, SCHEMES = choices(_recipe("BACKENDS")), choices(_recipe("SCHEMES"))
RESIZES, INTERPOLATIONS = choices(_recipe("RESIZES")), choices(_recipe("INTERPOLATIONS"))

MODEL = "A file (.pt2, .pt, .pth, .ckpt, .safetensors, .onnx), a Hugging Face folder, file.py:factory, or a name such as torchvision:mobilenet_v2@DEFAULT."

Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=DTYPE[SIZES]",
        help="An input, e.g. 'image=float32[1..8,3,224,224]'; a..b is a dynamic dimension. Repeat for several. Default: from the model.",
        rich_help_panel="Model",
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="SPEC",
        help="The network that a file of weights belongs to: torchvision:NAME, timm:NAME, transformers:FOLDER, package.module:factory or file.py:factory.",
        rich_help_panel="Model",
    ),
]
TrustPickle = Annotated[
    bool,
    typer.Option(
        "--trust-pickle",
        help="Let the file run code while it is read. Only for files whose origin you trust.",
        rich_help_panel="Model",
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        metavar="NAME",
        help="android, ios or linux. Repeatable.",
        autocompletion=TARGETS,
        rich_help_panel="Output",
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Replace what is there, even if edgesdk did not write it.", rich_help_panel="Output"),
]
OutputFile = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.", rich_help_panel="Output")
]


def import_options(inputs: list[str] | None, arch: str | None, trust_pickle: bool) -> ImportOptions:
    """What the user said about the model, read.

    Raises:
        UsageError: an ``--input`` is malformed.
    """
    from edgesdk.artifacts import parse_input
    from edgesdk.importing._base import ImportOptions

    return ImportOptions(tuple(parse_input(text) for text in inputs or ()), arch, trust_pickle)
