"""``file.py:factory`` and ``package.module:factory``: the model is what the user's function returns."""

from __future__ import annotations

from edgesdk.artifacts import Model
from edgesdk.importing._base import Importer, ImportOptions, Located


class PythonFileImporter(Importer):
    """The factory is called without arguments; it may load weights beside it."""

    name = "python_file"

    def load(self, located: Located, options: ImportOptions) -> Model:
        from edgesdk.importing._export import export_module
        from edgesdk.importing._library import hint_of
        from edgesdk.importing._user_code import build

        package, _, factory = located.text.rpartition(":")
        module = build(located.path, package, located.member or factory)
        return export_module(module, located, options, hint=hint_of(module))


IMPORTER = PythonFileImporter()
