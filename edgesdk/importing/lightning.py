"""Lightning checkpoints: the ``state_dict`` inside, with the module's own prefix removed, and ``--arch``."""

from __future__ import annotations

from edgesdk.artifacts import Model
from edgesdk.importing._base import Importer, ImportOptions, Located


class LightningImporter(Importer):
    """``--arch`` may name the LightningModule or the network inside it; callbacks and hyper-parameters are not read."""

    name = "lightning"

    def load(self, located: Located, options: ImportOptions) -> Model:
        from edgesdk.importing._checkpoint import load_checkpoint

        return load_checkpoint(located, options, only="state_dict")


IMPORTER = LightningImporter()
