"""Help and version: complete, light, and the same whether there is a terminal or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edgesdk._version import __version__
from edgesdk.cli._verbs import LATER, VERBS

from .conftest import Call, environment


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_the_page_lists_every_verb(words: tuple[str, ...], call: Call) -> None:
    ran = call(*words)
    assert (ran.code, ran.err) == (0, "")
    page = ran.out.split("Verbs:")[1].split("Every verb takes:")[0]
    listed = [line.split()[0] for line in page.splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(VERBS)
    # What can't be used yet stands by itself, after what can.
    assert [line.split()[0] for line in page.split("Not in this version:")[1].split("\n") if line] == [
        name for name in VERBS if name in LATER
    ]


@pytest.mark.parametrize("verb", [*VERBS, "keys new"])
def test_every_verb_answers_help_and_has_the_common_options(verb: str, call: Call) -> None:
    ran = call(*verb.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
    if verb != "keys":
        assert all(option in ran.out for option in ("--json", "--quiet", "--verbose", "--help"))


PACKAGE_OPTIONS = """
    --runtime --backend --quantize --prune --calibration --eval --max-drop --input --image --resize --mean --std
    --interpolation --labels --arch --trust-pickle --sign --name --version --license --output --recipe --dry-run --no-cache
    --jobs --target --force --require-faster --allow-slower --opset --ort-format --bytecode
"""


def test_package_has_every_promised_option(call: Call) -> None:
    shown = call("package", "--help").out.split()
    assert [option for option in PACKAGE_OPTIONS.split() if option not in shown] == []


def test_version(call: Call) -> None:
    assert call("--version").out == f"edgesdk {__version__}\n"


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(word: str, tmp_path: Path) -> None:
    """Not even the parser: Typer alone takes longer than the rest of the start."""
    code = (
        "import sys; from edgesdk.cli import main; main([sys.argv[1]]); "
        "print([m for m in ('torch', 'typer', 'rich', 'pydantic', 'numpy') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, word], capture_output=True, text=True, check=True, env=environment(tmp_path)
    )
    assert done.stderr.strip() == "[]"


def test_a_verb_s_help_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from edgesdk.cli import main\n"
        "for verb in sys.argv[1:]: main([verb, '--help'])\n"
        "print([m for m in ('torch', 'onnx', 'executorch', 'onnxruntime') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *VERBS], capture_output=True, text=True, check=True, env=environment(tmp_path)
    )
    assert done.stderr.strip() == "[]"


def test_python_m_edgesdk(shell: Call) -> None:
    assert shell("--version").out == f"edgesdk {__version__}\n"


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """``edgesdk --help | head -1``."""
    for words in (["--help"], ["doctor"]):
        command = [sys.executable, "-m", "edgesdk", *words]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in (0, 141)
        process.stderr.close()
