"""Whether this machine can lower with ExecuTorch, asked before minutes are spent (pitfall E-14)."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgesdk.runtimes._et_native import version_of
from edgesdk.runtimes._et_patch import root

MATCHED = ("torch", "torchao")
"""Packages that executorch is built against; its metadata says which versions."""


def check_environment() -> tuple[str, ...]:
    """What stands in the way of lowering, one sentence each; empty when all is well. Imports nothing heavy."""
    if version_of("executorch") is None:
        return ("executorch is not installed: pip install 'edgesdk[executorch]'.",)
    return tuple(_problems())


def _problems() -> Iterator[str]:
    folder = root("executorch")
    again = "pip install --force-reinstall --no-deps executorch"
    if folder is None:
        yield f"executorch's files are missing though it is installed: {again}."
        return
    if not any((folder / "extension/pybindings").glob("*.so")) and not any(
        (folder / "extension/pybindings").glob("*.pyd")
    ):
        yield f"executorch's native library is missing, so files can't be run: {again}."
    yield from _compiler(folder, again)
    yield from _versions()
    yield from _scratch()


def _compiler(folder: Path, again: str) -> Iterator[str]:
    packed = next(iter((folder / "data/bin").glob("flatc*")), None)
    if packed is None:
        if shutil.which(os.environ.get("FLATC_EXECUTABLE", "flatc")) is None:
            yield f"The FlatBuffers compiler 'flatc' is neither in executorch nor on the PATH: {again}."
    elif not os.access(packed, os.X_OK) and not os.access(packed, os.W_OK):
        yield f"The FlatBuffers compiler in executorch may not be executed: chmod +x '{packed}'."


def _versions() -> Iterator[str]:
    if importlib.util.find_spec("packaging") is None:
        return
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires("executorch") or ():
        wanted = Requirement(text)
        if wanted.name not in MATCHED or (wanted.marker and not wanted.marker.evaluate()):
            continue
        found = version_of(wanted.name)
        if found is None:
            yield f"executorch needs {wanted.name}, which is not installed: pip install '{wanted.name}{wanted.specifier}'."
        elif not wanted.specifier.contains(found, prereleases=True):
            yield (
                f"executorch {version_of('executorch')} needs {wanted.name}{wanted.specifier}, but {found} is installed: "
                f"pip install '{wanted.name}{wanted.specifier}'."
            )


def _scratch() -> Iterator[str]:
    place = Path(tempfile.gettempdir())
    if not os.access(place, os.W_OK):
        yield f"The compiler writes to the temporary folder {place}, which is not writable: set TMPDIR to one that is."
