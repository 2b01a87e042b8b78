"""``file.py:factory``: the user's code runs where it lies, and its faults are told with its own lines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from edgesdk.artifacts import Model, parse_input
from edgesdk.errors import InputError, UsageError
from edgesdk.importing import ImportOptions, import_model, import_module, locate

CODE = """
import argparse, pathlib, sys
import torch
from torch import nn
import width_of_it

print("this must not reach stdout")

class Net(nn.Linear):
    def __init__(self):
        super().__init__(3, width_of_it.WIDTH)

class Sized(nn.Module):
    def __init__(self, width, *, depth, name="x"):
        super().__init__()

class Zoo:
    @staticmethod
    def tiny():
        return Net()

def trained():
    net = Net()
    net.load_state_dict(torch.load(pathlib.Path(__file__).with_name("net.pth"), weights_only=True))
    return net

def late():
    import also_beside
    return also_beside.make()

def divides():
    return helper(0)

def helper(by):
    return 1 / by

def in_library():
    return torch.zeros(2) @ torch.zeros(3)

def needs():
    import a_package_nobody_has

def leaves():
    sys.exit(3)

def pair():
    return Net(), 1

def gives_class():
    return Net

number = 3
ready = Net()
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user code")
    (folder / "user_net.py").write_text(CODE)
    (folder / "width_of_it.py").write_text("WIDTH = 5\n")
    (folder / "also_beside.py").write_text("from torch import nn\ndef make():\n    return nn.Linear(3, 2)\n")
    weights = {"weight": torch.full((5, 3), 0.25), "bias": torch.arange(5.0)}
    torch.save(weights, folder / "net.pth")
    return folder / "user_net.py"


def load(text: str, spec: str = "input=float32[1,3]") -> Model:
    options = ImportOptions(inputs=(parse_input(spec),))
    return import_model(locate(text, options), options)


@pytest.mark.parametrize("factory", ["Net", "Zoo.tiny", "ready", "late", "trained"])
def test_functions_classes_and_modules_are_factories(code: Path, factory: str) -> None:
    model = load(f"{code}:{factory}")
    assert model.program is not None
    assert model.source.name == factory.rpartition(".")[2]
    assert model.source.sha256 and not model.source.pickle


def test_a_factory_may_load_weights_beside_it(code: Path) -> None:
    model = load(f"{code}:trained")
    assert model.program is not None
    found = torch.utils._pytree.tree_leaves(model.program.module()(torch.ones(1, 3)))[0]
    torch.testing.assert_close(found, torch.tensor([[0.75, 1.75, 2.75, 3.75, 4.75]]))


def test_random_weights_are_the_same_every_time(code: Path) -> None:
    first, second = load(f"{code}:Net").program, load(f"{code}:Net").program
    assert first is not None and second is not None
    for one, other in zip(first.state_dict.values(), second.state_dict.values(), strict=True):
        assert torch.equal(one, other)


def test_the_users_prints_go_to_stderr_and_nothing_is_written_beside(
    code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(f"{code}:Net")
    said = capsys.readouterr()
    assert said.out == "" and "this must not reach stdout" in said.err
    assert sorted(path.name for path in code.parent.iterdir()) == [
        "also_beside.py", "net.pth", "user_net.py", "width_of_it.py"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("divides", r"raised ZeroDivisionError: division by zero \(.*user_net\.py, line 35\)"),
        ("in_library", r"raised RuntimeError: .*user_net\.py, line 38\)"),
        ("needs", r"needs the module 'a_package_nobody_has'.*line 41"),
        ("leaves", r"ended the program \(exit 3\).*line 44"),
        ("pair", "returned a tuple, not an nn.Module"),
        ("gives_class", "returned a type, not an nn.Module"),
        ("number", "is a int, not a function or class"),
        ("Sized", "needs arguments: width, depth"),
        ("Nil", "has no 'Nil'"),
        ("Net.nothing", r"has no 'Net\.nothing'"),
    ],
)
def test_a_faulty_factory_is_told_with_the_users_line(code: Path, factory: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        load(f"{code}:{factory}")
    assert caught.value.why and caught.value.fix


def test_arguments_that_are_needed_are_proposed(code: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(f"{code}:Sized")
    assert "return Sized(width=…, depth=…)" in caught.value.fix


def test_a_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(InputError, match=r"SyntaxError.*broken\.py, line 2"):
        load(f"{tmp_path}/broken.py:f")


def test_two_models_with_files_of_the_same_name_beside_them_stay_apart(tmp_path: Path) -> None:
    for folder, width in (("one", 2), ("two", 4)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same_name.py").write_text(
            "from torch import nn\nimport same_sibling\ndef make():\n    return nn.Linear(3, same_sibling.WIDTH)\n"
        )
        (tmp_path / folder / "same_sibling.py").write_text(f"WIDTH = {width}\n")
    assert load(f"{tmp_path}/one/same_name.py:make").signature.outputs[0].shape == (1, 2)
    assert load(f"{tmp_path}/two/same_name.py:make").signature.outputs[0].shape == (1, 4)


def test_a_file_called_like_a_library_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("from torch import nn\ndef make():\n    return nn.Linear(3, 2)\n")
    assert load(f"{tmp_path}/random.py:make").signature.outputs[0].shape == (1, 2)
    import random

    assert random.random() < 1
    assert sys.path[0] != str(tmp_path)


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "edited_net.py"
    for width in (2, 3):
        path.write_text(f"from torch import nn\ndef make():\n    return nn.Linear(3, {width})\n")
        assert load(f"{path}:make").signature.outputs[0].shape == (1, width)


def test_an_importable_package_needs_no_path() -> None:
    located = locate("torch.nn:Identity")
    assert (located.kind, located.source.name, located.path) == ("python_file", "Identity", None)
    with pytest.raises(InputError, match="no Python package 'nopackage'"):
        load("nopackage.nets:Net")


def test_python_source_without_a_factory_lists_what_it_defines(code: Path) -> None:
    with pytest.raises(InputError, match="which function or class") as caught:
        locate(str(code))
    assert "Net" in caught.value.why and caught.value.fix.startswith(f"Write {code}:")


def test_a_module_in_memory_is_exported() -> None:
    model = import_module(nn.Linear(3, 2), ImportOptions(inputs=(parse_input("input=float32[1,3]"),)), name="mine")
    assert (model.source.name, model.source.format, model.source.sha256) == ("mine", "module", None)


def test_a_missing_file_is_usage_or_input_but_never_a_crash() -> None:
    with pytest.raises((InputError, UsageError), match=r"nowhere\.py doesn't exist"):
        locate("nowhere.py:Net")


def test_an_exception_whose_text_fails_too_is_still_the_models_fault(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "class Odd(Exception):\n    def __str__(self):\n        return 1 / 0\ndef net():\n    raise Odd\n",
        encoding="utf-8",
    )
    with pytest.raises(InputError, match="raised Odd: no message") as caught:
        import_model(locate(f"{file}:net"), ImportOptions())
    assert caught.value.code == "user_code_failed"


TIMM = """
import timm

def make():
    return timm.create_model("test_vit", num_classes=4)

def gray():
    return timm.create_model("test_vit", num_classes=4, in_chans=1, img_size=96)
"""


@pytest.mark.parametrize(("factory", "size"), [("make", (1, 3, 160, 160)), ("gray", (1, 1, 96, 96))])
def test_a_timm_model_of_ones_own_factory_brings_timms_size_and_preprocessing(
    tmp_path: Path, factory: str, size: tuple[int, ...]
) -> None:
    """As ``timm:NAME`` does; what ``in_chans`` and ``img_size`` changed counts, not the published weights' sizes."""
    (tmp_path / "own.py").write_text(TIMM)
    model = import_model(locate(f"{tmp_path}/own.py:{factory}"))
    assert model.signature.inputs[0].shape == size
    assert model.preprocess is not None and model.preprocess.mean == (0.5,) * size[1]
    assert model.preprocess.crop is not None and model.preprocess.crop.size == size[2:]
    assert model.labels is None and model.license is None


def test_a_fault_of_the_users_that_is_no_exception_is_told_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("class Stop(BaseException):\n    pass\n\ndef make():\n    raise Stop('enough')\n")
    with pytest.raises(InputError, match=r"raised Stop: enough .*line 5"):
        import_model(locate(f"{tmp_path}/own.py:make"))
