from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from edgesdk.artifacts import Dim, Model, Signature, Source, TensorSpec
from edgesdk.errors import EdgeError, InputError, UnsupportedError, UsageError
from edgesdk.runtimes import LowerConfig, _onnx_check, _onnx_export, _onnx_versions, find
from tests.runtimes import graphs

ROUNDING = 1e-5  # float32, a few layers; relative to the output's largest value


@pytest.fixture(scope="module")
def picture() -> Model:
    return graphs.picture_model()


# -- what it computes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", ["full", "portable"])
@pytest.mark.slow
def test_pitfall_o_07_other_sizes_answer_as_the_original(tmp_path: Path, rung: str) -> None:
    """Both exporters: the quick one, and torch's newer one that a lower rung takes."""
    model = graphs.sentence_model()
    made, runner = graphs.lowered("onnx", model, tmp_path, LowerConfig(rung=rung))  # type: ignore[arg-type]
    for batch, length in ((1, 2), (3, 7), (8, 12)):
        assert graphs.difference(runner, model.module, graphs.sentence(batch, length)) < ROUNDING
    assert made.rung == rung and made.backend is None


def test_a_dict_keeps_its_order_and_names(picture: Model, tmp_path: Path) -> None:
    made, runner = graphs.lowered("onnx", picture, tmp_path)
    document = onnx.load(made.path)
    assert [i.name for i in document.graph.input] == ["in_0"]
    assert [o.name for o in document.graph.output] == ["zeta", "alpha"]
    for batch in (1, 3, 8):
        assert graphs.difference(runner, picture.module, (torch.randn(batch, 1, 8, 8),)) < ROUNDING


def test_dynamic_sizes_are_called_by_their_meaning(picture: Model, tmp_path: Path) -> None:
    made, _ = graphs.lowered("onnx", picture, tmp_path)
    document = onnx.load(made.path)
    assert [d.dim_param or d.dim_value for d in document.graph.input[0].type.tensor_type.shape.dim] == [
        "batch",
        1,
        8,
        8,
    ]


def test_size_names_never_collide() -> None:
    a, b = Dim(1, 8, "s77"), Dim(2, 9, "s3")
    names = _onnx_export.size_names(
        Signature(
            (TensorSpec("x", "float32", (a, b)), TensorSpec("y", "float32", (a,))), (TensorSpec("z", "float32", (b,)),)
        )
    )
    assert names == {("x", 0): "batch", ("x", 1): "x_1", ("y", 0): "batch", ("z", 0): "x_1"}


def test_a_wrong_quick_translation_is_not_taken(picture: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check in between compares numbers; here the reference itself is off by one percent."""
    kept = _onnx_check._answers

    def off(*args: object) -> object:
        return ((feed, [a * 1.01 for a in answer]) for feed, answer in kept(*args))  # type: ignore[arg-type]

    monkeypatch.setattr(_onnx_check, "_answers", off)
    assert _onnx_export._through_torchscript(picture, picture.program, 18) is None


class Where(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


def test_a_branch_on_data_becomes_a_branch(tmp_path: Path) -> None:
    model = graphs.model_of(Where(), (torch.ones(3),))
    _, runner = graphs.lowered("onnx", model, tmp_path)
    for sign in (1, -1):
        assert graphs.difference(runner, model.module, (sign * torch.ones(3),)) == 0


class Boxes(torch.nn.Module):
    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torchvision

        return torchvision.ops.nms(boxes, scores, 0.5)


def test_pitfall_o_07_suppression_filters_at_another_number_of_boxes(tmp_path: Path) -> None:
    def boxes(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        corners = torch.rand(n, 2) * 3
        return torch.cat((corners, corners + 1), 1), torch.rand(n)

    number = Dim(2, 40, "n")
    model = graphs.model_of(Boxes(), boxes(5), [{0: number}] * 2)
    _, runner = graphs.lowered("onnx", model, tmp_path)
    for n in (2, 5, 40):
        given = boxes(n)
        assert graphs.difference(runner, model.module, given) == 0
        assert n < 40 or len(runner.run([t.numpy() for t in given])[0]) < n, "nothing was filtered"


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", ["full", "portable"])
@pytest.mark.slow
def test_equal_bytes_in_two_folders_and_no_paths(picture: Model, tmp_path: Path, rung: str) -> None:
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made, _ = graphs.lowered("onnx", picture, tmp_path / name, LowerConfig(rung=rung))  # type: ignore[arg-type]
        files.append(made.path.read_bytes())
    assert files[0] == files[1]
    assert b"site-packages" not in files[0] and str(Path(__file__).parent).encode() not in files[0]
    assert b"graphs.py" not in files[0], "a stack trace was left in the file"


class Smooth(torch.nn.Module):
    """An operator that only one of the exporters knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=(9, 9), mode="bicubic", antialias=True)


def test_nothing_is_printed_when_one_exporter_lacks_an_operator(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = graphs.model_of(Smooth(), (torch.randn(1, 1, 6, 6),))
    torch._C._jit_set_onnx_log_enabled(True)  # as torch.onnx.export leaves it behind
    _, runner = graphs.lowered("onnx", model, tmp_path)
    assert capfd.readouterr() == ("", "")
    assert graphs.difference(runner, model.module, (torch.randn(1, 1, 6, 6),)) < ROUNDING


def test_nothing_is_printed(picture: Model, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    graphs.lowered("onnx", picture, tmp_path, LowerConfig(rung="portable"))
    graphs.lowered("onnx", picture, tmp_path, LowerConfig(ort_format=True), "ort")
    assert capfd.readouterr() == ("", "")


def test_pitfall_o_02_one_file_below_the_limit(picture: Model, tmp_path: Path) -> None:
    made, _ = graphs.lowered("onnx", picture, tmp_path)
    assert made.extra_files == () and [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_pitfall_o_02_two_files_above_it_and_one_alone_says_which_is_missing(picture: Model, tmp_path: Path) -> None:
    made, runner = graphs.lowered("onnx", picture, tmp_path, LowerConfig(external_data_bytes=1000))
    assert [p.name for p in made.extra_files] == ["net.onnx.data"]
    assert {p.name for p in tmp_path.iterdir()} == {"net.onnx", "net.onnx.data"}
    assert graphs.difference(runner, picture.module, (torch.randn(3, 1, 8, 8),)) < ROUNDING
    (tmp_path / "moved").mkdir()
    alone = Path(shutil.copy(made.path, tmp_path / "moved"))
    with pytest.raises(InputError) as caught:
        find("onnx").load(alone, picture.signature)
    assert caught.value.code == "external_data_missing" and "net.onnx.data" in caught.value.message


def test_pitfall_o_04_a_second_file_warns_about_phones(picture: Model, tmp_path: Path) -> None:
    made, _ = graphs.lowered("onnx", picture, tmp_path, LowerConfig(external_data_bytes=1000))
    assert [w.code for w in made.warnings] == ["external_data"] and "hones" in made.warnings[0].message
    assert made.path.stat().st_size < 10_000, "weights stayed in the graph"


def test_pitfall_o_03_default_opset_and_file_version_are_old_enough(picture: Model, tmp_path: Path) -> None:
    made, _ = graphs.lowered("onnx", picture, tmp_path)
    document = onnx.load(made.path)
    assert [(o.domain, o.version) for o in document.opset_import] == [("", 18)]
    assert document.ir_version == 8 and made.min_runtime == "1.14"


@pytest.mark.parametrize(
    ("opset", "ir", "release"), [(11, 8, "1.10"), (15, 8, "1.10"), (17, 8, "1.12"), (20, 9, "1.17"), (21, 10, "1.18")]
)
def test_pitfall_o_03_another_opset_on_request(
    picture: Model, tmp_path: Path, opset: int, ir: int, release: str
) -> None:
    made, runner = graphs.lowered("onnx", picture, tmp_path, LowerConfig(opset=opset))
    document = onnx.load(made.path)
    assert document.opset_import[0].version == opset and document.ir_version <= ir and made.min_runtime == release
    assert graphs.difference(runner, picture.module, (torch.randn(3, 1, 8, 8),)) < ROUNDING


@pytest.mark.parametrize("opset", [7, 23, 99])
def test_pitfall_o_03_an_opset_that_phones_refuse_is_a_usage_error(picture: Model, tmp_path: Path, opset: int) -> None:
    with pytest.raises(UsageError) as caught:
        graphs.lowered("onnx", picture, tmp_path, LowerConfig(opset=opset))
    assert caught.value.code == "bad_opset" and not list(tmp_path.iterdir())


def test_pitfall_o_05_ort_format_comes_with_its_operators_and_types(picture: Model, tmp_path: Path) -> None:
    out = tmp_path / "net.ort"
    made = find("onnx").lower(picture, LowerConfig(ort_format=True), out)
    assert out.read_bytes()[4:8] == b"ORTM"
    runner = find("onnx").load(out, picture.signature)
    for batch in (1, 8):
        assert graphs.difference(runner, picture.module, (torch.randn(batch, 1, 8, 8),)) < ROUNDING
    (listed,) = made.extra_files
    text = listed.read_text()
    assert "Conv" in text and "float" in text and str(tmp_path) not in text
    assert {p.name for p in tmp_path.iterdir()} == {"net.ort", listed.name}


def test_pitfall_o_05_a_type_without_kernel_is_named_when_lowering(tmp_path: Path) -> None:
    net = torch.nn.Conv2d(1, 1, 3).double()
    model = graphs.model_of(net, (torch.randn(1, 1, 5, 5, dtype=torch.float64),))
    with pytest.raises(UnsupportedError) as caught:
        graphs.lowered("onnx", model, tmp_path)
    assert "Conv" in caught.value.message and "float64" in caught.value.why and not list(tmp_path.iterdir())


# -- what ONNX lacks --------------------------------------------------------------------------------------------------


def test_state_is_refused_with_the_rewrite(tmp_path: Path) -> None:
    model = graphs.model_of(graphs.Counter(), (torch.zeros(1, 3),))  # not even flagged as stateful
    with pytest.raises(UnsupportedError) as caught:
        graphs.lowered("onnx", model, tmp_path)
    assert caught.value.code == "stateful_onnx" and "input and an output" in caught.value.fix


class Eigen(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvalsh(x)


def test_an_operator_without_translation_is_named_with_its_line(tmp_path: Path) -> None:
    model = graphs.model_of(Eigen(), (torch.eye(3),))
    with pytest.raises(UnsupportedError) as caught:
        graphs.lowered("onnx", model, tmp_path)
    assert "linalg" in caught.value.message and "test_onnx.py:" in caught.value.message
    assert caught.value.code == "unsupported_op" and not list(tmp_path.iterdir())


class Spectrum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.fft.rfft(x)).pow(2).sum(-1)


def test_a_spectrum_is_computed_through_complex_numbers(tmp_path: Path) -> None:
    model = graphs.model_of(Spectrum(), (torch.randn(1, 16),))
    _, runner = graphs.lowered("onnx", model, tmp_path)
    assert graphs.difference(runner, model.module, (torch.randn(1, 16),)) < 1e-4  # sums of squares of 16 numbers


# -- half precision ---------------------------------------------------------------------------------------------------


def test_float16_halves_the_file_and_keeps_float32_outside(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    model = graphs.model_of(net, (torch.randn(2, 64),), [{0: graphs.BATCH}])
    whole, _ = graphs.lowered("onnx", model, tmp_path)
    half, runner = graphs.lowered("onnx", model, tmp_path, LowerConfig(quantization="fp16"), "half")
    assert half.path.stat().st_size < 0.6 * whole.path.stat().st_size
    assert graphs.difference(runner, net, (torch.randn(3, 64),)) < 5e-3  # eleven bits through two layers


# -- the user's own file ----------------------------------------------------------------------------------------------


def user_file(
    path: Path, *, ir: int = 8, opset: int = 18, constant: bool = False, wide: bool = False, size: int | str = "n"
) -> Path:
    """``y = x · w`` with the weight as initializer, or in a Constant node as Paddle writes it."""
    columns = 40 if wide else 8
    weight = numpy_helper.from_array(np.arange(8 * columns, dtype=np.float32).reshape(8, columns), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=weight))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size, d]) for n, d in (("x", 8), ("y", columns))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [] if constant else [weight])
    document = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    document.ir_version = ir
    onnx.save(document, path)
    return path


def onnx_model(path: Path, shape: tuple[int | Dim, ...]) -> Model:
    specs = (TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", None),)
    return Model(Source("net", "onnx"), Signature(*specs), onnx=path)


@pytest.mark.parametrize("constant", [False, True])
def test_a_user_s_file_is_taken_as_it_is(tmp_path: Path, constant: bool) -> None:
    source = user_file(tmp_path / "user.onnx", constant=constant, opset=13)
    made, runner = graphs.lowered("onnx", onnx_model(source, (Dim(1, 8), 8)), tmp_path)
    assert onnx.load(made.path).opset_import[0].version == 13
    assert runner.run([np.eye(8, dtype=np.float32)])[0].tolist() == np.arange(64.0).reshape(8, 8).tolist()


def test_sizes_that_were_asked_for_are_written_into_it(tmp_path: Path) -> None:
    source = user_file(tmp_path / "user.onnx")
    made, _ = graphs.lowered("onnx", onnx_model(source, (2, 8)), tmp_path)
    assert [d.dim_value for d in onnx.load(made.path).graph.input[0].type.tensor_type.shape.dim] == [2, 8]


def test_a_size_that_the_file_fixes_differently_is_refused(tmp_path: Path) -> None:
    source = user_file(tmp_path / "user.onnx", size=1)
    with pytest.raises(UnsupportedError) as caught:
        graphs.lowered("onnx", onnx_model(source, (3, 8)), tmp_path)
    assert caught.value.code == "fixed_size" and "x" in caught.value.message


def test_pitfall_o_03_a_user_s_file_loses_a_needlessly_new_version(tmp_path: Path) -> None:
    source = user_file(tmp_path / "user.onnx", ir=10, opset=18)
    made, _ = graphs.lowered("onnx", onnx_model(source, (Dim(1, 8), 8)), tmp_path)
    assert onnx.load(made.path).ir_version == 8 and made.min_runtime == "1.14"


def test_pitfall_o_03_a_user_s_file_too_new_for_the_phone_is_refused(tmp_path: Path) -> None:
    source = user_file(tmp_path / "user.onnx", ir=10, opset=24)
    with pytest.raises(UnsupportedError) as caught:
        graphs.lowered("onnx", onnx_model(source, (Dim(1, 8), 8)), tmp_path)
    assert caught.value.code == "onnx_too_new" and "opset 24" in caught.value.message


def test_a_user_s_file_is_converted_to_the_opset_asked_for(tmp_path: Path) -> None:
    source = user_file(tmp_path / "user.onnx", opset=13)
    made, runner = graphs.lowered("onnx", onnx_model(source, (Dim(1, 8), 8)), tmp_path, LowerConfig(opset=18))
    assert onnx.load(made.path).opset_import[0].version == 18
    assert runner.run([np.eye(8, dtype=np.float32)])[0][7, 7] == 63


def test_a_paddle_file_says_minus_one_for_a_dynamic_size(tmp_path: Path) -> None:
    source = user_file(tmp_path / "user.onnx", size=-1)
    _, runner = graphs.lowered("onnx", onnx_model(source, (Dim(1, 8), 8)), tmp_path)
    assert len(runner.run([np.eye(8, dtype=np.float32)[:3]])[0]) == 3


def beyond_half(weight: np.ndarray) -> np.ndarray:
    weight[7, 39] = 1e6
    return weight


def below_half(weight: np.ndarray) -> np.ndarray:
    return weight * np.float32(1e-10)


@pytest.mark.parametrize(("change", "wanted"), [(beyond_half, 1e6), (below_half, 319e-10)])
def test_pitfall_n_02_a_user_s_weight_outside_half_stays_float32(change, wanted: float, tmp_path: Path) -> None:
    document = onnx.load(user_file(tmp_path / "user.onnx", wide=True))
    weight = document.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(weight).copy()), weight.name))
    onnx.save(document, tmp_path / "odd.onnx")
    model = onnx_model(tmp_path / "odd.onnx", (Dim(1, 8), 8))
    made, runner = graphs.lowered("onnx", model, tmp_path, LowerConfig(quantization="fp16"))
    assert runner.run([np.eye(8, dtype=np.float32)])[0][7, 39] == pytest.approx(wanted)
    assert "1 of them" in made.warnings[0].message


def test_a_user_s_file_in_half_precision_keeps_float32_outside(tmp_path: Path) -> None:
    source = user_file(tmp_path / "user.onnx", wide=True)
    made, runner = graphs.lowered(
        "onnx", onnx_model(source, (Dim(1, 8), 8)), tmp_path, LowerConfig(quantization="fp16")
    )
    found = runner.run([np.eye(8, dtype=np.float32)])[0]
    assert found.dtype == np.float32 and found[7, 39] == 319
    assert [t.data_type for t in onnx.load(made.path).graph.initializer] == [TensorProto.FLOAT16]
    assert made.path.stat().st_size < 0.75 * source.stat().st_size
    assert [w.code for w in made.warnings] == ["fp16_storage"]


def test_a_user_s_second_file_is_taken_along_or_asked_for(tmp_path: Path) -> None:
    document = onnx.load(user_file(tmp_path / "plain.onnx"))
    (tmp_path / "user").mkdir()
    source = tmp_path / "user" / "user.onnx"
    onnx.save_model(document, source, save_as_external_data=True, location="w.bin", size_threshold=0)
    made, runner = graphs.lowered("onnx", onnx_model(source, (Dim(1, 8), 8)), tmp_path)
    assert made.extra_files == () and runner.run([np.eye(8, dtype=np.float32)])[0][7, 7] == 63
    (tmp_path / "user" / "w.bin").unlink()
    with pytest.raises(InputError) as caught:
        graphs.lowered("onnx", onnx_model(source, (Dim(1, 8), 8)), tmp_path)
    assert caught.value.code == "external_data_missing" and "w.bin" in caught.value.message


def test_a_second_file_outside_the_folder_is_never_read(tmp_path: Path) -> None:
    document = onnx.load(user_file(tmp_path / "plain.onnx"))
    tensor = document.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "../secret.bin"), ("offset", "0"), ("length", "256")):
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "secret.bin").write_bytes(bytes(256))
    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / "user.onnx"
    source.write_bytes(document.SerializeToString())
    with pytest.raises(InputError):
        graphs.lowered("onnx", onnx_model(source, (Dim(1, 8), 8)), tmp_path)


# -- loading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["missing", "empty", "html", "cut"])
def test_damaged_files_are_input_errors(picture: Model, tmp_path: Path, kind: str) -> None:
    made, _ = graphs.lowered("onnx", picture, tmp_path)
    path = tmp_path / "bad.onnx"
    content = {"empty": b"", "html": b"<html></html>", "cut": made.path.read_bytes()[:-100]}
    if kind != "missing":
        path.write_bytes(content[kind])
    with pytest.raises(EdgeError) as caught:
        find("onnx").load(path, picture.signature)
    assert caught.value.code == "onnx_damaged" and caught.value.exit == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [("ir", "onnx_too_new"), ("opset", "onnx_too_new"), ("operator", "unsupported_op"), ("domain", "unsupported_op")],
)
def test_newer_and_custom_files_are_refused_in_words(tmp_path: Path, change: str, code: str) -> None:
    path = user_file(tmp_path / "user.onnx")
    document = onnx.load(path)
    if change == "ir":
        document.ir_version = 99
    elif change == "opset":
        document.opset_import[0].version = 99
    elif change == "operator":
        document.graph.node[0].op_type = "Frobnicate"
    else:
        document.graph.node[0].domain = "my.domain"
        document.opset_import.add(domain="my.domain", version=1)
    path.write_bytes(document.SerializeToString())
    with pytest.raises(UnsupportedError) as caught:
        find("onnx").load(path, Signature((), ()))
    assert caught.value.code == code and "/onnxruntime_src" not in str(caught.value)


def test_a_wrong_input_is_an_error_in_words(picture: Model, tmp_path: Path) -> None:
    _, runner = graphs.lowered("onnx", picture, tmp_path)
    with pytest.raises(InputError) as caught:
        runner.run([np.ones((1, 3, 8, 8), np.float32)])
    assert caught.value.code == "run_failed"


def test_a_file_of_another_model_is_noticed_by_its_inputs(picture: Model, tmp_path: Path) -> None:
    made, _ = graphs.lowered("onnx", graphs.sentence_model(), tmp_path)
    with pytest.raises(InputError, match="in_1"):
        find("onnx").load(made.path, picture.signature)


def test_read_only_inputs_are_taken(picture: Model, tmp_path: Path) -> None:
    _, runner = graphs.lowered("onnx", picture, tmp_path)
    given = np.ones((1, 1, 8, 8), np.float32)
    given.flags.writeable = False
    assert len(runner.run([given])) == 2


def test_versions_are_compared_as_numbers() -> None:
    assert _onnx_versions.least_runtime(11, 7) == "1.10"
    assert _onnx_versions.least_runtime(18, 9) == "1.15"
    assert _onnx_versions.least_runtime(22, 10) == "1.21"


def test_a_branch_for_another_size_keeps_a_users_graph_loadable(tmp_path: Path) -> None:
    """Sizes written into the graph make the branch for batch 1 contradict itself; the file then keeps its own."""

    def branch(node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(
            [node], node.op_type, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
        )

    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [0])
    single = branch(helper.make_node("Squeeze", ["x", "axis"], ["one"]))
    several = branch(helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0))
    node = helper.make_node("If", ["alone"], ["y"], then_branch=single, else_branch=several)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("alone", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [axis]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "own.onnx"
    )
    specs = (TensorSpec("x", "float32", (2, 3)), TensorSpec("alone", "bool", ()))
    signature = Signature(specs, (TensorSpec("y", "float32", (3,)),))
    model = Model(Source("own", "onnx"), signature, onnx=tmp_path / "own.onnx")
    find("onnx").lower(model, LowerConfig(), tmp_path / "out.onnx")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    runner = find("onnx").load(tmp_path / "out.onnx", signature)
    assert runner.run([x, np.asarray(False)])[0].tolist() == [3, 5, 7]
