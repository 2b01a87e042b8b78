"""Identifiers and literals from free text: valid in their language, distinct when the names are."""

from __future__ import annotations

import ast
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgesdk.targets import _names

HOSTILE = [
    "net", "my net", "my_net", "my-net", "my.net", "MY_NET", "3d-pose", "class", "fun", "self", "Swift", "café", "模型", "🦊",
    "a'b", 'a"b', "a$b", "a`b", "a]]>b", "a<b>&c", "a\nb", "a\u202eb", "../../etc/passwd", "..", ".hidden", "con~", "a" * 300,
    "${project.version}", "a\udcffb", " ", "_", "-", "model",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_identifiers_are_valid_in_their_language(name: str) -> None:
    for word in (_names.java_identifier(name), _names.swift_identifier(name), _names.swift_type(name)):
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word)
        assert len(word) < 100
    assert _names.java_identifier(name) not in {"class", "fun", "_", "int"}
    assert _names.swift_identifier(name) not in {"self", "class", "Swift", "Foundation"}


@pytest.mark.parametrize(
    "made", [_names.java_identifier, _names.swift_identifier, _names.maven_artifact, _names.maven_version]
)
def test_names_that_differ_stay_apart_after_sanitising(made) -> None:  # type: ignore[no-untyped-def]
    found = [made(name) for name in HOSTILE]
    assert len(set(found)) == len(HOSTILE)


def test_a_valid_name_is_kept_as_it_is() -> None:
    assert _names.java_identifier("mobilenet_v2") == "mobilenet_v2"
    assert _names.swift_identifier("mobilenet_v2") == "mobilenet_v2"
    assert _names.maven_artifact("mobilenet-v2.1") == "mobilenet-v2.1"
    assert _names.maven_version("1.0.0-rc1") == "1.0.0-rc1"
    assert _names.asset_name("mobilenet.edge") == "mobilenet.edge"


def test_a_swift_type_never_has_its_modules_name() -> None:
    assert _names.swift_type("my_net") == "MyNetModel"
    assert all(_names.swift_type(name) != _names.swift_identifier(name) for name in HOSTILE)


@pytest.mark.parametrize(
    "version",
    ["1.0 beta", "1.0/2", "[1.0,2.0)", "LATEST", "latest.release", "RELEASE", "1.+", "", "  ", "1:2", "${v}", "1\n2"],
)
def test_versions_that_maven_or_gradle_would_not_take_as_fixed_ones_are_changed(version: str) -> None:
    made = _names.maven_version(version)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*[A-Za-z0-9]", made)
    assert made.lower() not in {"latest", "release"}
    assert not made.startswith("latest.")
    assert not made.endswith("+")
    assert made != version


@pytest.mark.parametrize("name", HOSTILE)
def test_assets_have_names_that_aapt_keeps(name: str) -> None:
    made = _names.asset_name(f"{name}.edge")
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*\.edge", made), made
    assert "~" not in made


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_literals_say_the_text_and_nothing_else(text: str) -> None:
    """Java's, Kotlin's and Swift's escapes are read back here; a raw quote, line end or ``$`` must not be left over."""
    java = _names.java_string(text)
    assert json.loads(java) == text  # without \\u{} Java's escapes are JSON's
    kotlin = _names.kotlin_string(text)
    assert not re.search(r"(?<!\\)(\\\\)*\$", kotlin)
    assert json.loads(kotlin.replace("\\$", "$")) == text
    swift = _names.swift_string(text)
    assert json.loads(re.sub(r"(?<!\\)((?:\\\\)*)\\u\{([0-9A-F]+)\}", _as_json, swift)) == text
    for literal in (java, kotlin, swift):
        assert "\n" not in literal
        assert "\r" not in literal
        assert len(re.findall(r'(?<!\\)(?:\\\\)*"', literal)) == 2 if '"' not in text else True


def _as_json(match: re.Match[str]) -> str:
    return match[1] + json.dumps(chr(int(match[2], 16)))[1:-1]


def test_python_literals_survive_quotes_and_line_ends() -> None:
    from edgesdk.targets._render import _environment

    for name in HOSTILE:
        literal = _environment().filters["python"](name)
        assert ast.literal_eval(literal) == _names.clean(name)
