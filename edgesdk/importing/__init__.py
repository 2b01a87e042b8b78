"""Importing: anything that holds a PyTorch or ONNX model becomes a :class:`~edgesdk.artifacts.Model`.

One file per kind of source, found by scanning; see ``_base.Importer`` for the contract. :func:`locate` and
:func:`sniff` need no torch; :func:`import_model` does.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from edgesdk.artifacts import Model, Source
from edgesdk.errors import InputError
from edgesdk.importing._base import Importer, ImportOptions, Located
from edgesdk.importing._locate import arch_missing, locate
from edgesdk.importing._sniff import sniff
from edgesdk.registry import collect

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "ImportOptions",
    "Importer",
    "Located",
    "arch_missing",
    "import_model",
    "import_module",
    "importer_of",
    "importers",
    "locate",
    "sniff",
]


@functools.cache
def importers() -> dict[str, Importer]:
    """Every importer, by the kind that it reads."""
    return collect("edgesdk.importing", "IMPORTER", Importer)  # type: ignore[type-abstract]


def import_model(located: Located, options: ImportOptions | None = None) -> Model:
    """Read a located source and export it.

    Raises:
        InputError: it is a finished device file, damaged, not trusted, or doesn't fit the options.
        UnsupportedError: torch can't capture it as a graph.
        MissingToolError: a library that this kind needs isn't installed.
    """
    return importer_of(located).load(located, options or ImportOptions())


def importer_of(located: Located) -> Importer:
    """What reads a source of this kind.

    Raises:
        InputError: it is a finished device file.
    """
    importer = importers().get(located.kind)
    if importer is None:
        advice = (
            f"'edgesdk inspect {located.text}' shows what is in it"
            if located.kind == "edge"
            else f"'edgesdk bundle {located.text} --against MODEL' packages it as it is"
        )
        raise InputError(
            "not_a_source", f"{located.text} is a finished file ({located.kind}), not a model to start from.",
            why="It was already lowered for a runtime, and can't be turned back into a network.",
            fix=f"Package the model that it was made from; {advice}.",
        )  # fmt: skip
    return importer


def import_module(module: nn.Module, options: ImportOptions | None = None, *, name: str | None = None) -> Model:
    """Export an ``nn.Module`` that the caller holds; ``name`` defaults to its class's name.

    Raises:
        InputError: its inputs are not known; ``options.inputs`` says them.
        UnsupportedError: torch can't capture it as a graph.
    """
    from edgesdk.importing._export import export_module

    located = Located("module", name or type(module).__name__, Source(name or type(module).__name__, "module"))
    return export_module(module, located, options or ImportOptions(), hint=None)
