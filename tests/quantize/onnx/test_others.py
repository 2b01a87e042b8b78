from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from edgesdk.artifacts import Model
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.quantize._onnx import _weights
from edgesdk.runtimes import LowerConfig, _onnx_quant, find
from tests.quantize.onnx import nets
from tests.runtimes import graphs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("others")


def eager(model: Model) -> torch.nn.Module:
    assert model.module is not None
    return model.module


@pytest.fixture(scope="module")
def texts(folder: Path) -> Model:
    model = nets.texts()
    nets.store(folder / "samples", model)
    return model


# -- dynamic ------------------------------------------------------------------------------------------------------------


def test_dynamic_takes_products_and_lstms(texts: Model, folder: Path) -> None:
    lowered, runner = nets.quantized(texts, "dynamic-int8", folder, "dynamic")
    assert nets.snr(texts, runner) > 30
    assert {x.name: x.precision for x in lowered.layers} == {
        "words": "int8", "lstm": "int8", "mix": "int8", "head": "float32"
    }  # fmt: skip
    assert "320 weights" in str(nets.layer(lowered, "head").why)
    found = nets.operators(lowered.path)
    assert found["DynamicQuantizeLSTM"] == found["MatMulInteger"] == 1
    assert "LSTM" not in found and "DynamicQuantizeMatMul" in _onnx_quant.operators_after_load(lowered.path)
    for batch in (1, 8):
        assert graphs.difference(runner, eager(texts), (torch.randint(0, 200, (batch, 7)),)) < 0.1


def test_pitfall_q_18_convolutions_alone_are_refused_with_the_better_scheme(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3))
    with pytest.raises(UnsupportedError) as caught:
        nets.quantized(graphs.model_of(net, (torch.randn(1, 3, 8, 8),)), "dynamic-int8", tmp_path)
    error = caught.value
    assert error.code == "nothing_quantized" and type(error) is UnsupportedError
    assert "2 conv2d" in error.message and "static-int8" in error.fix and not (tmp_path / "net.onnx").exists()


def test_pitfall_q_18_convolutions_among_others_stay_float(tmp_path: Path) -> None:
    model = nets.cnn()
    lowered, runner = nets.quantized(model, "dynamic-int8", tmp_path)
    assert nets.snr(model, runner) > 30
    assert "ConvInteger" not in nets.operators(lowered.path) and nets.operators(lowered.path)["Conv"] == 4
    assert nets.layer(lowered, "head").precision == "int8"
    assert "fixed ranges" in str(nets.layer(lowered, "last").why)
    assert "large_float_weights" in {w.code for w in lowered.warnings}  # 18 kB of "last"


def test_pitfall_q_15_two_linears_on_one_activation(tmp_path: Path) -> None:
    """A dynamic length, and one tensor that two layers read: it is quantized once."""

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) * self.b(x)  # type: ignore[no-any-return]

    model = graphs.model_of(Two(), (torch.randn(2, 5, 32),), [{0: graphs.BATCH, 1: graphs.LENGTH}])
    lowered, runner = nets.quantized(model, "dynamic-int8", tmp_path)
    assert nets.operators(lowered.path)["DynamicQuantizeLinear"] == 1
    for length in (2, 12):
        assert graphs.difference(runner, eager(model), (torch.randn(3, length, 32),)) < 0.1


# -- weights ------------------------------------------------------------------------------------------------------------


def test_pitfall_q_16_int8_weights_take_a_quarter_embeddings_too(texts: Model, folder: Path) -> None:
    lowered, runner = nets.quantized(texts, "weight-int8", folder, "weights")
    assert nets.snr(texts, runner) > 40
    assert {x.name: x.precision for x in lowered.layers}["words"] == "int8"
    assert lowered.path.stat().st_size < 0.4 * nets.float_bytes(texts, folder)  # 31 kB of 120 are names and the graph


def test_int8_weights_cost_nothing_at_run_time(texts: Model, folder: Path) -> None:
    """They are widened once, at load; only the rows of the embedding are widened as they are read."""
    lowered, _ = nets.quantized(texts, "weight-int8", folder, "weights")
    fused = _onnx_quant.operators_after_load(lowered.path)
    assert fused["Cast"] == 1 and "DequantizeLinear" not in fused and fused["LSTM"] == 1


def test_ort_format_stays_small_with_int8_weights(texts: Model, folder: Path) -> None:
    """ONNX Runtime computes constants when it writes that format; these it must leave."""
    engine = find("onnx")
    whole = engine.lower(texts, LowerConfig(ort_format=True), folder / "whole.ort")
    lowered, runner = nets.quantized(texts, "weight-int8", folder, "weights", ort_format=True)
    assert nets.snr(texts, runner) > 40
    assert lowered.path.stat().st_size < 0.5 * whole.path.stat().st_size


def test_int4_takes_linear_layers_and_tells_of_the_rest(texts: Model, folder: Path) -> None:
    lowered, runner = nets.quantized(texts, "weight-int4", folder, "four")
    assert nets.snr(texts, runner) > 20  # one layer with 4 bits
    assert nets.layer(lowered, "mix").precision == "int4"
    assert "int4 is for linear layers" in str(nets.layer(lowered, "lstm").why)
    assert lowered.min_runtime == "1.17"
    assert nets.operators(lowered.path)["MatMulNBits"] == 1
    kept, _ = nets.quantized(texts, "weight-int8", folder, "kept", keep_float=("mix", "words"))
    assert {x.name for x in kept.layers if x.precision == "float32"} == {"mix", "words", "head"}


@pytest.mark.parametrize("inputs", [64, 50, 33])
def test_int4_blocks_hold_what_they_should(inputs: int, tmp_path: Path) -> None:
    """Also where the inputs are no multiple of the group; against the arithmetic in plain NumPy."""
    torch.manual_seed(0)
    model = graphs.model_of(torch.nn.Linear(inputs, 48), (torch.randn(2, inputs),), [{0: graphs.BATCH}])
    _, runner = nets.quantized(model, "weight-int4", tmp_path)
    weight = model.module.weight.detach().numpy()  # type: ignore[union-attr, operator]
    packed, scales = _weights.pack(weight, 32)
    nibbles = np.stack((packed & 15, packed >> 4), -1).reshape(48, -1).astype(np.float32)
    wide = (nibbles - 8) * np.repeat(scales.reshape(48, -1), 32, 1)
    assert (
        np.abs(wide[:, :inputs] - weight).max() <= scales.__abs__().max() * 1.001
    )  # the sign of the largest costs a step
    given = np.random.default_rng(0).standard_normal((3, inputs)).astype(np.float32)
    wanted = given @ wide[:, :inputs].T + model.module.bias.detach().numpy()  # type: ignore[union-attr, operator]
    assert np.abs(runner.run([given])[0] - wanted).max() < 1e-4


def branching(path: Path) -> Model:
    """An If whose branches each hold a product; the way of Silero's voice detector."""
    source = np.random.default_rng(0)
    x, on = nets.value("x", 2, 64), ir.Value(name="on", shape=ir.Shape((1,)), type=ir.TensorType(ir.DataType.BOOL))

    def branch(name: str) -> ir.Graph:
        w = nets.weight(f"{name}.weight", source.normal(size=(64, 64)))
        node = ir.node("MatMul", [x, w], name=f"{name}.product")
        node.outputs[0].name, node.outputs[0].dtype = f"{name}.out", ir.DataType.FLOAT
        return ir.Graph([], node.outputs, nodes=[node], initializers=[w], name=name)

    choice = ir.node("If", [on], {"then_branch": branch("yes"), "else_branch": branch("no")})
    out = choice.outputs[0]
    out.name = "out"
    positive = ir.node("ReduceMax", [x], {"keepdims": 0})
    greater = ir.node("Greater", [positive.outputs[0], nets.weight("level", np.array(0.5))])
    choice.replace_input_with(0, greater.outputs[0])
    return nets.of_graph(path, [positive, greater, choice], [x], [out])


@pytest.mark.parametrize("scheme", ["dynamic-int8", "weight-int8", "weight-int4"])
def test_weights_inside_branches_count(scheme: str, tmp_path: Path) -> None:
    model = branching(tmp_path / "source.onnx")
    lowered, runner = nets.quantized(model, scheme, tmp_path)
    assert [(x.name, x.precision != "float32") for x in lowered.layers] == [("yes", True), ("no", True)]
    assert nets.snr(model, runner) > (15 if scheme == "weight-int4" else 30)
    assert lowered.path.stat().st_size < 0.4 * (tmp_path / "source.onnx").stat().st_size


def test_weights_inside_branches_have_no_ranges(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        nets.quantized(branching(tmp_path / "source.onnx"), "static-int8", tmp_path)
    assert "branch" in caught.value.why and "weight-int8" in caught.value.fix


# -- all ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", nets.ALL)
def test_equal_bytes_and_nothing_beside(scheme: str, texts: Model, folder: Path, tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        find("onnx").lower(
            texts, LowerConfig(quantization=scheme, calibration=folder / "samples"), tmp_path / name / "net.onnx"
        )
        files.append((tmp_path / name / "net.onnx").read_bytes())
        assert [p.name for p in (tmp_path / name).iterdir()] == ["net.onnx"]
    assert files[0] == files[1] and str(tmp_path).encode() not in files[0]


@pytest.mark.parametrize("scheme", nets.ALL)
@pytest.mark.parametrize("rung", ["full", pytest.param("portable", marks=pytest.mark.slow)])
def test_layers_have_the_user_s_names_whichever_exporter_wrote_them(
    scheme: str, rung: str, texts: Model, folder: Path
) -> None:
    lowered, _ = nets.quantized(texts, scheme, folder, "named", rung=rung)
    assert [x.name for x in lowered.layers if x.bytes] == ["words", "lstm", "mix", "head"]


@pytest.fixture(params=nets.ALL)
def measured(request: pytest.FixtureRequest, texts: Model, folder: Path) -> Iterator[tuple[str, LowerConfig]]:
    yield request.param, LowerConfig(quantization=request.param, calibration=folder / "samples")


def test_layer_errors_rank_what_was_quantized(measured: tuple[str, LowerConfig], texts: Model) -> None:
    scheme, config = measured
    errors = find("onnx").layer_errors(texts, config, 4)
    made = {"static-int8": 4, "dynamic-int8": 3, "weight-int8": 3, "weight-int4": 1}[scheme]
    assert len([e for e in errors if e.name in ("words", "lstm", "mix", "head")]) == made
    figures = [e.snr_db for e in errors if e.snr_db is not None]
    assert figures == sorted(figures) and all(15 < f < 90 for f in figures)
    assert all(e.alone_db is None or 15 < e.alone_db < 90 for e in errors)
    assert errors == find("onnx").layer_errors(texts, config, 4), "the same figures every time"


def test_a_hostile_layer_ranks_first_and_can_be_restored(tmp_path: Path) -> None:
    """One output a thousand times as large as its neighbours takes all the steps of the tensor behind it."""
    net = nets.Cnn()
    with torch.no_grad():
        net.point.weight[0] *= 1000
        net.last.weight[:, 0] /= 1000
    model = graphs.model_of(net, (torch.randn(2, 3, 16, 16),), [{0: graphs.BATCH}])
    lowered, runner = nets.quantized(model, "static-int8", tmp_path)
    config = LowerConfig(quantization="static-int8", calibration=tmp_path / "samples")
    errors = find("onnx").layer_errors(model, config, 8)
    before = nets.snr(model, runner)
    worst = [e.name for e in sorted(errors, key=lambda e: 999 if e.alone_db is None else e.alone_db)]
    names = {x.name for x in lowered.layers}
    assert worst[0] in ("point", "last") and set(worst) <= names
    _, runner = nets.quantized(model, "static-int8", tmp_path, "restored", keep_float=("point", "last"))
    assert nets.snr(model, runner) > max(25.0, before + 10)


def test_layer_errors_need_samples(texts: Model) -> None:
    with pytest.raises(InputError):
        find("onnx").layer_errors(texts, LowerConfig(quantization="weight-int8"), 4)


@pytest.mark.parametrize("scheme", nets.ALL)
def test_a_layer_with_nan_stays_float_and_keeps_answering_nan(scheme: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).eval()
    with torch.no_grad():
        net[1].weight[2, 2] = float("nan")
    model = graphs.model_of(net, (torch.randn(2, 64),))
    made, runner = nets.quantized(model, scheme, tmp_path)
    precisions = [(x.precision, x.why) for x in made.layers if x.bytes]
    assert precisions[0][0] in ("int8", "int4")
    assert precisions[1] == ("float32", "some of its weights are infinite or not a number")
    answer = runner.run([np.ones((2, 64), np.float32)])[0]
    assert np.isnan(answer[:, 2]).all() and np.isfinite(np.delete(answer, 2, axis=1)).all()
