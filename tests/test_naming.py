"""A name becomes a file's name in every place that edgesdk writes: it may lead nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgesdk.errors import InputError, UsageError
from edgesdk.naming import name_problem, safe_name
from edgesdk.recipe import resolve

BAD = ["../esc", "a/b", "/etc/x", "a\\b", ".", "..", " ", "a\nb", "a\x00b", "a\x7f", "a\udcff", "n" * 201, "é" * 101]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_can_be_no_file_is_refused_before_any_work(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--name is"):
        resolve({"model": "m.pt2", "targets": ("linux",), "name": name})


def test_a_recipe_is_held_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('[model]\nsource = "m.pt2"\nname = "../esc"\n[target]\nnames = "linux"\n')
    with pytest.raises(InputError, match=r"\[model\] name"):
        resolve({}, path)


@pytest.mark.parametrize("name", ["digits [v2]", "模型", "-rf", ".hidden", "a\"b'c", "<b>", "$HOME", "n" * 200])
def test_odd_names_that_can_be_files_are_kept(name: str) -> None:
    assert name_problem(name) is None
    assert safe_name(name) == name


@pytest.mark.parametrize("stem", [*BAD, ""])
def test_what_a_models_own_name_can_not_give_is_replaced(stem: str) -> None:
    assert name_problem(safe_name(stem)) is None


@pytest.mark.parametrize("given", [{"version": "1\n2"}, {"license": "a\nb"}, {"license": "x" * 2000}])
def test_version_and_licence_are_one_line(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"--{next(iter(given))}") as caught:
        resolve({"model": "m.pt2", "targets": ("linux",), **given})
    assert len(caught.value.message) < 300, "a long value is not repeated as a whole"


@pytest.mark.parametrize("given", [{"mean": "nan"}, {"mean": "inf,0,0"}, {"std": "inf"}, {"std": "nan"}])
def test_numbers_that_can_not_be_computed_with(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"--{next(iter(given))}"):
        resolve({"model": "m.pt2", "targets": ("linux",), **given})
