"""Defaults, recipe and options become one config; every unknown name and wrong value is an error that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.errors import EdgeError, InputError, MissingToolError, UsageError
from edgesdk.recipe import KEYS, PackageConfig, PreprocessOptions, read_recipe, resolve

GIVEN: dict[str, Any] = {"model": "m.pt2", "targets": ("android",)}


def recipe(folder: Path, text: str) -> Path:
    path = folder / "r.toml"
    path.write_text(text)
    return path


def one(given: dict[str, Any], path: Path | None = None) -> PackageConfig:
    (config,) = resolve(given, path)
    return config


def test_model_and_target_alone() -> None:
    config = one(GIVEN)
    assert (config.model, config.target, config.quantize, config.version) == ("m.pt2", "android", ("none",), "1.0.0")
    assert config == PackageConfig(model="m.pt2", target="android"), "defaults.toml and the class agree"
    assert config.folder("net") == Path("dist/net-android")


def test_options_over_recipe_over_defaults(tmp_path: Path) -> None:
    path = recipe(tmp_path, '[model]\nversion = "2.0.0"\nname = "r"\n[lower]\nopset = 17\n')
    config = one({**GIVEN, "name": "o"}, path)
    assert (config.name, config.version, config.opset, config.seed) == ("o", "2.0.0", 17, 0)


def test_a_whole_recipe(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").touch()
    path = recipe(
        tmp_path,
        """
        schema = "edgesdk.recipe/1"
        [model]
        source = "net.pt2"
        license = "MIT"
        [input]
        image = "float32[1..8,3,32,32]"
        "odd name" = "int64[4]"
        [preprocess]
        image = 32
        resize = "letterbox"
        mean = [0.5, 0.4, 0.3]
        std = 1
        labels = "labels.txt"
        [quantize]
        schemes = ["none", "fp16"]
        [lower]
        runtimes = ["executorch", "onnx"]
        backends = ["xnnpack"]
        bytecode = 7
        [gate]
        seed = 7
        [target]
        names = ["linux"]
        output = "out"
        [sign]
        key = "release.key"
        """,
    )
    config = one({}, path)
    assert (config.model, config.labels, config.sign, config.output) == (
        str(tmp_path / "net.pt2"), tmp_path / "labels.txt", tmp_path / "release.key", tmp_path / "out",
    )  # fmt: skip
    assert config.inputs == (
        TensorSpec("image", "float32", (Dim(1, 8), 3, 32, 32)),
        TensorSpec("odd name", "int64", (4,)),
    )
    assert config.preprocess == PreprocessOptions(image=32, resize="letterbox", mean=(0.5, 0.4, 0.3), std=(1.0,))
    assert (config.quantize, config.runtimes, config.seed) == (("none", "fp16"), ("executorch", "onnx"), 7)
    assert config.folder("net") == tmp_path / "out"


@pytest.mark.parametrize(
    ("said", "meant"), [("224", 224), ("480x640", (480, 640)), ([480, 640], (480, 640)), ("32X32", 32)]
)
def test_an_image_has_a_side_or_a_height_and_a_width(said: object, meant: object) -> None:
    assert PreprocessOptions(image=said).image == meant  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ('quantize = "fp16"', "quantize", ("fp16",)),
        ('target = "ios"', "target", "ios"),
        ('model = "torchvision:resnet18"', "model", "torchvision:resnet18"),
        ('input = ["x=float32[2,3]"]', "inputs", (TensorSpec("x", "float32", (2, 3)),)),
        ('input = "x=float32[2,3]"', "inputs", (TensorSpec("x", "float32", (2, 3)),)),
    ],
)
def test_short_forms(text: str, field: str, value: Any, tmp_path: Path) -> None:
    path = recipe(tmp_path, text)
    given = {k: v for k, v in GIVEN.items() if not text.startswith(k.removesuffix("s"))}
    assert getattr(one(given, path), field) == value


def test_paths_start_at_the_recipes_folder_names_stay_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "net.py").touch()
    monkeypatch.chdir(tmp_path)
    path = Path("sub") / recipe(folder, '[model]\nsource = "net.py:make"\narch = "timm:vit_tiny"\n').name
    config = one({"targets": ("linux",)}, path)
    assert (config.model, config.arch) == ("sub/net.py:make", "timm:vit_tiny")
    assert config.root == Path("dist"), "the default place for output is the working directory's"


def test_several_targets_get_a_folder_each() -> None:
    configs = resolve({**GIVEN, "targets": ["android", "ios", "android"], "output": Path("o")})
    assert [config.folder("net") for config in configs] == [Path("o/net-android"), Path("o/net-ios")]


def test_the_config_is_frozen() -> None:
    with pytest.raises(ValidationError):
        one(GIVEN).model = "other"  # type: ignore[misc]


WRONG = {
    "unknown table": ('quantise = "none"', "recipe_unknown_key", "'quantise'", "Did you mean 'quantize'?"),
    "unknown key": ("[lower]\nopsett = 3", "recipe_unknown_key", "'opsett' in [lower]", "Did you mean 'opset'?"),
    "key of another table": ("[gate]\nopset = 3", "recipe_unknown_key", "'opset' in [gate]", "'opset' belongs in [lower]."),
    "broken": ("[model]\n= = [", "recipe_broken", "at line 2", ""),
    "text for a number": ('[lower]\nopset = "x"', "bad_value", "[lower] opset is 'x', but must be a whole number", ""),
    "number in quotes": ('[lower]\nopset = "17"', "bad_value", "[lower] opset is '17', but must be a whole number", ""),
    "truth in quotes": ('[model]\ntrust_pickle = "no"', "bad_value", "[model] trust_pickle is 'no', but must be true or false", ""),
    "number for text": ("[model]\nname = 3", "bad_value", "[model] name is 3, but must be text in quotes", ""),
    "truth for a number": ("[preprocess]\nimage = true", "bad_value", "[preprocess] image is True, but must be a whole number", ""),
    "table for a value": ("[lower]\nopset = {a = 1}", "bad_value", "[lower] opset is", ""),
    "value for a table": ("lower = 3", "recipe_bad_value", "[lower] is 3, but must be a table", ""),
    "empty list": ("[quantize]\nschemes = []", "bad_value", "[quantize] schemes is [], but must name at least one", ""),
    "unknown scheme": ('[quantize]\nschemes = ["static-in8"]', "unknown_scheme", "[quantize] schemes: there is no 'static-in8'", "'static-int8'"),
    "a family's name": ('[quantize]\nschemes = ["int8"]', "unknown_scheme", "there is no 'int8'", "'dynamic-int8', 'qat-int8', 'static-int8' or 'weight-int8'?"),
    "unknown runtime": ('[lower]\nruntimes = ["onx"]', "unknown_runtime", "[lower] runtimes: there is no 'onx'", "'onnx'"),
    "unknown resize": ('[preprocess]\nresize = "shortr"', "unknown_choice", "[preprocess] resize: there is no 'shortr'", "'shorter'"),
    "bad input": ('[input]\nx = "float33[1]"', "bad_input_spec", "unknown dtype 'float33'", "'float32'"),
    "input of numbers": ("[input]\nx = [1, 2]", "recipe_bad_value", "[input] is", ""),
    "negative seed": ("[gate]\nseed = -1", "bad_value", "[gate] seed is -1, but must be greater than or equal to 0", ""),
    "another version": ('schema = "edgesdk.recipe/2"', "recipe_schema", "'edgesdk.recipe/2'", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recipe_names_the_file_and_the_place(name: str, tmp_path: Path) -> None:
    text, code, message, why = WRONG[name]
    with pytest.raises(InputError) as caught:
        resolve(GIVEN, recipe(tmp_path, text))
    assert caught.value.code == code
    assert message in caught.value.message
    assert "r.toml" in caught.value.message
    assert why in caught.value.why
    assert caught.value.fix


def test_an_option_hides_a_wrong_value_of_the_recipe_but_not_an_unknown_name(tmp_path: Path) -> None:
    assert one({**GIVEN, "opset": 17}, recipe(tmp_path, '[lower]\nopset = "x"')).opset == 17
    with pytest.raises(InputError):
        resolve({**GIVEN, "opset": 17}, recipe(tmp_path, "[lower]\nopsett = 17"))


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"\x00" * 10, b"PK\x03\x04"])
def test_a_file_that_is_no_text(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(data)
    with pytest.raises(InputError, match="not valid TOML"):
        resolve(GIVEN, path)


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        resolve(GIVEN, tmp_path)


@pytest.mark.parametrize(
    ("values", "kind", "code"),
    [
        ({"quantize": ("qat-int8",)}, UsageError, "missing_calibration"),
        ({"prune": 0.3}, MissingToolError, "not_in_this_version"),
        ({"max_drop": 1.0}, UsageError, "missing_eval"),
        ({"metric": "top1"}, UsageError, "missing_eval"),
        ({"max_drop": -1.0}, UsageError, "bad_value"),
        ({"opset": 99}, UsageError, "bad_value"),
        ({"name": ""}, UsageError, "bad_value"),
    ],
)
def test_what_one_value_asks_of_another(values: dict[str, Any], kind: type[EdgeError], code: str) -> None:
    with pytest.raises(kind) as caught:
        resolve({**GIVEN, **values})
    assert caught.value.code == code


def test_a_recipe_that_trains_is_refused_not_ignored(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="train"):
        resolve(GIVEN, recipe(tmp_path, "[train]\nepochs = 3\n"))


def test_every_field_can_be_said_in_a_recipe_or_belongs_to_the_run() -> None:
    said = {field for keys in KEYS.values() for field in keys.values()} | {"inputs"}
    fields = (
        set(PackageConfig.model_fields) - {"target", "preprocess"} | set(PreprocessOptions.model_fields) | {"targets"}
    )
    assert fields - said == {"force", "no_cache"}
    assert said - fields == set()


def test_the_defaults_are_a_recipe() -> None:
    from edgesdk.recipe import DEFAULTS

    assert set(read_recipe(DEFAULTS).values) <= set(PackageConfig.model_fields)
