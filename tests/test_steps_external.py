"""``bundle FILE.onnx``: the names of external weights come from the file, and lead nowhere but beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from edgesdk.artifacts import Lowered
from edgesdk.errors import InputError
from edgesdk.steps import _external


def model(path: Path, location: str) -> Lowered:
    weight = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    entry = weight.external_data.add()
    entry.key, entry.value = "location", location
    ends = [helper.make_tensor_value_info(name, 1, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return Lowered("onnx", None, "none", path, "full")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """(where the model lies, where the work is done), each two deep, with a secret that both reach by climbing."""
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    made = tmp_path / "from" / "deep", tmp_path / "work" / "deep"
    for folder in made:
        folder.mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    "location", ["../../secret.bin", "a/../../../secret.bin", "/etc/hostname", "..\\..\\secret.bin", "C:/x", "link"]
)
def test_pitfall_s_03_weights_from_outside_are_refused_and_nothing_is_written(
    folders: tuple[Path, Path], tmp_path: Path, location: str
) -> None:
    source, work = folders
    (source / "link").symlink_to(tmp_path / "secret.bin")
    before = sorted(tmp_path.rglob("*"))
    lowered = model(source / "m.onnx", location)
    with pytest.raises(InputError, match="outside its own folder"):
        _external(lowered, work)
    assert sorted(set(tmp_path.rglob("*")) - {lowered.path}) == before


@pytest.mark.parametrize("location", ["gone.bin", "n" * 300 + ".bin"])
def test_weights_that_are_not_there_are_named(folders: tuple[Path, Path], location: str) -> None:
    with pytest.raises(InputError, match="beside it"):
        _external(model(folders[0] / "m.onnx", location), folders[1])


def test_weights_beside_the_model_come_along(folders: tuple[Path, Path]) -> None:
    source, work = folders
    (source / "sub").mkdir()
    (source / "sub" / "w.bin").write_bytes(b"weights")
    (placed,) = _external(model(source / "m.onnx", "sub/w.bin"), work)
    assert placed == work / "sub" / "w.bin" and placed.read_bytes() == b"weights"


def test_a_damaged_graph_is_no_bug(folders: tuple[Path, Path]) -> None:
    lowered = model(folders[0] / "m.onnx", "w.bin")
    lowered.path.write_bytes(b"\x08\x09\x3a\x7f")
    with pytest.raises(InputError, match="damaged"):
        _external(lowered, folders[1])
