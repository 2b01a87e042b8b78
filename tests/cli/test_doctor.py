"""What doctor finds: on this machine, which has everything, and with one thing taken away."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgesdk import doctor

from .conftest import Call, environment


@pytest.mark.parametrize(
    ("version", "specifier", "fits"),
    [
        ("2.15.0", ">=2.13,<2.17", True),
        ("2.17.0", ">=2.13,<2.17", False),
        ("2.15.0+cpu", "==2.15.0", True),
        ("2.15", "==2.15.0", True),
        ("2.15.1", "==2.15.*", True),
        ("2.16.0", "==2.15.*", False),
        ("0.18.3", "~=0.18.1", True),
        ("0.19.0", "~=0.18.1", False),
        ("1.5.1", "!=1.5.1", False),
        ("1.10.0", ">1.9", True),
        ("1.5.1", "", True),
    ],
)
def test_versions_and_ranges(version: str, specifier: str, fits: bool) -> None:
    assert doctor.satisfies(version, specifier) is fits


def test_requirements_are_read_with_their_extras() -> None:
    found = set(doctor.requirements("edgesdk"))
    assert ("typer", ">=0.20", "") in found
    assert any(name == "torch" and extra == "torch" and "<" in spec for name, spec, extra in found)


def examine(tmp_path: Path, *words: str, **env: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "edgesdk", "doctor", "--json", *words], cwd=tmp_path, env=environment(tmp_path, **env),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def state(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [check for check in document["checks"] if check["name"] == name]
    return dict(found)


def test_this_machine_is_ready_for_android(tmp_path: Path) -> None:
    code, document = examine(tmp_path, "--target", "android")
    assert (code, document["ok"], document["targets"]) == (0, True, ["android"])
    assert all(state(document, f"runtime {name}")["state"] == "ok" for name in ("executorch", "onnx", "torchscript"))


def distribution(folder: Path, name: str, version: str) -> str:
    """A folder that, on the PYTHONPATH, makes a distribution appear in another version."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(folder)


def test_pitfall_e_14_a_set_that_does_not_match_is_found_before_the_export(tmp_path: Path) -> None:
    """executorch 1.5.1 asks for torchao 0.18; another one fails late."""
    code, document = examine(tmp_path, PYTHONPATH=distribution(tmp_path / "older", "torchao", "0.12.0"))
    found = state(document, "torchao")
    assert (code, document["ok"], found["state"], found["found"]) == (8, False, "wrong", "0.12.0")
    assert found["fix"].startswith("Install a set that fits: pip install 'torchao")


def test_pitfall_e_14_a_helper_program_that_is_missing(tmp_path: Path) -> None:
    """An executorch whose wheel has lost its flatc, and none on the PATH."""
    fake = distribution(tmp_path / "bare", "executorch", "1.5.1")
    code, document = examine(tmp_path, PYTHONPATH=fake, PATH="/nowhere")
    found = state(document, "flatc")
    assert (code, found["state"]) == (8, "missing")
    assert found["fix"] == "pip install --force-reinstall --no-deps executorch"


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """A file where a folder should be: even root can't write into it."""
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    code, document = examine(tmp_path, EDGESDK_CACHE_DIR=str(blocked / "cache"))
    assert (code, state(document, "cache")["state"]) == (8, "wrong")
    assert "EDGESDK_CACHE_DIR" in state(document, "cache")["fix"]


def test_what_is_optional_does_not_fail(tmp_path: Path) -> None:
    code, document = examine(tmp_path, PATH="/nowhere")
    assert code == 0
    assert state(document, "adb")["state"] == "optional"
    assert "apt-get install adb" in state(document, "adb")["fix"]


def test_the_words_for_people(shell: Call, tmp_path: Path) -> None:
    ran = shell("doctor", PYTHONPATH=distribution(tmp_path / "older", "torchao", "0.12.0"))
    assert ran.code == 8
    assert "WRONG" in ran.out
    assert ran.out.rstrip().endswith("Not ready for android, ios, linux: torchao.")
