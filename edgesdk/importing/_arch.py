"""``--arch``: the network that the weights of a state dict belong to."""

from __future__ import annotations

from pathlib import Path

from edgesdk.errors import UsageError
from edgesdk.importing._library import Built, build_named, hint_of

_FORMS = "torchvision:NAME, timm:NAME, transformers:FOLDER, package.module:factory or file.py:factory"


def build(spec: str) -> Built:
    """Make the architecture that ``--arch`` names.

    Raises:
        UsageError: the text can't be read, or no architecture has that name.
        InputError: the user's factory fails, or the folder has no configuration.
        MissingToolError: its library isn't installed.
    """
    library, colon, name = spec.partition(":")
    if library in ("torchvision", "timm") and name:
        return build_named(library, name)
    if library == "transformers" and name:
        from edgesdk.importing._huggingface import build_architecture

        return build_architecture(Path(name).expanduser())
    where, colon, factory = spec.rpartition(":")
    if not colon or not where or not factory:
        raise UsageError(
            "bad_arch", f"--arch {spec!r} can't be read.", why="The part after or before the colon is missing.",
            fix=f"Write {_FORMS}.",
        )  # fmt: skip
    return _from_python(spec, where, factory)


def _from_python(spec: str, where: str, factory: str) -> Built:
    from edgesdk.importing import _user_code
    from edgesdk.importing._locate import missing

    path = Path(where).expanduser()
    is_file = where.endswith(".py") or "/" in where or path.is_file()
    if is_file and not path.is_file():
        raise missing(path)
    module = _user_code.build(path if is_file else None, "" if is_file else where, factory)
    return Built(module, hint_of(module), spec)
