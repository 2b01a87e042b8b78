"""Weights by name (``.pth``, ``.safetensors``, a training checkpoint) with ``--arch`` naming the network."""

from __future__ import annotations

from edgesdk.artifacts import Model
from edgesdk.importing._base import Importer, ImportOptions, Located


class StateDictImporter(Importer):
    """The weights are found under whatever key holds them; ``FILE#KEY`` chooses when several fit."""

    name = "state_dict"

    def load(self, located: Located, options: ImportOptions) -> Model:
        from edgesdk.importing._checkpoint import load_checkpoint

        return load_checkpoint(located, options)


IMPORTER = StateDictImporter()
