"""TorchScript archives (``.pt`` of ``torch.jit.save``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgesdk.artifacts import Model
from edgesdk.errors import InputError
from edgesdk.importing._base import Importer, ImportOptions, Located

if TYPE_CHECKING:
    import torch


class TorchScriptImporter(Importer):
    name = "torchscript"

    def load(self, located: Located, options: ImportOptions) -> Model:
        from dataclasses import replace

        from torch._export.converter import TS2EPConverter

        from edgesdk.importing._export import adopt_program
        from edgesdk.importing._guess import propose_inputs
        from edgesdk.importing._inputs import example, sizes_of

        script = _read(located)
        names = [v.debugName() for v in list(script.graph.inputs())[1:]]
        if not options.inputs:
            raise propose_inputs(script, names)
        flat = tuple(example(s, sizes_of(s, {}), i) for i, s in enumerate(options.inputs))
        program = TS2EPConverter(script, flat, {}).convert()
        return replace(adopt_program(program, located, options), script=script)


def _read(located: Located) -> torch.jit.ScriptModule:
    import torch

    try:
        return torch.jit.load(str(located.path), map_location="cpu").eval()  # type: ignore[no-untyped-call,no-any-return]
    except RuntimeError as exc:
        raise InputError(
            "damaged_torchscript", f"{located.text} can't be read as TorchScript.",
            why="The archive is cut short or damaged, or was written by a newer torch.",
            fix="Copy or download the file again, or save it again with torch.jit.save.",
        ) from exc  # fmt: skip


IMPORTER = TorchScriptImporter()
