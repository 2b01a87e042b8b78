"""Whole pickled modules: refused with a safer way, executed only on request, classes looked for where the user says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edgesdk.artifacts import Model, parse_input
from edgesdk.errors import InputError
from edgesdk.importing import ImportOptions, import_model, locate

INPUT = (parse_input("image=float32[1,3]"),)
SCRIPT = """
import sys, torch
from torch import nn

class Pickled(nn.Module):
    def __init__(self, bias=0.0):
        super().__init__()
        self.head = nn.Linear(3, 2)
        nn.init.constant_(self.head.weight, 0.5)
        nn.init.constant_(self.head.bias, bias)
    def forward(self, image):
        return self.head(image)

if __name__ == "__main__":
    torch.save(Pickled(), sys.argv[1] + "/alone.pt")
    torch.save(Pickled(), sys.argv[1] + "/legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"epoch": 1, "model": Pickled(), "ema": None}, sys.argv[1] + "/inside.pt")
    torch.save({"model": Pickled(), "ema": Pickled(4.0)}, sys.argv[1] + "/two.pt")
    torch.save(nn.DataParallel(Pickled()), sys.argv[1] + "/parallel.pt")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that another process saved from its ``__main__``."""
    folder = tmp_path_factory.mktemp("pickled")
    (folder / "trainer.py").write_text(SCRIPT)
    subprocess.run([sys.executable, folder / "trainer.py", folder], check=True)
    return folder


def load(path: Path | str, **options: Any) -> Model:
    chosen = ImportOptions(inputs=INPUT, **options)
    return import_model(locate(str(path), chosen), chosen)


def answer(model: Model) -> float:
    assert model.program is not None
    found: torch.Tensor = torch.utils._pytree.tree_leaves(model.program.module()(torch.ones(1, 3)))[0]
    return float(found.detach()[0, 0])


@pytest.mark.parametrize("name", ["alone", "legacy", "inside", "parallel"])
@pytest.mark.slow
def test_pitfall_i_01_a_pickled_module_is_refused_with_its_class_and_a_safer_way(saved: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        load(saved / f"{name}.pt")
    error = caught.value
    assert error.code == "untrusted_pickle" and error.exit == 3
    assert "Pickled" in error.message or name == "parallel" and "DataParallel" in error.message
    assert "--trust-pickle" in error.fix and "safetensors" in error.fix and "state_dict" in error.fix


@pytest.mark.parametrize("name", ["alone", "legacy", "inside", "parallel"])
def test_pitfall_i_02_a_class_of_another_scripts_main_is_found_where_arch_says(saved: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"needs the class __main__\.Pickled") as caught:
        load(saved / f"{name}.pt", trust_pickle=True)
    assert caught.value.code == "class_not_found" and "--arch" in caught.value.fix
    for arch in (f"{saved}/trainer.py", f"{saved}/trainer.py:Pickled"):
        model = load(saved / f"{name}.pt", trust_pickle=True, arch=arch)
        assert answer(model) == pytest.approx(1.5)
    assert model.source.pickle
    assert any(warn.code == "pickle_executed" for warn in model.warnings)


def test_pitfall_i_02_a_file_without_the_class_is_told(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(InputError, match=r"__main__\.Pickled"):
        load(saved / "alone.pt", trust_pickle=True, arch=f"{tmp_path}/empty.py")
    with pytest.raises(InputError, match=r"gone\.py doesn't exist"):
        load(saved / "alone.pt", trust_pickle=True, arch=f"{tmp_path}/gone.py")


@pytest.mark.slow
def test_pitfall_i_02_a_class_of_a_lost_package_is_named(tmp_path: Path) -> None:
    package = tmp_path / "lost_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(
        "from torch import nn\nclass Tiny(nn.Linear):\n    def forward(self, image):\n        return super().forward(image)\n"
    )
    code = "import torch, lost_package.nets as n; torch.save(n.Tiny(3, 2), 'tiny.pt')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    with pytest.raises(InputError, match=r"lost_package\.nets\.Tiny"):
        load(tmp_path / "tiny.pt", trust_pickle=True)
    model = load(tmp_path / "tiny.pt", trust_pickle=True, arch=f"{package}/nets.py")
    assert model.signature.outputs[0].shape == (1, 2)


def test_two_modules_in_one_file_are_a_question(saved: Path) -> None:
    options = {"trust_pickle": True, "arch": f"{saved}/trainer.py"}
    with pytest.raises(InputError, match="2 modules: model, ema"):
        load(saved / "two.pt", **options)
    assert answer(load(f"{saved}/two.pt#ema", **options)) == pytest.approx(5.5)


def test_a_module_of_torchs_own_classes_needs_no_code(tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(3, 2)), tmp_path / "m.pt")
    chosen = ImportOptions(inputs=(parse_input("input=float32[1,3]"),), trust_pickle=True)
    assert import_model(locate(str(tmp_path / "m.pt")), chosen).source.pickle


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.marker),))


def test_pitfall_s_01_an_attack_is_called_one_and_trust_is_not_offered(tmp_path: Path) -> None:
    torch.save(Evil(tmp_path / "ran"), tmp_path / "evil.pt")
    with pytest.raises(InputError, match="mkdir") as caught:
        load(tmp_path / "evil.pt")
    assert caught.value.code == "unsafe_pickle" and "--trust-pickle" not in caught.value.fix
    assert not (tmp_path / "ran").exists()


def test_a_trusted_pickle_that_is_no_module_is_told(tmp_path: Path) -> None:
    torch.save(Evil(tmp_path / "ran"), tmp_path / "evil.pt")
    with pytest.raises(InputError, match="NoneType without an nn.Module"):
        load(tmp_path / "evil.pt", trust_pickle=True)


def test_a_trusted_file_that_was_cut_is_damaged(saved: Path, tmp_path: Path) -> None:
    data = (saved / "legacy.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(data[:-20])
    with pytest.raises(InputError, match="damaged"):
        load(tmp_path / "cut.pt", trust_pickle=True, arch=f"{saved}/trainer.py")
