"""The text of a new recipe: every setting, with a comment; what differs from the default is set, the rest is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from edgesdk._version import __version__
from edgesdk.artifacts import TensorSpec
from edgesdk.recipe import BACKENDS, INTERPOLATIONS, RESIZES, SCHEMA, SCHEMES, runtime_names

_TEXT = """\
# Recipe for edgesdk {version}: what 'edgesdk package --recipe FILE' does.
# Options on the command line override what is written here; lines that begin with # show the default or an example.
# Relative paths start at this file's folder.
schema = {schema}

[model]
# A file, a folder, file.py:factory, or a name such as torchvision:mobilenet_v2@DEFAULT.
source = {source}
# The network that a file of weights belongs to: torchvision:NAME, timm:NAME, transformers:FOLDER, file.py:factory.
{arch}
# Let the file run code while it is read. Only for files whose origin you trust.
{trust}
# name = "my-model"
version = "1.0.0"
# license = "Apache-2.0"

[input]
# One line for each input: NAME = "DTYPE[SIZES]". A range a..b makes a dimension dynamic: "float32[1..8,3,224,224]".
{inputs}

[preprocess]
# How a picture becomes the input. Left out: as the model's own configuration says, if it has one.
# image = 224                       # pixels; [480, 640] for height and width
# resize = "shorter"                # {resizes}
# mean = [0.485, 0.456, 0.406]      # per channel, on the 0...1 scale
# std = [0.229, 0.224, 0.225]
# interpolation = "bilinear"        # {interpolations}
# labels = "labels.txt"             # a name a line, or a JSON list

[compress]
# prune = 0.5                       # share of the channels to remove (not in this version)

[quantize]
# Exactly these variants are made: {schemes}.
schemes = ["none"]
# calibration = "calibration.npz"   # sample inputs for int8, 100 to 500 of them

[lower]
# Left out or empty: what the target prefers. {runtimes}.
# runtimes = ["executorch"]
# {backends}.
# backends = ["xnnpack"]
# opset = 18                        # of ONNX
# ort_format = false                # .ort instead of .onnx
# bytecode = 8                      # of TorchScript Lite
# jobs = 2                          # worker processes

[gate]
# eval = "test.npz"                 # labelled data: every file's accuracy is measured on it
# metric = "top1"                   # what it is judged by; left out: what the labels call for
# max_drop = 1.0                    # points of it that may be lost; layers go back to float until it holds
# require_faster = false            # refuse int8 that is slower than float
# allow_slower = false              # let "auto" pick a slower scheme when it is smaller
# seed = 0                          # of the inputs that every file is checked with

[target]
names = {targets}
# output = "dist/my-model-android"  # the folder itself; left out: dist/NAME-TARGET below the working directory

[sign]
# key = "release.key"               # 'edgesdk keys new -o release.key' makes one; keep it out of the repository
"""


_FILL_IN = "# TO BE FILLED IN: the source holds weights alone, and nothing can be made without their network.\n"


def recipe_text(
    source: str,
    arch: str | None,
    trust_pickle: bool,
    inputs: Sequence[TensorSpec],
    targets: Sequence[str],
    *,
    needs_arch: bool = False,
) -> str:
    """A recipe as TOML. The same arguments give the same bytes.

    Args:
        needs_arch: the source is weights alone: the line of ``arch`` says that it has to be filled in.
    """
    return _TEXT.format(
        version=__version__,
        schema=quoted(SCHEMA),
        source=quoted(source),
        arch=f"arch = {quoted(arch)}" if arch else f'{_FILL_IN if needs_arch else ""}# arch = "file.py:factory"',
        trust="trust_pickle = true" if trust_pickle else "# trust_pickle = false",
        inputs="\n".join(map(_line, inputs)) or '# input = "float32[1,3,224,224]"',
        resizes=_words(RESIZES),
        interpolations=_words(INTERPOLATIONS),
        schemes=_words(SCHEMES),
        runtimes=f"Runtimes: {_words(runtime_names())}",
        backends=f"Back ends: {_words(BACKENDS)}",
        targets=f"[{', '.join(map(quoted, targets))}]",
    )


def _line(spec: TensorSpec) -> str:
    dims = ",".join(map(str, spec.shape or ()))
    return f"{quoted(spec.name)} = {quoted(f'{spec.dtype}[{dims}]')}"


def _words(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def quoted(text: str) -> str:
    """A TOML basic string. JSON's is one too, but for the character 0x7f, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
