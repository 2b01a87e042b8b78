"""A name instead of a file: ``torchvision:NAME[@WEIGHTS]``, ``timm:NAME[@TAG]``, ``hf:ORG/MODEL``."""

from __future__ import annotations

from edgesdk.artifacts import Model
from edgesdk.importing._base import Importer, ImportOptions, Located


class NamedImporter(Importer):
    """Without ``@WEIGHTS`` the weights are random, from a fixed seed, with the warning ``random_weights``."""

    name = "named"

    def load(self, located: Located, options: ImportOptions) -> Model:
        from edgesdk.importing._export import export_module
        from edgesdk.importing._library import build_named, random_weights

        library, _, name = located.text.partition(":")
        if library == "hf":
            from edgesdk.importing._huggingface import import_repository

            return import_repository(name, located, options)
        built = build_named(library, name, pretrained_allowed=True)
        if not built.trained:
            built = random_weights(built)
        return export_module(built.module, located, options, hint=built.hint)


IMPORTER = NamedImporter()
