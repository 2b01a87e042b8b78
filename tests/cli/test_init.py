"""The recipe that ``init`` writes: it loads back, says what was asked, and is the same every time."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.recipe import KEYS, resolve
from edgesdk.recipe_text import quoted, recipe_text

from .conftest import Call

INPUTS = (TensorSpec("left", "float32", (Dim(1, 8), 3)), TensorSpec('odd "name"\t é', "int64", ()))


def test_it_loads_back(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(recipe_text("torchvision:resnet18", "timm:x", True, INPUTS, ("linux", "ios")), encoding="utf-8")
    first, second = resolve({}, path)
    assert (first.model, first.arch, first.trust_pickle, first.inputs) == (
        "torchvision:resnet18",
        "timm:x",
        True,
        INPUTS,
    )
    assert (first.target, second.target) == ("linux", "ios")


def test_what_is_commented_is_right_too(tmp_path: Path) -> None:
    """Every example line, uncommented, is a key that the recipe knows and a value that it takes."""
    text = recipe_text("m.pt2", None, False, (), ("android",))
    lines = [
        line[2:] if line.startswith("# ") and " = " in line and line[2:].split(" = ")[0].isidentifier() else line
        for line in text.splitlines()
    ]
    document = tomllib.loads("\n".join(lines))
    asked = {"train", "compress", "gate", "quantize"}  # hold keys of later versions
    shown = {(table, key) for table, keys in document.items() if isinstance(keys, dict) for key in keys}
    known = {(table, key) for table, keys in KEYS.items() for key in keys}
    assert shown - {("input", "input")} <= known
    path = tmp_path / "r.toml"
    kept = {table: keys for table, keys in document.items() if table not in asked}
    path.write_text("\n".join(_dump(table, keys) for table, keys in kept.items() if isinstance(keys, dict)))
    (config,) = resolve({}, path)
    assert (config.opset, config.bytecode, config.preprocess and config.preprocess.image) == (18, 8, 224)


def _dump(table: str, keys: dict[str, object]) -> str:
    import json

    return f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
def test_any_text_survives_quoting(text: str) -> None:
    assert tomllib.loads(f"x = {quoted(text)}")["x"] == text


def test_with_inputs_given_nothing_is_read(call: Call) -> None:
    Path("net.py").write_text("raise SystemExit('must not run')\n")
    words = ("init", "net.py:make", "--input", "x=float32[1..4,8]", "--target", "linux")
    ran = call(*words, "--json")
    assert ran.code == 0, ran.err
    text = Path(ran.document["output"]).read_text()
    assert 'source = "net.py:make"' in text and '"x" = "float32[1..4,8]"' in text
    again = call(*words, "-o", "second.toml", "--json")
    assert Path(again.document["output"]).read_text() == text


def test_the_model_is_found_from_the_recipes_folder(call: Call) -> None:
    Path("net.py").write_text("")
    Path("recipes").mkdir()
    assert call("init", "net.py:make", "--input", "x=float32[1]", "-o", "recipes/r.toml").code == 0
    (config,) = resolve({}, Path("recipes/r.toml"))
    assert Path(config.model.split(":")[0]).resolve() == Path("net.py").resolve()


def test_a_recipe_is_not_written_over(call: Call) -> None:
    Path("net.py").write_text("")
    Path("r.toml").write_text("mine")
    words = ("init", "net.py:make", "--input", "x=float32[1]", "-o", "r.toml")
    assert call(*words).code == 2
    assert Path("r.toml").read_text() == "mine"
    assert call(*words, "--force").code == 0
    assert "edgesdk.recipe/1" in Path("r.toml").read_text()


def test_a_folder_that_is_not_there(call: Call) -> None:
    Path("net.py").write_text("")
    ran = call("init", "net.py:make", "--input", "x=float32[1]", "-o", "gone/r.toml", "--json")
    assert (ran.code, ran.document["code"]) == (3, "not_writable")


def test_a_missing_model(call: Call) -> None:
    ran = call("init", "nowhere.pt2")
    assert ran.code == 3 and "nowhere.pt2" in ran.err
    assert list(Path.cwd().iterdir()) == []


def test_a_dry_run_of_a_finished_file_says_what_the_run_would(call: Call) -> None:
    Path("done.pte").write_bytes(b"\x30\x00\x00\x00ET12" + bytes(64))
    ran = call("package", "done.pte", "--target", "android", "--dry-run", "--json")
    assert (ran.code, ran.document["code"]) == (3, "not_a_source")
    assert "edgesdk bundle done.pte --against MODEL" in ran.document["fix"]


def test_weights_alone_need_their_network_and_init_and_dry_run_say_so(call: Call) -> None:
    import torch

    torch.save(torch.nn.Linear(3, 4).state_dict(), "w.pth")
    ran = call("init", "w.pth", "--json")
    (warning,) = ran.document["warnings"]
    assert ran.code == 0 and warning["code"] == "arch_missing" and "--arch file.py:FACTORY" in warning["message"]
    assert "TO BE FILLED IN" in Path("w.toml").read_text()
    ran = call("init", "w.pth", "--force")
    assert (
        "warning: w.pth holds weights" in ran.out and "next  fill in arch and [input], then edgesdk package" in ran.out
    )
    for words in (("--recipe", "w.toml"), ("w.pth", "--target", "linux")):
        ran = call("package", *words, "--dry-run", "--json")
        assert (ran.code, ran.document["code"]) == (3, "arch_missing")
    assert call("init", "w.pth", "--arch", "torchvision:resnet18", "--force", "--json").document["warnings"] == []
    assert "TO BE FILLED IN" not in Path("w.toml").read_text()
    assert call("package", "--recipe", "w.toml", "--dry-run").code == 0
