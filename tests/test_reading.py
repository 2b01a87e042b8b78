"""Files beside the model (labels, recipe, key, report): whatever stands under the name, the answer comes, and is an error in words."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edgesdk.bundle import signing
from edgesdk.errors import InputError
from edgesdk.feeding import read_labels
from edgesdk.reading import parse_json, read_bytes
from edgesdk.recipe import read_recipe

READERS: list[Callable[[Path], object]] = [read_labels, read_recipe, signing.load_private, signing.load_public]


@pytest.fixture(params=["pipe", "device", "folder", "loop", "dangling"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Something that is no file: reading it as one would wait for ever, never end, or fail."""
    path = tmp_path / "odd"
    make: dict[str, Callable[[], None]] = {
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "folder": path.mkdir,
        "loop": lambda: path.symlink_to("odd"),
        "dangling": lambda: path.symlink_to("nowhere"),
    }
    make[request.param]()
    return path


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_what_is_no_file_is_refused_at_once(read: Callable[[Path], object], odd: Path) -> None:
    with pytest.raises(InputError, match="odd"):
        read(odd)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(1 << 20))
    assert read_bytes(path, 1 << 20) == bytes(1 << 20)
    path.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        read_bytes(path, 1 << 20)


def test_deep_json_is_a_value_error() -> None:
    assert parse_json(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="too deeply"):
        parse_json("[" * 100_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "too deeply"),
        ('["\\ud800"]', "Label 1"),
        ("cat\nd\x07g\n", "Label 2"),
        ('["cat", "d\\no\\ng"]', "Label 2"),
        ("x" * 2000, "2000 characters"),
        ("a\n" * 200_001, "at most 200000"),
    ],
    ids=["deep", "surrogate", "control", "line break", "long", "many"],
)
def test_labels_that_no_manifest_holds_are_refused_by_number(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(text)
    with pytest.raises(InputError, match="labels.txt") as caught:
        read_labels(path)
    assert caught.value.code == "bad_labels"
    assert said in caught.value.why


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "\0", "#" * (17 << 20)], ids=["deep", "zeros", "large"])
def test_a_recipe_that_is_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(text)
    with pytest.raises(InputError, match="r.toml") as caught:
        read_recipe(path)
    assert caught.value.code == "recipe_broken"
