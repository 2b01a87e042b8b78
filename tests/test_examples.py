"""The examples run, and read digits as well from the bundle as before."""

from __future__ import annotations

import os
import re
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


@pytest.mark.slow
@pytest.mark.parametrize("where", ["elsewhere", "above"])
def test_every_path_that_the_demo_prints_can_be_pasted_where_the_user_stands(tmp_path: Path, where: str) -> None:
    root = DIGITS.parents[1]
    stands = {"elsewhere": tmp_path, "above": root.parent}[where]
    env = os.environ | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = subprocess.run(
        [root / "tools/demo"], cwd=stands, env=env, capture_output=True, text=True, timeout=500, check=True
    )
    for pattern in (
        r"bundle +(\S+)",
        r"report +(\S+)",
        r"The report: (\S+)",
        r"edgesdk package (\S+)",
        r"--labels (\S+)",
    ):
        found = re.search(pattern, ran.stdout)
        assert found and (stands / found[1]).exists(), (pattern, ran.stdout)
    (folder, readme) = re.findall(r"next +add the folder (\S+) to your Gradle build; (\S+) has", ran.stdout)[0]
    assert (stands / folder).is_dir() and (stands / readme).is_file()
