"""Stdout is for the answer, stderr for the rest; codes of a terminal go to a terminal only."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgesdk.cli import _output, _progress
from edgesdk.cli._output import Output

from .conftest import Call, environment

NOISY = """
import os, subprocess, sys
from edgesdk.cli._output import Output
out = Output(json=True, quiet=True, verbose=False)
with out.working():
    print("from python")
    os.write(1, b"from native code\\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
out.answer({"schema": "x/1"}, lambda console: None)
"""


def test_what_libraries_print_meanwhile_goes_to_stderr(tmp_path: Path) -> None:
    """From Python, from native code (the file descriptor), and from a child process."""
    done = subprocess.run(
        [sys.executable, "-c", NOISY], capture_output=True, text=True, env=environment(tmp_path), check=True
    )
    assert json.loads(done.stdout) == {"schema": "x/1"}
    assert all(f"from {who}" in done.stderr for who in ("python", "native code", "a child"))


def test_stdout_is_back_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), Output(json=False, quiet=True, verbose=False).working():
        raise KeyError("x")
    os.write(1, b"answer\n")
    assert capfd.readouterr().out == "answer\n"


def test_plain_progress_has_stages_and_hides_detail(capfd: pytest.CaptureFixture[str]) -> None:
    bar = _progress.progress(quiet=False, verbose=False)
    bar.stage("importing")
    bar.update("layer 1", 0.5)
    bar.note("a detail")
    bar.warn("careful")
    bar.warn("careful")
    bar.done()
    lines = capfd.readouterr().err.splitlines()
    assert [re.sub(r"^\[ *[\d.]+ s\] ", "", line) for line in lines] == ["importing", "warning: careful"]


def test_verbose_progress_has_detail_once(capfd: pytest.CaptureFixture[str]) -> None:
    bar = _progress.progress(quiet=False, verbose=True)
    bar.stage("lowering")
    for _ in range(3):
        bar.update("layer 1", 0.5)
    bar.note("a detail")
    bar.done()
    bar.done()
    lines = [re.sub(r"^\[ *[\d.]+ s\] ", "", line) for line in capfd.readouterr().err.splitlines()]
    assert lines == ["lowering", "  layer 1", "  a detail", "done"]


def test_quiet_progress_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    bar = _progress.progress(quiet=True, verbose=False)
    for step in (bar.stage, bar.update, bar.note, bar.warn):
        step("x")
    bar.done()
    assert capfd.readouterr() == ("", "")


LIVE = """
import time
from edgesdk.cli import _progress
bar = _progress.progress(False, False)
bar.stage('importing'); bar.update('a [layer]', 0.5); time.sleep(0.3); bar.warn('careful'); bar.stage('lowering'); bar.done()
"""


@pytest.mark.parametrize(
    ("env", "codes"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_a_terminal_gets_a_live_line_unless_it_says_otherwise(env: dict[str, str], codes: bool, tmp_path: Path) -> None:
    said = in_terminal([sys.executable, "-c", LIVE], tmp_path, env)
    assert ("\x1b" in said) is codes
    assert all(word in said for word in ("importing", "careful", "lowering"))


@pytest.mark.parametrize(("env", "codes"), [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)])
def test_colour_of_errors_and_answers(env: dict[str, str], codes: bool, tmp_path: Path) -> None:
    for words in (["packge"], ["doctor"]):
        said = in_terminal([sys.executable, "-m", "edgesdk", *words], tmp_path, env)
        assert ("\x1b" in said) is codes, words


def in_terminal(command: list[str], home: Path, env: dict[str, str]) -> str:
    """What a command writes when its three streams are one terminal."""
    main, side = pty.openpty()
    base = {k: v for k, v in environment(home).items() if k not in ("NO_COLOR", "TERM", "COLUMNS")}
    process = subprocess.Popen(command, env=base | env, stdin=side, stdout=side, stderr=side, cwd=home)
    os.close(side)
    said = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # Linux says EIO when the last writer has gone
            break
        if not part:
            break
        said += part
    os.close(main)
    process.wait()
    return said.decode()


@pytest.mark.parametrize("words", [("cache",), ("devices",), ("doctor",), ("keys", "new", "-o", "k"), ("packge",)])
def test_no_codes_off_a_terminal(words: tuple[str, ...], shell: Call, tmp_path: Path) -> None:
    ran = shell(*words, TERM="xterm")
    assert "\x1b" not in ran.out + ran.err


def test_a_stdout_of_ascii_takes_any_name(shell: Call, tmp_path: Path) -> None:
    folder = tmp_path / "é猫"
    folder.mkdir()
    ran = shell("keys", "new", "-o", folder / "k", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert ran.code == 0, ran.err
    assert "\\xe9\\u732b" in ran.out


@pytest.mark.parametrize(
    ("count", "text"), [(None, "unknown"), (0, "0"), (999, "999"), (3_504_872, "3.5 M"), (300_774_272, "301 M")]
)
def test_counts_for_people(count: int | None, text: str) -> None:
    assert _output.count(count) == text


@pytest.mark.slow
def test_inspect_leaves_nothing_in_the_temporary_folder(shell: Call, tmp_path: Path) -> None:
    """torch's compiler makes a cache folder there as soon as it is imported."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "net.py").write_text("from torch import nn\ndef make():\n    return nn.Linear(3, 2)\n")
    words = ("inspect", tmp_path / "net.py:make", "--input", "input=float32[1,3]", "--quiet")
    assert shell(*words, TMPDIR=str(tmp_path / "tmp")).code == 0
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_quiet_user_gets_the_answer_and_every_warning(capfd: pytest.CaptureFixture[str]) -> None:
    told = [{"code": "few_samples", "message": "5 samples"}, {"code": "int8_hint", "message": "try int8"}]
    quiet = Output(json=False, quiet=True, verbose=False)
    quiet.answer({"warnings": told}, lambda console: None, "a.pte")
    quiet.answer({"ok": False, "why": "a hash differs"}, lambda console: None, "not ok")
    assert capfd.readouterr() == ("a.pte\nnot ok\n", "warning: 5 samples\nwarning: a hash differs\n")
