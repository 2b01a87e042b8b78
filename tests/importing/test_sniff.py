"""A file is what its bytes say; what can't be a model is refused with its true name."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import edgesdk
from edgesdk.errors import InputError
from edgesdk.importing import sniff


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small network in every form, all with the same misleading suffix."""
    root = tmp_path_factory.mktemp("formats")
    module, image = net(), torch.zeros(1, 1, 8, 8)
    torch.export.save(torch.export.export(module, (image,)), root / "exported_program.pt2")
    traced = torch.jit.trace(module, image)
    traced.save(str(root / "torchscript.bin"))
    traced._save_for_lite_interpreter(str(root / "torchscript_lite.bin"))
    torch.save(module.state_dict(), root / "state_dict.bin")
    torch.save(module.state_dict(), root / "state_dict_legacy.bin", _use_new_zipfile_serialization=False)
    save_file(module.state_dict(), root / "state_dict_safetensors.bin")
    torch.save(module, root / "pickled_module.bin")
    torch.save({"epoch": 3, "model": module}, root / "pickled_module_inside.bin")
    torch.save(module, root / "pickled_module_legacy.bin", _use_new_zipfile_serialization=False)
    torch.save({"pytorch-lightning_version": "2.5", "state_dict": module.state_dict()}, root / "lightning.bin")
    torch.save({"ema": module, "anchors": torch.zeros(3)}, root / "pickled_module_and_tensor.bin")
    torch.save({"model": module.state_dict(), "teacher": module}, root / "state_dict_and_module.bin")
    torch.save({"model": module.state_dict(), "epoch": 1}, root / "state_dict_nested.bin")
    torch.onnx.export(module, (image,), root / "onnx.bin", dynamo=False)
    (root / "executorch.bin").write_bytes(b"\x1c\0\0\0ET12" + bytes(100))
    (root / "ort.bin").write_bytes(b"\x1c\0\0\0ORTM" + bytes(100))
    with zipfile.ZipFile(root / "edge.bin", "w") as archive:
        archive.writestr("manifest.json", json.dumps({"schema": "edgesdk.bundle/1"}))
    (root / "exported_program.pt2").rename(root / "exported_program.bin")
    return root


@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("exported_program", "exported_program"), ("torchscript", "torchscript"), ("torchscript_lite", "torchscript_lite"),
        ("state_dict", "state_dict"), ("state_dict_legacy", "state_dict"), ("state_dict_safetensors", "state_dict"),
        ("state_dict_nested", "state_dict"), ("pickled_module_and_tensor", "pickled_module"),
        ("state_dict_and_module", "state_dict"), ("pickled_module", "pickled_module"),
        ("pickled_module_inside", "pickled_module"), ("pickled_module_legacy", "pickled_module"),
        ("lightning", "lightning"), ("onnx", "onnx"), ("executorch", "executorch"), ("ort", "ort"), ("edge", "edge"),
    ],
)  # fmt: skip
def test_the_format_is_found_from_the_bytes(folder: Path, file: str, form: str) -> None:
    assert sniff(folder / f"{file}.bin") == form


def test_recognising_a_file_imports_no_torch(folder: Path) -> None:
    code = (
        "import sys; from edgesdk.importing import locate, sniff\n"
        f"for name in ('exported_program', 'torchscript', 'pickled_module', 'onnx', 'lightning'): locate({str(folder)!r} + f'/{{name}}.bin')\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 1234\n"


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (LFS, "git lfs pull"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", r"web page \(HTML\)"),
        (b"\n\n <html lang=en><head>", r"web page \(HTML\)"),
        (b"\x1c\0\0\0TFL3" + bytes(64), "TensorFlow Lite"),
        (b"GGUF\x03\0\0\0" + bytes(64), "GGUF"),
        (b"\x89HDF\r\n\x1a\n" + bytes(64), "Keras"),
        (b"\x1f\x8b\x08" + bytes(64), "gzip"),
        (bytes(257) + b"ustar\x0000" + bytes(300), "tar archive"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "PNG picture"),
        (b"\xff\xd8\xff\xe0" + bytes(64), "JPEG"),
        (b"\x93NUMPY\x01\0" + bytes(64), "NumPy array"),
        (bytes(5000), "only zeros"),
        (b'{"model_type": "bert"}', "JSON text"),
        (b"just some words\n", "plain text that begins 'just some words"),
        (b"import torch\nclass Net: ...\n", "Python source"),
        (b"\x17\x99" + bytes(range(256)) * 4, "no model format that edgesdk knows"),
        (zipped(AndroidManifest_xml=b"x", **{"AndroidManifest.xml": b""}), "Android app"),
        (zipped(**{"arr_0.npy": b""}), "NumPy archive"),
        (zipped(**{"weights.pth": b"x", "readme.txt": b""}), "weights.pth"),
        (zipped(**{"config.json": b"{}", "model.weights.h5": b""}), "Keras model"),
        (zipped(**{"p__.data__extern_modules": b"", "p__data.pkl": b""}), "torch.package"),
        (zipped(**{"a.txt": b""}), "ZIP archive, but no model: it holds a.txt"),
        (pickle.dumps([1, 2, 3]), "pickled list"),
        (pickle.dumps({"lr": 1}), "dictionary without tensors"),
    ],
)  # fmt: skip
def test_pitfall_i_06_what_a_file_really_is_is_said(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        sniff(path)
    assert str(path) in caught.value.message
    assert caught.value.why and caught.value.fix


def test_pitfall_i_06_a_folder_is_named_with_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"x")
    with pytest.raises(InputError, match="is a folder") as caught:
        sniff(tmp_path)
    assert "weights.pth" in caught.value.why


def test_a_single_tensor_is_no_model(tmp_path: Path) -> None:
    torch.save(torch.zeros(3), tmp_path / "t.pt")
    with pytest.raises(InputError, match="single tensor"):
        sniff(tmp_path / "t.pt")


@pytest.mark.parametrize(
    "name",
    ["exported_program", "torchscript", "torchscript_lite", "state_dict", "pickled_module", "lightning", "onnx",
     "state_dict_safetensors", "state_dict_legacy"],
)  # fmt: skip
@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_pitfall_i_06_half_a_download_is_called_damaged_or_stays_unknown(
    folder: Path, tmp_path: Path, name: str, share: float
) -> None:
    """Cut at the start, in the middle and near the end. A legacy pickle's tensors come after its pickle."""
    data = (folder / f"{name}.bin").read_bytes()
    (tmp_path / "cut.pt").write_bytes(data[: int(len(data) * share)])
    if name == "state_dict_legacy" and share > 0.1:
        return  # its tensors lie behind the pickle: the loader finds out, see test_state_dict
    with pytest.raises(InputError, match="damaged|no model format|plain text|ends|missing"):
        sniff(tmp_path / "cut.pt")


def test_a_zip_that_claims_four_gigabytes_is_refused_without_allocating(folder: Path, tmp_path: Path) -> None:
    data = bytearray((folder / "state_dict.bin").read_bytes())
    at = data.index(b"PK\x01\x02")  # the first entry of the table of contents
    struct.pack_into("<II", data, at + 20, 0xFFFFFFF0, 0xFFFFFFF0)
    (tmp_path / "big.pt").write_bytes(data)
    with pytest.raises(InputError, match="claims|damaged"):
        sniff(tmp_path / "big.pt")


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", bytes(300 << 20))
    with pytest.raises(InputError, match="unpacks to"):
        sniff(tmp_path / "bomb.pt")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "twice.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"one")
        archive.writestr("m/data.pkl", b"two")
    with pytest.raises(InputError, match="twice"):
        sniff(tmp_path / "twice.pt")


def test_a_safetensors_header_that_claims_more_than_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.safetensors").write_bytes(struct.pack("<Q", 90_000_000) + b'{"a":1}')
    with pytest.raises(InputError, match="claims 90000000 bytes"):
        sniff(tmp_path / "s.safetensors")


def evil(protocol: int, function: Callable[..., object], *args: object) -> bytes:
    reducer = type("Evil", (), {"__reduce__": lambda self: (function, args)})
    return pickle.dumps({"weights": reducer()}, protocol)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("function", [os.mkdir, eval, subprocess.check_output])
def test_pitfall_s_01_recognising_a_pickle_runs_nothing(
    tmp_path: Path, protocol: int, function: Callable[..., object]
) -> None:
    marker = tmp_path / "ran"
    argument = f"__import__('os').mkdir({str(marker)!r})" if function is eval else str(marker)
    (tmp_path / "evil.pt").write_bytes(evil(protocol, function, argument))
    assert sniff(tmp_path / "evil.pt") == "pickled_module"
    assert not marker.exists()


def test_a_pickle_that_asks_for_gigabytes_is_refused(tmp_path: Path) -> None:
    reducer = type("Big", (), {"__reduce__": lambda self: (bytearray, (1 << 40,))})
    torch.save({"w": torch.zeros(2), "x": reducer()}, tmp_path / "big.pt")
    with pytest.raises(InputError, match="more than 2 GB"):
        sniff(tmp_path / "big.pt")


def test_a_pickle_that_doubles_itself_is_read_in_no_time(tmp_path: Path) -> None:
    """The billion laughs: shared references must not be expanded."""
    value: list[object] = []
    for _ in range(200):
        value = [value, value]
    (tmp_path / "laughs.pt").write_bytes(pickle.dumps(value, 4))
    with pytest.raises(InputError, match="pickled list"):
        sniff(tmp_path / "laughs.pt")


def test_random_bytes_never_crash(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    starts = (b"", b"\x80\x02", b"PK\x03\x04", b"\x08\x07", struct.pack("<Q", 50) + b"{", b"\x80\x04\x95")
    for index in range(60):
        path = tmp_path / "random"
        path.write_bytes(starts[index % len(starts)] + rng.bytes(3000))
        with pytest.raises(InputError):
            sniff(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.", "claims more bytes"),
        (struct.pack("<Q", 31) + b'{"a":{"data_offsets":[0,1e999]}', "safetensors"),
        (struct.pack("<Q", 54) + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,Infinity]}}'[:54], "safetensors"),
        (struct.pack("<Q", 38) + b'{"a":{"data_offsets":[0,Infinity]}}    ', "offsets"),
    ],
    ids=["pickle of an exabyte", "cut", "cut too", "infinite offset"],
)
def test_claims_that_no_file_can_keep(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(data)
    with pytest.raises(InputError, match=said):
        sniff(path)


def test_a_zip_whose_manifest_is_nested_without_end_is_no_bundle(tmp_path: Path) -> None:
    path = tmp_path / "m.edge"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", '{"schema": "edgesdk.bundle/1", "a": ' + "[" * 100_000)
    with pytest.raises(InputError, match=r"m\.edge"):
        sniff(path)


@pytest.mark.parametrize(
    ("entries", "lie"),
    [
        ('"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}', "lies: 'a'"),
        ('"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}', "lies: 'b'"),
        ('"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}', "lies: 'a'"),
        ('"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}', "no sizes"),
        ('"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}', "lies: 'a'"),
        ('"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}', "no sizes"),
        ('"a":{"dtype":"F32","data_offsets":[0,8]}', "no sizes"),
        ('"a":{"dtype":"F32","shape":[2],"data_offsets":[8,8]}', "lies: 'a'"),
        ('"a":{"dtype":"F32","shape":[2],"data_offsets":["0",8]}', "no offsets"),
        ('"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}', "no offsets"),
    ],
)  # fmt: skip
def test_a_safetensors_header_that_lies_about_its_tensors_is_damaged(tmp_path: Path, entries: str, lie: str) -> None:
    """`inspect` reads headers only, so it believed them: sizes without bytes, tensors on top of each other, holes."""
    header = ("{" + entries + "}").encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(InputError, match=lie) as caught:
        edgesdk.inspect(path)
    assert caught.value.exit == 3
