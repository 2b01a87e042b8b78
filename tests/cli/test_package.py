"""``package`` and the verbs around it as a user meets them: real processes on a real (small, trained) model."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from edgesdk.bundle import EdgeBundle
from edgesdk.cli import _package_text as text

from .conftest import Ran, environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"


def run(folder: Path, *words: object) -> Ran:
    command = [sys.executable, "-m", "edgesdk", *map(str, words)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(folder, COLUMNS="160"),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory (and home, so that the cache is its own) with the trained digit classifier."""
    folder = tmp_path_factory.mktemp("home")
    train = [sys.executable, str(EXAMPLE / "train.py"), "digits.pt2"]
    subprocess.run(train, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def package(home: Path) -> Ran:
    """The first run, for people."""
    ran = run(home, "package", "digits.pt2", "--target", "linux", "--name", "digits [v2]", "-o", "out")
    assert ran.code == 0, ran.err
    return ran


@pytest.mark.slow
def test_what_people_see(package: Ran) -> None:
    for part in (
        "digits [v2] 1.0.0 for linux",
        "executorch-xnnpack-none",
        "max error",
        "out/digits [v2].edge",
        "out/report.html",
        "next",
        "int8",
    ):
        assert part in package.out, part
    assert [line for line in package.err.splitlines() if line.endswith("] importing")], package.err
    assert "\x1b" not in package.out + package.err


@pytest.mark.slow
def test_json_quiet_and_verbose_agree(home: Path, package: Ran) -> None:
    """The second runs come from the cache."""
    words = ("package", "digits.pt2", "--target", "linux", "--name", "digits [v2]", "-o", "out")
    full, brief = run(home, *words, "--json", "--verbose"), run(home, *words, "--quiet")
    assert full.document["schema"] == "edgesdk.package/1"
    assert full.document["cache"]["misses"] == 0
    assert full.err.strip(), "verbose tells what it does"
    assert (brief.out.strip(), brief.err) == (full.document["bundle"], "")


@pytest.mark.slow
def test_a_plan_says_what_would_be_done(home: Path) -> None:
    words = (
        "package",
        "digits.pt2",
        "--target",
        "android",
        "--runtime",
        "executorch",
        "--runtime",
        "onnx",
        "--dry-run",
    )
    before = sorted(home.iterdir())
    plan = run(home, *words, "--json").document
    assert (plan["schema"], [v["runtime"] for v in plan["variants"]]) == ("edgesdk.plan/1", ["executorch", "onnx"])
    assert all(v["file"] in run(home, *words).out for v in plan["variants"])
    assert sorted(home.iterdir()) == before
    plans = run(home, *words, "--target", "ios", "--json").document
    assert (plans["schema"], [p["target"] for p in plans["plans"]]) == ("edgesdk.plans/1", ["android", "ios"])


@pytest.mark.slow
def test_verify_says_yes_and_no(home: Path, package: Ran) -> None:
    bundle = home / "out" / "digits [v2].edge"
    good = run(home, "verify", bundle)
    assert good.code == 0, good.err
    assert ": ok" in good.out and "none: anybody could have made this bundle" in good.out
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    bad = home / "bad.edge"
    bad.write_bytes(data)
    said = run(home, "verify", bad, "--json")
    assert said.code == 6, said.out
    assert said.document.get("ok") is not True


@pytest.mark.slow
def test_one_file_then_a_bundle_of_it(home: Path, package: Ran) -> None:
    lowered = run(home, "lower", "digits.pt2", "--runtime", "onnx", "-o", "d.onnx", "--json")
    assert lowered.code == 0, lowered.err
    assert (lowered.document["schema"], lowered.document["variant"]["verified"]) == ("edgesdk.lower/1", True)
    (home / "names.txt").write_text("\n".join(f"digit {i}" for i in range(10)))
    bundled = run(
        home, "bundle", "d.onnx", "--against", "digits.pt2", "--labels", "names.txt", "-o", "bundled", "--json"
    )
    assert bundled.code == 0, bundled.err
    assert run(home, "verify", "bundled/digits.edge").code == 0
    with EdgeBundle.open(home / "bundled/digits.edge") as made:
        assert made.manifest.labels == tuple(f"digit {i}" for i in range(10))
    assert [v["id"] for v in bundled.document["variants"]] == ["onnx-none"]
    report = run(home, "report", "out", "bundled/digits.edge", "-o", "both.html")
    assert (report.code, report.out.strip()) == (0, "both.html")
    assert "digits" in (home / "both.html").read_text()


@pytest.mark.slow
def test_init_writes_a_recipe_that_packages_the_same_model(home: Path, package: Ran) -> None:
    made = run(home, "init", "digits.pt2", "-o", "digits.toml", "--target", "linux")
    assert made.code == 0, made.err
    assert '"input" = "float32[1,1,8,8]"' in (home / "digits.toml").read_text()
    plan = run(home, "package", "--recipe", "digits.toml", "--dry-run", "--json")
    assert (plan.code, plan.document["name"], plan.document["target"]) == (0, "digits", "linux")


@pytest.mark.slow
def test_ctrl_c_leaves_with_130_and_nothing_behind(tmp_path: Path) -> None:
    """Interrupted while user code runs in a worker."""
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\ndef net():\n    pathlib.Path('started').touch()\n    time.sleep(600)\n"
    )
    command = [
        sys.executable,
        "-m",
        "edgesdk",
        "package",
        "slow.py:net",
        "--input",
        "x=float32[1]",
        "--target",
        "linux",
        "-o",
        "out",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (tmp_path / "started").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.rstrip().endswith("interrupted")
    assert "Traceback" not in err
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert left - {"__pycache__"} == {"slow.py", "started"}


@pytest.mark.parametrize(
    ("outputs", "top1", "shown"),
    [
        ([], None, "–"),
        ([{"max_abs_error": 0.0, "snr_db": None}], None, "exact"),
        (
            [{"max_abs_error": 1e-6, "snr_db": 120.2}, {"max_abs_error": 2e-6, "snr_db": 99.9}],
            0.995,
            "max error 2.0e-06, 100 dB, top-1 agreement 99.5 %",
        ),
    ],
)
def test_fidelity_shows_the_worst_output(outputs: list[dict[str, Any]], top1: float | None, shown: str) -> None:
    assert text.fidelity({"outputs": outputs, "top1_agreement": top1}) == shown


def test_report_refuses_what_is_no_document(tmp_path: Path) -> None:
    for name, data in {
        "a.json": b"{}",
        "b.json": b"[1",
        "c.bin": b"\x00\xff",
        "d.json": json.dumps({"schema": "x/1"}).encode(),
    }.items():
        (tmp_path / name).write_bytes(data)
        ran = run(tmp_path, "report", name, "-o", "r.html", "--json")
        assert (ran.code, ran.document["exit"]) == (3, 3), name
        assert not (tmp_path / "r.html").exists()
    assert run(tmp_path, "report", "gone.json", "-o", "r.html").code == 3


@pytest.mark.slow
def test_report_of_a_folder_without_one_names_a_command_that_works(tmp_path: Path) -> None:
    document = {"schema": "edgesdk.package/1", "name": "net", "variants": []}
    (tmp_path / "a1" / "my net-linux").mkdir(parents=True)
    empty = run(tmp_path, "report", "a1/my net-linux", "-o", "r.html", "--json").document
    assert (empty["code"], empty["exit"]) == ("no_report", 3)
    assert "edgesdk package MODEL --target android" in empty["fix"]
    (tmp_path / "a1" / "my net-linux" / "report.json").write_text(json.dumps(document))
    said = run(tmp_path, "report", "a1", "-o", "r.html", "--json").document
    assert said["code"] == "no_report"
    command = shlex.split(said["fix"].partition("Name that: ")[2])
    assert command[:2] == ["edgesdk", "report"]
    assert run(tmp_path, *command[1:]).code == 0, command
    assert (tmp_path / "report.html").is_file()
    assert run(tmp_path, "report", "a2", "-o", "r.html", "--json").document["code"] == "report_missing"
    bare = run(tmp_path, "report", "a1/my net-linux")
    assert (bare.code, "Add it: edgesdk report 'a1/my net-linux' --output report.html" in bare.err) == (2, True), (
        bare.err
    )
    with zipfile.ZipFile(tmp_path / "net.pt2", "w") as archive:
        archive.writestr("net/version", "1")
    model = run(tmp_path, "report", "net.pt2", "-o", "r.html", "--json").document
    assert model["code"] == "not_a_report" and "edgesdk package net.pt2 --target android" in model["fix"]


def test_what_people_see_of_a_package(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    variant = {
        "id": "executorch-xnnpack-none", "bytes": 3_700, "outputs": [], "top1_agreement": None, "rung": "full", "verified": True,
        "delegated_fraction": 1.0, "details": {"leftovers": {"aten::view_copy": 2}},
    }  # fmt: skip
    document = {
        "name": "net", "version": "1", "target": "linux", "bundle": "net.edge", "bundle_bytes": 20_700, "output": "out",
        "bundle_parts": {"models": 3_700, "golden": 12_000, "rest": 5_000}, "variants": [variant], "warnings": [],
        "timings_s": dict.fromkeys(("import", "lower", "verify", "bundle", "total"), 0.0), "cache": {"hits": 1},
    }  # fmt: skip
    text.show_packages(Console(width=160), [document])
    shown = capsys.readouterr().out
    assert "100 %, 2 operators outside" in shown
    assert "(20.7 kB: models 3.7 kB, golden vectors 12 kB, manifest and padding 5 kB)" in shown
