"""Completion, asked for as bash does."""

from __future__ import annotations

import pytest

from edgesdk.cli._verbs import VERBS

from .conftest import Call


def complete(shell: Call, line: str) -> list[str]:
    """What bash would offer for the last word of the line."""
    words = line.split(" ")
    ran = shell(_EDGESDK_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert ran.code == 0, ran.err
    return ran.out.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("edgesdk pa", ["package"]),
        ("edgesdk keys n", ["new"]),
        ("edgesdk package --qu", ["--quantize", "--quiet"]),
        ("edgesdk package --quantize st", ["static-int8"]),
        ("edgesdk package m.pt2 --target a", ["android"]),
        ("edgesdk package m.pt2 --runtime e", ["executorch"]),
        ("edgesdk package m.pt2 --backend c", ["coreml"]),
        ("edgesdk package m.pt2 --resize s", ["shorter", "stretch"]),
        ("edgesdk lower m.pt2 --runtime o", ["onnx"]),
        ("edgesdk cache c", ["clean"]),
    ],
)
def test_bash_is_offered(line: str, offered: list[str], shell: Call) -> None:
    assert complete(shell, line) == offered


def test_all_verbs_are_offered(shell: Call) -> None:
    assert complete(shell, "edgesdk ") == list(VERBS)


def test_the_script_for_the_shell(shell: Call) -> None:
    ran = shell("--show-completion", "bash")
    assert ran.code == 0
    assert "complete -o default -F _edgesdk_completion edgesdk" in ran.out
