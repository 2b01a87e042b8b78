"""Weights of an ONNX file that lie beside it: inside the bundle they work, outside they are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgesdk
from edgesdk.bundle import write
from edgesdk.errors import EdgeError, InputError
from tests.nets import (
    CLOSE,
    PICTURE,
    PictureNet,
    manifest_of,
    variant,
)


@pytest.fixture(scope="module")
def picture() -> PictureNet:
    return PictureNet()


def external(picture: PictureNet, folder: Path, location: str, *, nested: bool = False) -> tuple[Path, Path]:
    """The picture net with its first weight in ``w.bin``, named by the model as ``location``."""
    import onnx
    from onnx import TensorProto, helper

    model = onnx.load(picture.as_onnx(folder / "plain.onnx"))
    weight = model.graph.initializer[0]
    (folder / "w.bin").write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    if nested:  # the same tensor once more, deep in the branch of an If
        branch = helper.make_graph(
            [helper.make_node("Identity", ["q"], ["o"])], "b", [], [helper.make_empty_tensor_value_info("o")]
        )
        branch.initializer.add().CopyFrom(weight)
        branch.initializer[0].name = "q"
        branch.initializer[0].external_data[0].value = "../../secret"
        model.graph.node.append(helper.make_node("If", ["input"], ["unused"], then_branch=branch, else_branch=branch))
    (folder / "ext.onnx").write_bytes(model.SerializeToString())
    return folder / "ext.onnx", folder / "w.bin"


@pytest.mark.parametrize("folder", ["", "onnx/"])
def test_external_data_inside_the_bundle_works(folder: str, picture: PictureNet, tmp_path: Path) -> None:
    model, weights = external(picture, tmp_path, "w.bin")
    named = variant("onnx", f"{folder}m.onnx", extra_files=[f"{folder}w.bin"])
    write(tmp_path / "e.edge", manifest_of(PICTURE, [named]), {f"{folder}m.onnx": model, f"{folder}w.bin": weights})
    feed = np.random.default_rng(8).random((1, 3, 6, 6), np.float32)
    with edgesdk.load(tmp_path / "e.edge") as session:
        np.testing.assert_allclose(session.run({"input": feed})["scores"], picture(feed), **CLOSE)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "other.bin", "a/../w.bin", "./w.bin", "", "w.bin/"])
def test_pitfall_s_03_external_data_outside_the_bundle_is_refused(
    location: str, picture: PictureNet, tmp_path: Path
) -> None:
    model, weights = external(picture, tmp_path, location)
    named = variant("onnx", "m.onnx", extra_files=["w.bin"])
    write(tmp_path / "e.edge", manifest_of(PICTURE, [named]), {"m.onnx": model, "w.bin": weights})
    with pytest.raises(InputError) as caught:
        edgesdk.load(tmp_path / "e.edge")
    assert caught.value.code == "external_data_outside"


def test_pitfall_s_03_external_data_of_a_nested_graph_is_found(picture: PictureNet, tmp_path: Path) -> None:
    model, weights = external(picture, tmp_path, "w.bin", nested=True)
    named = variant("onnx", "m.onnx", extra_files=["w.bin"])
    write(tmp_path / "e.edge", manifest_of(PICTURE, [named]), {"m.onnx": model, "w.bin": weights})
    with pytest.raises(InputError, match=r"\.\./\.\./secret"):
        edgesdk.load(tmp_path / "e.edge")


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"\x3a\xff\xff\xff\xff\x0f", b"no model" * 9])
def test_a_damaged_onnx_is_an_edge_error(data: bytes, tmp_path: Path) -> None:
    write(tmp_path / "e.edge", manifest_of(PICTURE, [variant("onnx", "m.onnx")]), {"m.onnx": data})
    with pytest.raises(EdgeError):
        edgesdk.load(tmp_path / "e.edge")
