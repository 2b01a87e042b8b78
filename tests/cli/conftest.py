"""Run the command line: in this process (quick), or as a user does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgesdk.cli import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


Call = Callable[..., Ran]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """``call("cache", "--json")`` in this process, in an empty folder, with a home of its own."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "EDGESDK_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: object) -> Ran:
        capfd.readouterr()
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return run


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "EDGESDK_", "FORCE_COLOR"))}
    return {**kept, "HOME": str(home), **more}


@pytest.fixture
def shell(tmp_path: Path) -> Call:
    """``shell("package", …)`` in a process of its own."""

    def run(*words: object, cwd: Path | None = None, timeout: float = 120, **env: str) -> Ran:
        command = [sys.executable, "-m", "edgesdk", *map(str, words)]
        done = subprocess.run(
            command, cwd=cwd or tmp_path, env=environment(tmp_path, **env), capture_output=True, text=True, timeout=timeout,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
