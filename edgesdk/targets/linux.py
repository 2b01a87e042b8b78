"""Linux: the bundle, a script that runs it, and the lines to paste."""

from __future__ import annotations

from pathlib import Path

from edgesdk.targets._base import Emission, Target
from edgesdk.targets._facts import facts
from edgesdk.targets._render import render, write

# Extras of edgesdk's own pyproject.toml that are called like a runtime.
EXTRAS = frozenset({"executorch", "onnx", "torchscript"})


class Linux(Target):
    name = "linux"
    abis = ("x86_64", "aarch64")
    variants = (("executorch", "xnnpack"),)

    def emit(self, emission: Emission, folder: Path) -> None:
        found = facts(emission, self.abis)
        values = {"facts": found, "extras": ",".join(sorted(EXTRAS & set(found.runtimes))) or "executorch"}
        write(folder / "run.py", render("linux/run.py.j2", **values))
        write(folder / "README.md", render("linux/README.md.j2", **values))


TARGET = Linux()
