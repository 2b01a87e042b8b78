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
Image = Annotated[
    str | None,
    typer.Option(
        "--image",
        metavar="PIXELS",
        help="Size of the images that the model takes: 224 for squares, 480x640 for height and width.",
        rich_help_panel="Images",
    ),
]
Resize = Annotated[
    str | None,
    typer.Option(
        "--resize", metavar="HOW", autocompletion=RESIZES, rich_help_panel="Images",
        help="shorter (crop the centre), stretch or letterbox. Default: shorter.",
    ),
]  # fmt: skip
Mean = Annotated[
    str | None,
    typer.Option("--mean", help="Per channel on the 0 to 1 scale: 0.485,0.456,0.406.", rich_help_panel="Images"),
]
Std = Annotated[
    str | None,
    typer.Option("--std", help="Per channel on the 0 to 1 scale: 0.229,0.224,0.225.", rich_help_panel="Images"),
]
Interpolation = Annotated[
    str | None,
    typer.Option(
        "--interpolation", metavar="HOW", autocompletion=INTERPOLATIONS, rich_help_panel="Images",
        help="bilinear, bicubic or nearest. Default: bilinear.",
    ),
]  # fmt: skip
Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Names of the classes: a line each, or a JSON list.",
        rich_help_panel="Images",
    ),
]
Calibration = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="PATH",
        help="100 to 500 typical inputs for int8: .npz, .npy, a folder of images, .csv, .parquet or file.py:dataset.",
        rich_help_panel="Data",
    ),
]
Eval = Annotated[
    str | None,
    typer.Option(
        "--eval",
        metavar="PATH",
        help="The same with labels: every file's accuracy is measured on it and compared with the original's.",
        rich_help_panel="Data",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="top1, top5, mean_iou, mae, mse or file.py:NAME: a function of (outputs by name, label), called for each sample "
        "and averaged, or a class with update(outputs, label) and compute(). Default: what the labels call for.",
        rich_help_panel="Data",
    ),
]
MaxDrop = Annotated[
    float | None,
    typer.Option(
        "--max-drop",
        metavar="POINTS",
        help="Most that may be lost: points of an accuracy (0 to 100), per cent of an error or of your own metric. Layers go back "
        "to float until it holds; else nothing is written.",
        rich_help_panel="Data",
    ),
]
RequireFaster = Annotated[
    bool,
    typer.Option("--require-faster", help="Refuse int8 that is slower than float here.", rich_help_panel="Data"),
]
AllowSlower = Annotated[
    bool,
    typer.Option("--allow-slower", help="Let 'auto' pick a slower scheme when it is smaller.", rich_help_panel="Data"),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Delete what is there, even if edgesdk did not write it.", rich_help_panel="Output"),
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
