"""Names and labels that look like code, through the whole run: every emitted file stays what it is."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

NAME = "q\"'`$(touch pwned)${HOME}<script>x"
LABELS = ["</script><script>alert(1)</script>", '"); evil("', "$(touch pwned)", "back\\slash \\\\", "]]> --> {{ 7*7 }}"]
LICENSE = 'MIT" </name><evil/> ${user.home} \\'
NET = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""


class Page(HTMLParser):
    """Tags of a page, and the text of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.script = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.script += data


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "net.py").write_text(NET)
    (folder / "labels.json").write_text(json.dumps(LABELS))
    words: list[Any] = [
        "package", "net.py:make", "--input", "input=float32[1,3,8,8]", "--image", "8", "--mean", "0.5,0.5,0.5", "--std",
        "0.5,0.5,0.5", "--labels", "labels.json", "--license", LICENSE, "--name", NAME, "--quiet",
        *(word for target in ("android", "ios", "linux") for word in ("--target", target)), "-o", "out",
    ]  # fmt: skip
    env = os.environ | {"HOME": str(folder), "EDGESDK_CACHE_DIR": str(folder / "cache")}
    ran = subprocess.run(
        [sys.executable, "-m", "edgesdk", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return folder


def files(folder: Path, *suffixes: str) -> list[Path]:
    found = [path for path in (folder / "out").rglob("*") if path.suffix in suffixes and path.is_file()]
    assert found
    return found


@pytest.mark.slow
def test_pages_hold_no_script_of_the_names(made: Path) -> None:
    for path in files(made, ".html"):
        page = Page()
        page.feed(path.read_text())
        assert page.tags.count("script") == 1 and not page.handlers and "evil" not in page.tags
        assert json.loads(page.script)["name"] == NAME


@pytest.mark.slow
def test_xml_and_json_read_back_what_was_said(made: Path) -> None:
    for path in files(made, ".pom", ".xml"):
        tree = ET.fromstring(path.read_bytes())
        assert not list(tree.iter("evil"))
        assert "${" not in ET.tostring(tree, encoding="unicode")
    for path in files(made, ".json"):
        document = json.loads(path.read_text())
        assert (document["name"], document["license"]) == (NAME, LICENSE)
    (bundle, *_) = files(made, ".edge")
    import edgesdk

    with edgesdk.load(bundle) as session:
        assert list(session.manifest.labels or ()) == LABELS and session.manifest.name == NAME


@pytest.mark.slow
def test_code_has_the_names_only_inside_literals_and_comments(made: Path) -> None:
    for path in files(made, ".kts", ".swift"):
        code = re.sub(r"(?m)^\s*//.*$", "", path.read_text())
        code = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', code)
        assert "touch pwned" not in code and "<script" not in code and "\\" not in code and "`" not in code, path
        literals = re.findall(r'"(?:[^"\\\n]|\\.)*"', path.read_text())
        for text in literals:
            assert not re.search(r"(?<!\\)\$[({]", text) or path.suffix == ".swift", (
                path,
                text,
            )  # Kotlin interpolates $
            assert not re.search(r"(?<!\\)(?:\\\\)*\\\(", text), (path, text)  # Swift interpolates \(
    for path in files(made, ".py"):
        ast.parse(path.read_text())


@pytest.mark.slow
def test_shell_lines_to_paste_run_nothing_of_the_names(made: Path) -> None:
    seen = 0
    for path in files(made, ".md"):
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(), re.DOTALL):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                assert words[:2] == ["edgesdk", "verify"] and words[2].endswith(".edge")
                # What bash itself makes of the line: the same words, and no file by the name that the names ask for.
                ran = subprocess.run(
                    ["bash", "-c", f"edgesdk() {{ printf '%s\\0' edgesdk \"$@\"; }}; {line}"],
                    cwd=made, capture_output=True, text=True, check=True,
                )  # fmt: skip
                assert ran.stdout.split("\0")[:-1] == words
                seen += 1
    assert seen >= 3
    assert not list(made.rglob("pwned"))
