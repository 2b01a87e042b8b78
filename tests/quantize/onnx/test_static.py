from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from edgesdk.artifacts import Lowered, Model
from edgesdk.errors import InputError, UnsupportedError, UsageError
from edgesdk.quantize._onnx._observe import Observer
from edgesdk.runtimes import Runner, _onnx_quant, _onnx_run, find
from tests.quantize.onnx import nets
from tests.runtimes import graphs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("static")


@pytest.fixture(scope="module")
def model() -> Model:
    return nets.cnn()


@pytest.fixture(scope="module")
def made(model: Model, folder: Path) -> tuple[Lowered, Runner]:
    return nets.quantized(model, "static-int8", folder)


def eager(model: Model) -> torch.nn.Module:
    assert model.module is not None
    return model.module


def test_every_layer_computes_in_int8_and_the_answer_stays(made: tuple[Lowered, Runner], model: Model) -> None:
    lowered, runner = made
    assert nets.snr(model, runner) > 25  # 8 bits through five layers of random weights
    assert [(x.name, x.op, x.precision, x.why) for x in lowered.layers if x.bytes] == [
        (name, op, "int8", None)
        for name, op in (
            ("stem.0", "conv2d"), ("depthwise", "conv2d"), ("point", "conv2d"), ("last", "conv2d"), ("head", "linear")
        )
    ]  # fmt: skip
    fused = _onnx_quant.operators_after_load(lowered.path)
    assert fused["QLinearConv"] == 4 and fused["QGemm"] == 1 and fused["QLinearAdd"] == 1
    assert "Conv" not in fused and "Gemm" not in fused and "BatchNormalization" not in fused


def test_other_batch_sizes_work(made: tuple[Lowered, Runner], model: Model) -> None:
    for batch in (1, 3, 8):
        assert graphs.difference(made[1], eager(model), (torch.randn(batch, 3, 16, 16),)) < 0.1


def test_pitfall_q_16_weights_take_a_quarter(made: tuple[Lowered, Runner]) -> None:
    document = onnx.load(made[0].path)
    kinds = {w.name: w.data_type for w in document.graph.initializer}
    for x in made[0].layers:
        if x.bytes:
            assert kinds[f"{x.name}.weight"] == onnx.TensorProto.INT8
    large = [w for w in document.graph.initializer if w.data_type == onnx.TensorProto.FLOAT and np.prod(w.dims) > 32]
    assert large == [], "a float weight was left behind"


def test_a_wide_net_s_file_is_a_quarter(tmp_path: Path) -> None:
    model = nets.cnn(64)
    lowered, _ = nets.quantized(model, "static-int8", tmp_path)
    assert lowered.path.stat().st_size < 0.29 * nets.float_bytes(model, tmp_path)


@pytest.mark.slow
def test_equal_bytes_in_another_process(made: tuple[Lowered, Runner], tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from tests.quantize.onnx import nets;"
        "nets.quantized(nets.cnn(), 'static-int8', pathlib.Path(sys.argv[1]))"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, cwd=Path(__file__).parents[3],
        env={"PYTHONHASHSEED": "7", "PATH": "", "PYTHONPATH": "."},
    )  # fmt: skip
    assert (tmp_path / "net.onnx").read_bytes() == made[0].path.read_bytes()


@pytest.mark.parametrize("name", ["stem.0", "depthwise", "head"])
def test_layers_named_stay_float(model: Model, folder: Path, name: str) -> None:
    lowered, runner = nets.quantized(model, "static-int8", folder, "kept", keep_float=(name,))
    kept = nets.layer(lowered, name)
    assert kept.precision == "float32" and kept.why == "kept in float as asked"
    assert all(x.precision == "int8" for x in lowered.layers if x.name != name)
    weights = {w.name: w.data_type for w in onnx.load(lowered.path).graph.initializer}
    assert onnx.TensorProto.FLOAT in (t for w, t in weights.items() if w.endswith(f"{name}.weight"))
    assert nets.snr(model, runner) > 25


class Uneven(torch.nn.Module):
    """The rows of ``b`` range over three decades: one scale for all of them would leave nothing of the smallest."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.c = (self._layer("linear" if kind == "linear" else "conv") for _ in range(2))
        self.b = self._layer(kind)
        rows = torch.logspace(-3, 0, 16)
        with torch.no_grad():
            self.b.weight.mul_(
                rows.view(*((1, 16) if kind == "transposed" else (16, 1)), *[1] * (self.b.weight.dim() - 2))
            )
            self.b.bias.mul_(rows)
            self.c.weight.div_(rows.view(1, 16, *[1] * (self.c.weight.dim() - 2)))

    @staticmethod
    def _layer(kind: str) -> torch.nn.Module:
        made = {"linear": torch.nn.Linear, "conv": torch.nn.Conv2d, "transposed": torch.nn.ConvTranspose2d}[kind]
        layer: torch.nn.Module = made(16, 16, *([] if kind == "linear" else [3]))
        return layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.c(self.b(self.a(x)).relu())
        return y


@pytest.mark.parametrize(
    ("kind", "shape"), [("linear", (4, 16)), ("conv", (1, 16, 9, 9)), ("transposed", (1, 16, 9, 9))]
)
def test_a_layer_kept_in_float_is_computed_in_float(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """ONNX Runtime would round it between integers, with one scale for the whole weight."""
    import onnxruntime as ort

    model = graphs.model_of(Uneven(kind), (torch.randn(*shape),))
    lowered, _ = nets.quantized(model, "static-int8", tmp_path, keep_float=("b",))
    assert {x.name: x.precision for x in lowered.layers} == {"a": "int8", "b": "float32", "c": "int8"}
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "as_it_runs.onnx")
    ort.InferenceSession(str(lowered.path), options, providers=["CPUExecutionProvider"])
    ran = [onnx.numpy_helper.to_array(w).ravel() for w in onnx.load(tmp_path / "as_it_runs.onnx").graph.initializer]
    wanted = model.module.b.weight.detach().numpy().ravel()
    assert any(w.dtype == np.float32 and np.array_equal(np.sort(w), np.sort(wanted)) for w in ran)


def test_everything_kept_is_nothing_quantized(model: Model, folder: Path, tmp_path: Path) -> None:
    names = ("stem.0", "depthwise", "point", "last", "head")
    with pytest.raises(UnsupportedError) as caught:
        nets.quantized(model, "static-int8", folder, "none", keep_float=names)
    assert caught.value.code == "nothing_quantized" and not (folder / "none.onnx").exists()


# -- what a scale for each channel is worth -----------------------------------------------------------------------------


def uneven() -> Model:
    """A depthwise convolution whose filters differ a thousandfold in size."""
    net = nets.Cnn()
    with torch.no_grad():
        net.depthwise.weight *= torch.logspace(-2, 1, 16).reshape(16, 1, 1, 1)
        net.point.weight /= torch.logspace(-2, 1, 16).reshape(1, 16, 1, 1)
    return graphs.model_of(net, (torch.randn(2, 3, 16, 16),), [{0: graphs.BATCH}])


def test_pitfall_q_05_depthwise_filters_have_scales_of_their_own(tmp_path: Path) -> None:
    model = uneven()
    figures = {}
    for per_channel in (True, False):
        lowered, _ = nets.quantized(model, "static-int8", tmp_path, options={"per_channel": per_channel})
        scales = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load(lowered.path).graph.initializer}
        weight = scales["depthwise.weight"].astype(np.float32)
        scale = scales["depthwise.weight/s"].reshape((-1, 1, 1, 1) if per_channel else ())
        wanted = model.module.depthwise.weight.detach().numpy()  # type: ignore[union-attr, operator]
        figures[per_channel] = np.abs(weight * scale - wanted).reshape(16, -1).max(1) / np.abs(wanted).reshape(
            16, -1
        ).max(1)
    assert figures[True].max() < 0.005, "half a step of 127"
    assert figures[False].max() > 0.5, "the smallest filters vanish with one scale"


def test_pitfall_q_05_the_layer_that_suffers_is_named(tmp_path: Path) -> None:
    from edgesdk.runtimes import LowerConfig

    model = uneven()
    config = LowerConfig(
        quantization="static-int8", calibration=nets.store(tmp_path / "samples", model), options={"per_channel": False}
    )
    errors = find("onnx").layer_errors(model, config, 8)
    assert min((e for e in errors if e.alone_db is not None), key=lambda e: e.alone_db or 0).name in (
        "depthwise",
        "point",
    )


def test_pitfall_q_04_grouped_transposed_convolutions(tmp_path: Path) -> None:
    """1-D and 2-D, with groups and without; ONNX Runtime has no int8 kernel, so weights only."""

    class Up(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first = torch.nn.Conv2d(8, 16, 3, padding=1)
            self.up = torch.nn.ConvTranspose2d(16, 16, 2, stride=2, groups=2)
            self.plain = torch.nn.ConvTranspose2d(16, 16, 2, stride=2)
            self.line = torch.nn.ConvTranspose1d(16, 16, 4, stride=2, groups=4)
            self.tail = torch.nn.Conv1d(16, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.plain(self.up(self.first(x).relu())).relu()
            return self.tail(self.line(y.flatten(2)))  # type: ignore[no-any-return]

    model = graphs.model_of(Up(), (torch.randn(1, 8, 4, 4),))
    lowered, runner = nets.quantized(model, "static-int8", tmp_path)
    assert nets.snr(model, runner) > 25
    for name in ("up", "plain", "line"):
        found = nets.layer(lowered, name)
        assert found.op.startswith("conv_transpose")
        assert "no int8 kernel for ConvTranspose" in str(found.why) or "wouldn't make smaller" in str(found.why)
    assert nets.layer(lowered, "tail").why is None and nets.layer(lowered, "first").why is None


def test_a_dead_filter_and_a_large_bias_do_no_harm(tmp_path: Path) -> None:
    """A filter of zeros has no scale of its own; a bias of a million steps must not leave 32 bits."""
    net = nets.Cnn()
    with torch.no_grad():
        net.point.weight[3] = 0
        net.last.weight[5] *= 1e-12
        assert net.last.bias is not None
        net.last.bias[5] = 3.0
    model = graphs.model_of(net, (torch.randn(2, 3, 16, 16),), [{0: graphs.BATCH}])
    _, runner = nets.quantized(model, "static-int8", tmp_path)
    assert nets.snr(model, runner) > 25


# -- calibration --------------------------------------------------------------------------------------------------------


def test_pitfall_q_09_blank_samples_are_refused_with_the_layer(model: Model, tmp_path: Path) -> None:
    nets.store(tmp_path / "samples", model, scale=0.0)
    with pytest.raises(InputError) as caught:
        nets.quantized(model, "static-int8", tmp_path)
    assert caught.value.code == "observer_untouched" and "stem.0" in caught.value.message
    assert not (tmp_path / "net.onnx").exists()


def test_pitfall_q_09_no_samples(model: Model, tmp_path: Path) -> None:
    nets.store(tmp_path / "samples", model, count=0)
    with pytest.raises(InputError) as caught:
        nets.quantized(model, "static-int8", tmp_path)
    assert caught.value.code == "empty_calibration"


def test_an_opset_without_scales_per_channel_is_refused(model: Model, folder: Path) -> None:
    with pytest.raises(UsageError) as caught:
        nets.quantized(model, "static-int8", folder, "old", opset=12)
    assert caught.value.code == "bad_opset" and "13" in caught.value.why


def squared_error(values: np.ndarray, kind: str) -> float:
    watched = Observer()
    for part in np.array_split(values, 7):
        watched.add(part)
    p = watched.params(kind)
    integers = np.clip(np.round(values / p.scale) + p.zero, 0, 255)
    return float(((p.scale * (integers - p.zero) - values) ** 2).mean())


def test_the_histogram_gives_up_an_outlier_for_the_many() -> None:
    values = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    values[7] = 30
    assert squared_error(values, "histogram") < 0.8 * squared_error(values, "minmax")


@pytest.mark.parametrize("values", [np.linspace(-1, 1, 4001), np.linspace(0, 6, 4001), np.linspace(-3, -2, 999)])
def test_even_values_keep_their_range(values: np.ndarray) -> None:
    """Nothing to gain from clipping; the step is a 255th of the range, which always holds zero."""
    step = (max(values.max(), 0) - min(values.min(), 0)) / 255
    assert squared_error(values, "histogram") <= 1.05 * step**2 / 12
    assert squared_error(values, "minmax") <= 1.05 * step**2 / 12


MEMORY = """
import json, pathlib, resource, sys
from tests.quantize.onnx import nets
folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
model = nets.cnn()
nets.quantized(model, "static-int8", folder, "warm")
model.signature  # the first call has loaded everything
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
many = folder / "many"
nets.store(many / "samples", model, count)
nets.quantized(model, "static-int8", many, options={"samples": count})
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.slow
def test_pitfall_q_19_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    """2000 samples have 300 MB of activations (37,000 numbers each); a calibrator that kept them would show."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path), "2000"], check=True, capture_output=True, text=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    grown = json.loads(done.stdout) / (1024 if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**31 else 2**20)
    assert grown < 40, "MiB; the mapped samples themselves are 6"


# -- graphs that came as ONNX -------------------------------------------------------------------------------------------


def test_pitfall_q_08_recurrent_layers_get_int8_weights_and_say_so(tmp_path: Path) -> None:
    model = nets.texts()
    lowered, runner = nets.quantized(model, "static-int8", tmp_path)
    assert nets.snr(model, runner) > 30
    lstm, words = nets.layer(lowered, "lstm"), nets.layer(lowered, "words")
    assert lstm.precision == words.precision == "int8"
    assert "no int8 kernel for LSTM" in str(lstm.why) and "float arithmetic" in str(words.why)
    assert nets.layer(lowered, "mix").why is None
    assert lowered.path.stat().st_size < 0.4 * nets.float_bytes(model, tmp_path)


def paddle(path: Path, opset: int = 11) -> Model:
    """Batch norm as Mul and Add, hard-swish spelled out, weights as Constant nodes, an old opset."""
    source = np.random.default_rng(0)

    def constant(name: str, array: np.ndarray) -> tuple[ir.Node, ir.Value]:
        node = ir.node("Constant", [], {"value": ir.tensor(array.astype(np.float32), name=name)}, name=f"c.{name}")
        node.outputs[0].name = name
        return node, node.outputs[0]

    x = nets.value("x", 1, 3, 12, 12)
    made: list[ir.Node] = []

    def use(name: str, array: np.ndarray) -> ir.Value:
        node, out = constant(name, array)
        made.append(node)
        return out

    def do(op: str, *given: ir.Value, **attributes: object) -> ir.Value:
        node = ir.node(op, list(given), attributes)
        made.append(node)
        return node.outputs[0]

    y = do("Conv", x, use("first.w", source.normal(size=(16, 3, 3, 3))))
    y = do(
        "Add", do("Mul", y, use("g", source.normal(size=(1, 16, 1, 1)))), use("b", source.normal(size=(1, 16, 1, 1)))
    )
    clipped = do(
        "Clip", do("Add", y, use("three", np.array([3.0]))), use("zero", np.array(0.0)), use("six", np.array(6.0))
    )
    y = do("Div", do("Mul", y, clipped), use("by", np.array([6.0])))
    y = do("Conv", y, use("second.w", source.normal(size=(8, 16, 3, 3))))
    out = do("Relu", y)
    out.name, out.shape = "out", ir.Shape((1, 8, 8, 8))
    return nets.of_graph(path, made, [x], [out], opset)


def test_pitfall_q_16_constants_of_an_old_opset_are_quantized(tmp_path: Path) -> None:
    model = paddle(tmp_path / "source.onnx")
    lowered, runner = nets.quantized(model, "static-int8", tmp_path)
    assert nets.snr(model, runner) > 25
    assert [(x.name, x.precision, x.why) for x in lowered.layers] == [
        ("first.w", "int8", None),
        ("second.w", "int8", None),
    ]
    document = onnx.load(lowered.path)
    assert document.opset_import[0].version == 13
    found = nets.operators(lowered.path)
    assert (
        found["HardSigmoid"] == 1 and found["Mul"] == 1 and not found["Add"] and not found["Div"] and not found["Relu"]
    )


def test_a_branch_is_left_alone_and_nothing_else_there_is_refused(tmp_path: Path) -> None:
    from tests.runtimes.test_onnx import Where

    model = graphs.model_of(Where(), (torch.ones(3),))
    with pytest.raises(UnsupportedError) as caught:
        nets.quantized(model, "static-int8", tmp_path)
    assert caught.value.code == "nothing_quantized" and "no layers with weights" in caught.value.message


def test_a_mask_with_infinity_stays_float(tmp_path: Path) -> None:
    model = graphs.sentence_model()
    lowered, runner = nets.quantized(model, "static-int8", tmp_path)
    assert {x.name for x in lowered.layers if x.bytes} >= {"mix"}
    tokens, mask = graphs.sentence(2, 5)
    assert np.isfinite(runner.run([tokens.numpy(), mask.numpy()])[0]).all()


def test_two_nodes_may_share_a_weight(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    x, w = nets.value("x", 1, 8, 12, 12), nets.weight("shared.weight", source.normal(size=(8, 8, 3, 3)))
    first, second = ir.node("Conv", [x, w]), None
    second = ir.node("Conv", [first.outputs[0], w])
    out = second.outputs[0]
    out.name, out.shape = "out", ir.Shape((1, 8, 8, 8))
    model = nets.of_graph(tmp_path / "source.onnx", [first, second], [x], [out])
    lowered, runner = nets.quantized(model, "static-int8", tmp_path)
    assert [x.name for x in lowered.layers] == ["shared", "shared@node_Conv_1"]
    assert nets.snr(model, runner) > 25


# -- what the host hides ------------------------------------------------------------------------------------------------


def test_pitfall_q_22_the_host_s_arithmetic_is_told(made: tuple[Lowered, Runner]) -> None:
    said = {w.code: w.message for w in made[0].warnings}
    if _onnx_run.host() == "arm64":
        assert "x86_saturation" not in said
    else:
        assert "16 bits" in said["x86_saturation"] and "session.x64quantprecision" in said["x86_saturation"]


def test_pitfall_q_03_without_vnni_sums_are_exact(
    monkeypatch: pytest.MonkeyPatch, made: tuple[Lowered, Runner], model: Model
) -> None:
    """ONNX Runtime is asked for unsigned weights then, and the answer stays."""
    monkeypatch.setattr(_onnx_run, "host", lambda: "x86")
    assert _onnx_run.options().get_session_config_entry("session.x64quantprecision") == "1"
    runner = find("onnx").load(made[0].path, model.signature)
    given = np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype(np.float32)
    assert np.abs(runner.run([given])[0] - made[1].run([given])[0]).max() < 1e-5


def test_int8_that_grows_is_told(tmp_path: Path) -> None:
    model = graphs.model_of(torch.nn.Conv2d(1, 1, 3), (torch.randn(1, 1, 5, 5),))
    lowered, _ = nets.quantized(model, "static-int8", tmp_path)
    assert "not_smaller" in {w.code for w in lowered.warnings}
    assert lowered.path.stat().st_size >= nets.float_bytes(model, tmp_path)


def test_float_islands_are_listed(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GELU(), torch.nn.Conv2d(8, 8, 3))
    lowered, _ = nets.quantized(graphs.model_of(net, (torch.randn(1, 3, 8, 8),)), "static-int8", tmp_path)
    said = {w.code: w.message for w in lowered.warnings}
    assert "Erf" in said["float_islands"] or "Gelu" in said["float_islands"]


# -- forms of the file --------------------------------------------------------------------------------------------------


def test_ort_format_and_a_second_file(model: Model, folder: Path, tmp_path: Path) -> None:
    _, runner = nets.quantized(model, "static-int8", folder, "phone", ort_format=True)
    assert nets.snr(model, runner) > 25
    lowered, runner = nets.quantized(model, "static-int8", folder, "two", external_data_bytes=100)
    assert [p.name for p in lowered.extra_files] == ["two.onnx.data"]
    assert nets.snr(model, runner) > 25


@pytest.mark.parametrize("shape", [(16, 1), (1, 16), (16,)])
def test_a_bias_may_count_rows(shape: tuple[int, ...], tmp_path: Path) -> None:
    """As many rows as columns: a Gemm adds ``[16, 1]`` along the other axis."""

    class Product(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first = torch.nn.Linear(64, 64)
            self.w, self.b = torch.nn.Parameter(torch.randn(64, 16) / 8), torch.nn.Parameter(torch.randn(shape))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.addmm(self.b, self.first(x).relu(), self.w)

    model = graphs.model_of(Product(), (torch.randn(16, 64),))
    _, runner = nets.quantized(model, "static-int8", tmp_path)
    assert nets.snr(model, runner) > 30
