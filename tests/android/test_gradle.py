"""Gradle itself can't run here: what can be checked of its files without it."""

from __future__ import annotations

import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

from edgesdk.targets.android import MIN_SDK
from tests.android.conftest import ROOT

ANDROID = ROOT / "android"
POM = "{http://maven.apache.org/POM/4.0.0}"
FILES = sorted([*ANDROID.glob("*.gradle.kts"), *ANDROID.glob("*/build.gradle.kts")])


def catalogue() -> dict[str, dict[str, object]]:
    return tomllib.loads((ANDROID / "gradle/libs.versions.toml").read_text())


def test_versions_are_those_of_the_tests() -> None:
    properties = ET.parse(ANDROID / "pom.xml").getroot().find(f"{POM}properties")
    assert properties is not None
    maven = {(p.tag.removeprefix(POM)).removesuffix(".version"): p.text for p in properties}
    versions = catalogue()["versions"]
    for name in ("tink", "jspecify", "fbjni"):
        assert versions[name] == maven[name], name


def test_every_alias_is_in_the_catalogue() -> None:
    known = catalogue()
    for file in FILES:
        for plugin in re.findall(r"libs\.plugins\.([\w.]+)\)", file.read_text()):
            assert plugin.replace(".", "-") in known["plugins"], f"{file.name}: {plugin}"
        for library in re.findall(r"\(libs\.(?!plugins)([\w.]+)\)", file.read_text()):
            assert library.replace(".", "-") in known["libraries"], f"{file.name}: {library}"


def test_modules_exist_and_support_the_same_devices() -> None:
    settings = (ANDROID / "settings.gradle.kts").read_text()
    for module in re.findall(r'":(\w+)"', settings.split("include(")[1].split(")")[0]):
        moved = re.search(rf'project\(":{module}"\)\.projectDir = file\("([^"]+)"\)', settings)
        folder = ANDROID / (moved[1] if moved else module)
        text = (folder / "build.gradle.kts").read_text()
        assert f"minSdk = {MIN_SDK}" in text
        assert (folder / "src/main/AndroidManifest.xml").is_file()
        for path in re.findall(r'"((?:\.\./|src/)[^"]+)"', text):
            assert (folder / path).exists() or "assets" in path, f"{folder.name}: {path}"


def test_braces_and_parentheses_close() -> None:
    for file in FILES:
        text = re.sub(r'//.*|"(?:\\.|[^"\\])*"', "", file.read_text())
        assert all(text.count(a) == text.count(b) for a, b in ("{}", "()")), file.name


def test_no_wrapper_is_there() -> None:
    assert not list(Path(ANDROID).glob("gradlew*"))
