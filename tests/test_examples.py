"""The examples run, and read digits as well from the bundle as before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[1] / "examples" / "digits"


@pytest.mark.slow
def test_digits(tmp_path: Path) -> None:
    env = os.environ | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=500
        )
        return done.stdout

    trained = run(str(DIGITS / "train.py"), "digits.pt2")
    run("-m", "edgesdk", "package", "digits.pt2", "--target", "android", "--labels", str(DIGITS / "labels.txt"))
    packaged = run(str(DIGITS / "run.py"), "dist/digits-android/digits.edge")
    share = trained.split(": ")[1]
    assert share == packaged.split(": ")[1]
    assert float(share.split("%")[0]) > 95  # a logistic regression reaches 96 % on this set
