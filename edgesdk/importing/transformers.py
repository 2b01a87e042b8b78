"""A Hugging Face folder: config.json with safetensors."""

from __future__ import annotations

from edgesdk.artifacts import Model
from edgesdk.importing._base import Importer, ImportOptions, Located


class TransformersImporter(Importer):
    """The task comes from the configuration's ``architectures``; no code out of the folder is run."""

    name = "transformers"

    def load(self, located: Located, options: ImportOptions) -> Model:
        from edgesdk.importing._huggingface import import_folder

        if located.path is None:
            raise ValueError("a Hugging Face model is a folder")
        return import_folder(located.path, located, options)


IMPORTER = TransformersImporter()
