"""TorchScript archives (``.pt`` of ``torch.jit.save``): converted to an exported program where that is possible.

``torch.jit.load`` runs no Python: its archives hold TorchScript code, which torch compiles, and tensors and constants,
which a C++ unpickler reads that knows no Python classes.
"""

from __future__ import annotations

import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

from edgesdk.artifacts import Model
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.importing._base import Importer, ImportOptions, Located

if TYPE_CHECKING:
    import torch

    from edgesdk.importing._export import ModelHint


class TorchScriptImporter(Importer):
    name = "torchscript"

    def load(self, located: Located, options: ImportOptions) -> Model:
        if located.source.format == "torchscript_lite":
            raise _lite(located)
        return import_script(_read(located), located, options)


def _lite(located: Located) -> UnsupportedError:
    return UnsupportedError(
        "already_lowered",
        f"{located.text} is a file for the TorchScript Lite interpreter and can't be lowered again.",
        why="It holds bytecode; the graph that the other runtimes need is gone.",
        fix="Package the model it was made from, or bundle the file as it is: edgesdk bundle FILE.ptl --against MODEL.",
    )


def _read(located: Located) -> torch.jit.ScriptModule:
    import warnings

    import torch

    from edgesdk.quantize._fx._engine import packing

    if _is_torch_package(located):
        raise _package(located)
    try:
        with packing(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            script: torch.jit.ScriptModule = torch.jit.load(str(located.path), map_location="cpu")  # type: ignore[no-untyped-call]
        return script.eval()
    except (RuntimeError, ValueError, OSError, zipfile.BadZipFile) as exc:
        raise _unreadable(located, exc) from exc


def _is_torch_package(located: Located) -> bool:
    if located.path is None or not zipfile.is_zipfile(located.path):
        return False
    with zipfile.ZipFile(located.path) as archive:
        return any("/.data/extern_modules" in name for name in archive.namelist())


def _package(located: Located) -> InputError:
    return InputError(
        "torch_package", f"{located.text} is a torch.package archive, not a TorchScript module.",
        why="It carries Python code that would have to run to rebuild the model, and may take text instead of tensors.",
        fix="Load it in Python, take the module out and save that with torch.export.save or torch.jit.save.",
    )  # fmt: skip


def _unreadable(located: Located, exc: Exception) -> InputError:
    text = str(exc)
    if "Unknown builtin op" in text or "Unknown type name" in text or "does not exist" in text:
        word = text.split("Unknown builtin op:")[-1].strip().split(".")[0].split("\n")[0]
        return InputError(
            "unknown_operator", f"{located.text} uses an operator that isn't registered here: {word}.",
            why="It comes from a library that has to be imported before the file is read.",
            fix="Install that library, or save the model again from plain torch operators.",
        )  # fmt: skip
    if "keyword attribute 'value' is undefined" in text:
        return InputError(
            "lost_constants", f"{located.text} lacks the values of constants; PyTorch can't read it back either.",
            why="torch.jit.optimize_for_inference repacks weights into a form that torch.jit.save doesn't store.",
            fix="Save the model before that step, e.g. torch.jit.save(torch.jit.freeze(model), FILE).",
        )  # fmt: skip
    return InputError(
        "damaged_torchscript", f"{located.text} can't be read as TorchScript.",
        why="The archive is cut short or damaged, or was written by a newer torch.",
        fix="Copy or download the file again, or save it again with torch.jit.save.",
    )  # fmt: skip


def import_script(
    script: torch.jit.ScriptModule, located: Located, options: ImportOptions, *, hint: ModelHint | None = None
) -> Model:
    """Convert a script module to an exported program; where that fails, keep the script for TorchScript Lite.

    Raises:
        UsageError: an unknown input name.
        InputError: no shape is known, or ``forward()`` fails on the described inputs.
        UnsupportedError: inputs that are no tensors (``List[str]``).
    """
    from edgesdk.importing._export import ModelHint
    from edgesdk.importing._script_convert import call_of, convert
    from edgesdk.importing._script_inputs import fix_scalars, parameters_of, recorded_inputs

    hint = hint or ModelHint()
    parameters = parameters_of(script)
    script, parameters, warnings = fix_scalars(script, parameters)
    hinted = hint.inputs or recorded_inputs(script, parameters)
    hint = replace(hint, inputs=hinted, warnings=(*hint.warnings, *warnings))
    return convert(call_of(script, parameters, options.inputs, hinted), located, options, hint)


IMPORTER = TorchScriptImporter()
