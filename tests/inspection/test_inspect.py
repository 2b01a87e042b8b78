"""Every kind of model file: what it is, told from its bytes; nothing in it is run."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import edgesdk
from edgesdk.artifacts import parse_input
from edgesdk.errors import EdgeError, InputError
from edgesdk.importing import ImportOptions
from edgesdk.inspection import Inspection, inspect

MACS = 64 * 9 * 32 + 64 * 9 * 32 * 64 + 1024 * 96 + 96 * 10
X = (torch.zeros(1, 1, 8, 8),)


def digits() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(1024, 96), nn.ReLU(), nn.Linear(96, 10),
    ).eval()  # fmt: skip


COUNT = sum(p.numel() for p in digits().parameters())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same network in every form that one process can write without lowering, all called ``.bin``."""
    from safetensors.torch import save_file

    folder, net = tmp_path_factory.mktemp("models"), digits()
    torch.export.save(torch.export.export(net, X), folder / "program.pt2")
    torch.jit.save(torch.jit.trace(net, X), folder / "script.bin")
    torch.jit.freeze(torch.jit.script(net))._save_for_lite_interpreter(str(folder / "lite.bin"))
    torch.save(net.state_dict(), folder / "weights.bin")
    torch.save({"pytorch-lightning_version": "2.4", "epoch": 3, "state_dict": net.state_dict(),
                "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(5000)}}}]}, folder / "lightning.bin")  # fmt: skip
    torch.save(net, folder / "module.bin")
    save_file(net.state_dict(), folder / "weights.safetensors")
    (folder / "net.py").write_text("from torch import nn\ndef small():\n    return nn.Linear(3, 2)\n")
    return folder


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "net.bin"
    torch.onnx.export(digits(), X, path, dynamo=True, verbose=False, input_names=["input"], output_names=["output"],
                      external_data=False)  # fmt: skip
    return path


def checked(found: Inspection) -> dict[str, Any]:
    """The JSON object, after the checks that hold for every format."""
    document: dict[str, Any] = json.loads(json.dumps(found.to_json()))
    assert document["schema"] == "edgesdk.inspect/1"
    assert {"executorch", "torchscript", "onnx"} <= document["runtimes"].keys()
    for answer in document["runtimes"].values():
        assert answer["status"] in ("yes", "partly", "no")
        assert answer["status"] == "yes" or (answer["why"].endswith(".") and answer["fix"])
    assert len(document["summary"]) >= 2 and all(line.endswith(".") for line in document["summary"])
    return document


def status(document: dict[str, Any]) -> dict[str, str]:
    return {name: answer["status"] for name, answer in document["runtimes"].items() if name != "null"}


def test_exported_program(folder: Path) -> None:
    doc = checked(inspect(folder / "program.pt2"))
    assert doc["format"] == "exported_program" and doc["parameters"] == COUNT and doc["macs"] == MACS
    assert doc["inputs"] == [{"name": "input", "dtype": "float32", "shape": [1, 1, 8, 8]}]
    assert doc["outputs"][0]["shape"] == [1, 10]
    assert doc["operators"]["aten.conv2d"] == 2
    assert status(doc) == {"executorch": "yes", "torchscript": "yes", "onnx": "yes"}
    assert any("92 % of them in aten.conv2d" in line for line in doc["summary"])


def test_onnx_and_ort(onnx_file: Path, tmp_path: Path) -> None:
    import onnxruntime

    doc = checked(inspect(onnx_file))
    assert doc["format"] == "onnx" and doc["macs"] == MACS
    # The exporter folds the batch norm: 64 biases take the place of its 2 · 64 weights and the convolution's biases.
    assert COUNT - 128 <= doc["parameters"] <= COUNT
    assert doc["inputs"] == [{"name": "input", "dtype": "float32", "shape": [1, 1, 8, 8]}]
    assert doc["outputs"] == [{"name": "output", "dtype": "float32", "shape": [1, 10]}]
    assert doc["operators"]["Conv"] == 2 and status(doc)["onnx"] == "yes"

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "net.bin")
    options.add_session_config_entry("session.save_model_format", "ORT")
    session = onnxruntime.InferenceSession(str(onnx_file), options, providers=["CPUExecutionProvider"])
    ort = checked(inspect(tmp_path / "net.bin"))
    assert ort["format"] == "ort" and (ort["inputs"], ort["outputs"]) == (doc["inputs"], doc["outputs"])
    assert [i["name"] for i in ort["inputs"]] == [i.name for i in session.get_inputs()]
    assert ort["operators"]["Conv"] == 2 and ort["parameters"] == doc["parameters"]
    assert status(ort) == {"executorch": "no", "torchscript": "no", "onnx": "yes"}


def test_torchscript(folder: Path) -> None:
    doc = checked(inspect(folder / "script.bin"))
    assert doc["format"] == "torchscript" and doc["parameters"] == COUNT
    assert [one["name"] for one in doc["inputs"]] == ["input"] and doc["inputs"][0]["shape"] is None
    assert doc["operators"]["aten.linear"] == 2 and "prim.Constant" not in doc["operators"]
    assert "--input 'input=float32[SIZES]'" in doc["runtimes"]["executorch"]["fix"]


def test_the_module_is_no_input_whatever_its_author_calls_it(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(this, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    torch.jit.save(torch.jit.script(Net()), tmp_path / "net.pt")
    assert [spec["name"] for spec in checked(inspect(tmp_path / "net.pt"))["inputs"]] == ["x"]


def test_torchscript_with_its_input_is_seen_through(folder: Path) -> None:
    options = ImportOptions(inputs=(parse_input("input=float32[1,1,8,8]"),))
    doc = checked(inspect(folder / "script.bin", options))
    assert doc["macs"] == MACS and doc["outputs"][0]["shape"] == [1, 10]
    assert status(doc)["executorch"] == "yes"


def test_torchscript_that_has_no_graph_is_still_taken_by_its_own_runtime(tmp_path: Path) -> None:
    """A loop whose end depends on data: no graph, but TorchScript's own runtime takes the module as it is."""

    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while bool(x.abs().max() > 1):
                x = x / 2
            return x

    torch.jit.save(torch.jit.script(Halves()), tmp_path / "halves.pt")
    doc = inspect(tmp_path / "halves.pt", ImportOptions((parse_input("x=float32[1,4]"),))).to_json()
    assert doc["runtimes"]["executorch"]["status"] == "no"
    assert doc["runtimes"]["torchscript"] == {
        "status": "yes", "fix": None,
        "why": "The module is taken as it is, without a graph of torch.export. PyTorch Mobile, which runs it, is no longer "
        "developed; ExecuTorch is its successor.",
    }  # fmt: skip
    unsized = inspect(tmp_path / "halves.pt").to_json()["runtimes"]["torchscript"]
    assert unsized["status"] == "partly" and "taken as it is" in unsized["why"]
    assert unsized["fix"].startswith("Say the sizes") and "--input 'x=float32[SIZES]'" in unsized["fix"]


def test_torchscript_lite(folder: Path) -> None:
    doc = checked(inspect(folder / "lite.bin"))
    assert doc["format"] == "torchscript_lite" and doc["inputs"] == [] and doc["parameters"] is None
    assert "aten.conv2d" in doc["operators"] and doc["details"]["bytecode"] == 8
    assert status(doc) == {"executorch": "no", "torchscript": "yes", "onnx": "no"}
    assert "edgesdk bundle" in doc["runtimes"]["onnx"]["fix"]


@pytest.mark.parametrize(
    ("file", "form"),
    [("weights.bin", "state_dict"), ("weights.safetensors", "state_dict"), ("lightning.bin", "lightning")],
)
def test_weights(folder: Path, file: str, form: str) -> None:
    """Trained numbers only: neither running statistics nor an optimizer's state."""
    doc = checked(inspect(folder / file))
    assert doc["format"] == form and doc["parameters"] == COUNT and doc["inputs"] == []
    assert set(status(doc).values()) == {"partly"}
    assert "--arch" in doc["runtimes"]["executorch"]["fix"]
    assert doc["details"]["tensors"] == len(digits().state_dict())


def test_weights_with_their_architecture_are_a_whole_network(folder: Path, tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "small.pth")
    options = ImportOptions(inputs=(parse_input("input=float32[4,3]"),), arch=f"{folder / 'net.py'}:small")
    doc = checked(inspect(tmp_path / "small.pth", options))
    assert doc["format"] == "state_dict" and doc["macs"] == 4 * 6 and status(doc)["executorch"] == "yes"


def test_weights_of_a_known_family_name_it(tmp_path: Path) -> None:
    from torchvision.models import mobilenet_v2

    net = mobilenet_v2(weights=None)
    torch.save({"ema": net.state_dict(), "model": net.state_dict()}, tmp_path / "two.pth")
    doc = checked(inspect(tmp_path / "two.pth"))
    assert "torchvision:mobilenet_v2" in doc["runtimes"]["onnx"]["fix"]
    assert doc["parameters"] == sum(p.numel() for p in net.parameters())
    assert doc["details"]["table"] == "model"


def test_shared_weights_count_once(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    net[1].weight = net[0].weight
    torch.save(net.state_dict(), tmp_path / "tied.pth")
    assert inspect(tmp_path / "tied.pth").parameters == sum(p.numel() for p in net.parameters()) == 35


def test_half_and_integer_weights(tmp_path: Path) -> None:
    state = {"a.weight": torch.zeros(4, 5, dtype=torch.bfloat16), "b.weight": torch.zeros(3, dtype=torch.float16),
             "table": torch.zeros(7, dtype=torch.int64)}  # fmt: skip
    torch.save(state, tmp_path / "w.pth")
    assert inspect(tmp_path / "w.pth").parameters == 23
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert inspect(tmp_path / "old.pth").parameters == 23


def test_pickled_module(folder: Path) -> None:
    doc = checked(inspect(folder / "module.bin"))
    assert doc["format"] == "pickled_module" and doc["parameters"] is None and doc["operators"] == {}
    assert doc["details"]["class"] == "torch.nn.modules.container.Sequential"
    assert set(status(doc).values()) == {"no"} and "--trust-pickle" in doc["runtimes"]["executorch"]["fix"]


def test_trusted_pickled_module(folder: Path) -> None:
    options = ImportOptions(inputs=(parse_input("input=float32[1,1,8,8]"),), trust_pickle=True)
    doc = checked(inspect(folder / "module.bin", options))
    assert doc["format"] == "pickled_module" and doc["parameters"] == COUNT and doc["macs"] == MACS


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("place", ["alone", "in a dictionary", "beside weights", "old format"])
def test_pitfall_s_01_nothing_in_a_pickle_is_run(tmp_path: Path, place: str) -> None:
    marker, path = tmp_path / "ran", tmp_path / "evil.pt"
    evil = Evil(marker)
    content: Any = {"alone": evil, "in a dictionary": {"model": evil}}.get(place, {"w": torch.ones(3), "extra": evil})
    torch.save(content, path, _use_new_zipfile_serialization=place != "old format")
    try:
        doc = checked(inspect(path))
        assert doc["format"] in ("pickled_module", "state_dict")
        if doc["format"] == "pickled_module":
            assert "mkdir" in doc["runtimes"]["executorch"]["why"]
    except InputError:
        pass  # refused before it was looked into: as good
    assert not marker.exists()


FOREIGN = {
    "empty.pt": b"",
    "page.pt": b"<!DOCTYPE html><html><body>404</body></html>",
    "pointer.pt": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123\n",
    "lite.pt": b"\x1c\x00\x00\x00TFL3" + bytes(64),
    "cut.pte": b"\x30\x00\x00\x00ET12eh00" + bytes(20),
    "zeros.onnx": bytes(100),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_pitfall_i_06_other_files_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FOREIGN[name])
    with pytest.raises(InputError) as caught:
        inspect(tmp_path / name)
    assert name in caught.value.message and caught.value.why and caught.value.fix


@pytest.mark.parametrize("file", ["program.pt2", "script.bin", "lite.bin", "weights.bin", "module.bin", "weights.safetensors"])  # fmt: skip
def test_pitfall_i_06_half_a_download_is_an_input_error(folder: Path, tmp_path: Path, file: str) -> None:
    data = (folder / file).read_bytes()
    for length in (len(data) // 2, len(data) - 30, 100):
        (tmp_path / file).write_bytes(data[:length])
        with pytest.raises(EdgeError) as caught:
            inspect(tmp_path / file)
        assert caught.value.exit == 3


def test_half_an_onnx_file(onnx_file: Path, tmp_path: Path) -> None:
    data = onnx_file.read_bytes()
    (tmp_path / "half.onnx").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError):
        inspect(tmp_path / "half.onnx")
    with pytest.raises(InputError):
        inspect(tmp_path / "gone.onnx")


def test_hugging_face_folder(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    state = {"bert.embeddings.position_ids": torch.arange(8), "bert.pooler.dense.weight": torch.zeros(4, 4),
             "classifier.weight": torch.zeros(2, 4), "classifier.bias": torch.zeros(2)}  # fmt: skip
    config = {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "a", "1": "b"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(state, tmp_path / "model.safetensors")
    doc = checked(inspect(tmp_path))
    assert doc["format"] == "transformers" and doc["parameters"] == 16 + 8 + 2
    assert doc["details"]["architectures"] == ["BertForSequenceClassification"] and doc["details"]["labels"] == 2
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "code.Net"}}))
    assert set(status(checked(inspect(tmp_path))).values()) == {"no"}
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(InputError):
        inspect(tmp_path)


def test_bundle(tmp_path: Path) -> None:
    from edgesdk.bundle import Manifest, write
    from tests.bundle import hostile

    manifest = copy.deepcopy(hostile.plain_manifest())
    manifest["variants"][0] |= {"id": "executorch-xnnpack-none", "runtime": "executorch", "backend": "xnnpack"}
    score = {"name": "top1", "original": 90.56, "value": 90.45, "drop": 0.11, "samples": 2000}
    manifest["variants"][0]["evaluation"] = {
        "data": "evaluation", "where": "x86_64 host", "samples": 2000, "score": score, "top1": 0.991, "rows": 2000, "flipped": 18,
        "outputs": [{"name": "y", "max_abs_error": 0.3, "snr_db": 24.04}],
    }  # fmt: skip
    write(tmp_path / "model.bin", Manifest.from_json(manifest), hostile.FILES)
    doc = checked(inspect(tmp_path / "model.bin"))
    assert doc["format"] == "edge" and doc["inputs"][0]["shape"] == ["1..8", 3]
    assert status(doc) == {"executorch": "yes", "torchscript": "no", "onnx": "no"}
    assert doc["details"]["variants"][0]["bytes"] == len(hostile.MODEL)
    assert "It isn't signed." in doc["summary"]
    assert doc["details"]["variants"][0]["evaluation"]["score"]["value"] == 90.45
    words = "top1 90.56 → 90.45, the original's first answer for 99.1 %, 24.0 dB (2000 samples of evaluation data, x86_64 host)"
    assert any(words in line for line in doc["summary"])


def test_code_is_inspected_as_package_would_import_it(folder: Path) -> None:
    options = ImportOptions(inputs=(parse_input("input=float32[1..8,3]"),))
    found = inspect(f"{folder / 'net.py'}:small", options)
    assert found.format == "python_factory" and found.parameters == 8
    assert found.to_json()["inputs"][0]["shape"] == ["1..8", 3]


class Odd(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "sort":
            return torch.sort(x)[0]
        if self.kind == "complex":
            return torch.fft.fft(x).abs()
        return x.double() * 2


@pytest.mark.parametrize(
    ("kind", "wanted", "word"),
    [("sort", "no", "torch.topk"), ("complex", "no", "real and imaginary"), ("double", "partly", "float()")],
)
def test_runtimes_that_cannot_say_why_and_what_to_do(tmp_path: Path, kind: str, wanted: str, word: str) -> None:
    torch.export.save(torch.export.export(Odd(kind), (torch.ones(1, 8),)), tmp_path / "odd.pt2")
    doc = checked(inspect(tmp_path / "odd.pt2"))
    assert doc["runtimes"]["executorch"]["status"] == wanted
    assert word in doc["runtimes"]["executorch"]["fix"]
    assert doc["runtimes"]["torchscript"]["status"] == "yes"


def test_operators_of_another_library_are_refused(tmp_path: Path) -> None:
    import torchvision

    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
            return torchvision.ops.roi_align(x, [boxes], (2, 2))

    program = torch.export.export(Pooled(), (torch.rand(1, 3, 8, 8), torch.tensor([[0.0, 0, 4, 4]])))
    torch.export.save(program, tmp_path / "pooled.pt2")
    doc = checked(inspect(tmp_path / "pooled.pt2"))
    assert doc["runtimes"]["executorch"]["status"] == doc["runtimes"]["torchscript"]["status"] == "no"
    assert "torchvision.roi_align" in doc["runtimes"]["executorch"]["why"]
    assert "torchvision_ops" in doc["runtimes"]["torchscript"]["fix"]


@pytest.mark.slow
def test_a_custom_operator_still_gives_a_description(tmp_path: Path) -> None:
    code = """
import torch, sys
from torch import nn
@torch.library.custom_op("mylib::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def forward(self, x):
        return twice(self.layer(x))
torch.export.save(torch.export.export(Net(), (torch.ones(1, 3),)), sys.argv[1])
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "own.pt2")], check=True, capture_output=True)
    doc = checked(inspect(tmp_path / "own.pt2"))
    assert doc["format"] == "exported_program" and doc["parameters"] == 8
    assert doc["operators"] == {"aten.linear": 1, "mylib.twice": 1}
    assert set(status(doc).values()) == {"no"} and "mylib" in doc["runtimes"]["executorch"]["why"]


@pytest.mark.parametrize("file", ["lite.bin", "weights.bin", "weights.safetensors", "module.bin", "onnx"])
def test_headers_are_read_without_torch(folder: Path, onnx_file: Path, file: str) -> None:
    path = onnx_file if file == "onnx" else folder / file
    code = (
        "import sys; from edgesdk.inspection import inspect; inspect(sys.argv[1]);"
        "print([m for m in ('torch', 'onnxruntime', 'executorch', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_public_function(folder: Path) -> None:
    assert edgesdk.inspect(folder / "weights.bin").parameters == COUNT


def test_a_runtime_that_is_not_installed_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgesdk.runtimes import find

    monkeypatch.setattr(type(find("onnx")), "missing", lambda self: "onnxruntime is not installed.")
    answer = inspect(folder / "program.pt2").runtimes["onnx"]
    assert (answer.status, answer.why) == ("partly", "onnxruntime is not installed.")
    assert answer.fix == "Install it: pip install 'edgesdk[onnx]'"


def test_the_name_does_not_matter(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "program.pt2", tmp_path / "picture.jpg")
    assert inspect(tmp_path / "picture.jpg").format == "exported_program"
