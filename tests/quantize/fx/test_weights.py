"""Dynamic and weight-only int8, recurrent layers, embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgesdk.artifacts import Model, Signature, Source, TensorSpec
from edgesdk.errors import UnsupportedError
from edgesdk.runtimes import LowerConfig
from tests.quantize.fx import nets
from tests.runtimes import graphs

GOOD = 25.0  # dB


class Words(torch.nn.Module):
    """A table of words, both kinds of recurrent layers, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        nn = torch.nn
        self.words = nn.Embedding(300, 64)
        self.forth = nn.LSTM(64, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.back = nn.GRU(192, 64, batch_first=True)
        self.mix, self.head = nn.Linear(64, 128), nn.Linear(128, 100)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, state = self.back(self.forth(self.words(tokens))[0])
        return self.head(self.mix(y).relu()), state


def tokens(batch: int) -> list[np.ndarray]:
    return [np.random.default_rng(batch).integers(0, 300, (batch, 5))]


@pytest.fixture(scope="module")
def words() -> Model:
    return nets.of(Words(), torch.randint(0, 300, (2, 5)))


@pytest.mark.parametrize(("scheme", "least"), [("weight-int8", 35), ("dynamic-int8", 30), ("static-int8", GOOD)])
def test_pitfall_q_08_lstm_gru_and_embedding_become_small(
    words: Model, scheme: str, least: float, tmp_path: Path
) -> None:
    whole, _ = graphs.lowered("torchscript", words, tmp_path)
    store = nets.samples(words, lambda i: [np.random.default_rng(i).integers(0, 300, (1, 5))], tmp_path / "s")
    made, runner = nets.quantized(words, scheme, tmp_path, store)
    layers = nets.by_name(made)
    assert {n: x.precision for n, x in layers.items()} == dict.fromkeys(
        ("words", "forth", "back", "mix", "head"), "int8"
    )
    if scheme != "weight-int8":
        assert "on the fly" in str(layers["forth"].why) and "aten::quantized_lstm.input" in nets.operators(made)
    # a packed row of 64 has 16 bytes of scale and zero point beside it
    assert made.path.stat().st_size < (0.28 if scheme == "weight-int8" else 0.32) * whole.path.stat().st_size
    for batch in (1, 3, 8):
        assert nets.worst(runner, words, tokens(batch)) > least
    again, _ = nets.quantized(words, scheme, tmp_path, store, "again")
    assert again.path.read_bytes() == made.path.read_bytes()


class Handed(torch.nn.Module):
    """A recurrent layer whose initial state comes in."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = torch.nn.LSTM(8, 32, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h, c) = self.cell(x, (h, c))
        return y, h, c


def test_pitfall_q_08_initial_states_passed_in(tmp_path: Path) -> None:
    model = graphs.model_of(Handed(), (torch.randn(1, 5, 8), torch.randn(2, 1, 32), torch.randn(2, 1, 32)))
    made, runner = nets.quantized(model, "dynamic-int8", tmp_path)
    assert [layer.precision for layer in made.layers] == ["int8"]
    rng = np.random.default_rng(0)
    x = [rng.standard_normal(s, dtype=np.float32) for s in ((1, 5, 8), (2, 1, 32), (2, 1, 32))]
    assert nets.worst(runner, model, x) > 30


def test_pitfall_q_08_projected_states_stay_float_and_say_why(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.LSTM(8, 32, proj_size=16), nets.One(First()))
    model = graphs.model_of(net, (torch.randn(5, 1, 8),))
    made, _ = nets.quantized(model, "dynamic-int8", tmp_path)
    layers = nets.by_name(made)
    assert layers["0"].precision == "float32" and "projected" in str(layers["0"].why)
    assert layers["1.layer.head"].precision == "int8"


class First(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(16, 20)

    def forward(self, found: tuple[torch.Tensor, ...]) -> torch.Tensor:
        y: torch.Tensor = self.head(found[0])
        return y


@pytest.mark.parametrize("scheme", ["dynamic-int8", "weight-int8"])
def test_pitfall_q_16_a_tied_table_is_small_in_both_its_uses(scheme: str, tmp_path: Path) -> None:
    model = nets.of(Tied(), torch.randint(0, 500, (2, 5)))
    whole, _ = graphs.lowered("torchscript", model, tmp_path)
    made, runner = nets.quantized(model, scheme, tmp_path)
    assert nets.worst(runner, model, [np.random.default_rng(0).integers(0, 500, (3, 5))]) > 30
    # dynamic: the linear layer's packed copy beside the rows
    assert made.path.stat().st_size < (0.3 if scheme == "weight-int8" else 0.65) * whole.path.stat().st_size


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = torch.nn.Embedding(500, 64), torch.nn.Linear(64, 500, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.words(tokens))
        return found


def test_pitfall_q_16_large_float_weights_are_told(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.Flatten(), torch.nn.Linear(64, 4))
    model = nets.of(net, torch.randn(2, 3, 3, 3))
    made, _ = nets.quantized(model, "dynamic-int8", tmp_path)
    said = next(w for w in made.warnings if w.code == "large_float_weights")
    assert "0 (conv2d" in said.message
    small, _ = nets.quantized(model, "weight-int8", tmp_path)
    assert not [w for w in small.warnings if w.code == "large_float_weights"]


def test_dynamic_needs_something_to_do(tmp_path: Path) -> None:
    model = nets.of(torch.nn.Conv2d(3, 64, 3), torch.randn(2, 3, 3, 3))
    with pytest.raises(UnsupportedError, match="1 conv2d") as caught:
        nets.quantized(model, "dynamic-int8", tmp_path)
    assert caught.value.code == "nothing_quantized" and "weight-int8" in caught.value.fix


def test_dynamic_takes_other_ranges_blank_inputs_and_two_layers_on_one_input(tmp_path: Path) -> None:
    """One activation read by two layers; ranges far from one another; all zeros (Q-15)."""
    model = graphs.model_of(Two(), (torch.randn(2, 5, 32),), [{0: graphs.BATCH, 1: graphs.LENGTH}])
    made, runner = nets.quantized(model, "dynamic-int8", tmp_path)
    assert "quantized::linear_relu_dynamic" in nets.operators(made)
    for scale in (1.0, 1e4, 1e-3):
        for shape in ((1, 2, 32), (3, 7, 32)):
            assert nets.worst(runner, model, [nets.noise(*shape)(1)[0] * np.float32(scale)]) > GOOD
    assert np.isfinite(runner.run([np.zeros((1, 2, 32), np.float32)])[0]).all()


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = torch.nn.Linear(32, 48), torch.nn.Linear(32, 48), torch.nn.Linear(48, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.c(self.a(x).relu() + self.b(x))
        return found


@pytest.mark.parametrize("scheme", ["dynamic-int8", "weight-int8"])
def test_layer_errors_of_the_other_schemes(words: Model, scheme: str, tmp_path: Path) -> None:
    store = nets.samples(words, lambda i: [np.random.default_rng(i).integers(0, 300, (1, 5))], tmp_path / "s", 4)
    errors = nets.RUNTIME.layer_errors(words, LowerConfig(quantization=scheme, calibration=store), 4)
    assert {e.name for e in errors} == {"words", "forth", "back", "mix", "head"}
    assert all(e.snr_db and e.snr_db > 20 and e.alone_db and e.alone_db > 20 for e in errors)


def test_kept_layers(words: Model, tmp_path: Path) -> None:
    for scheme in ("dynamic-int8", "weight-int8"):
        made, _ = nets.quantized(words, scheme, tmp_path, keep_float=("words", "forth", "mix"))
        floats = {layer.name for layer in made.layers if layer.precision == "float32"}
        assert floats == {"words", "forth", "mix"}


# -- models without a program -----------------------------------------------------------------------------------------


def eager(stubs: bool) -> torch.jit.ScriptModule:
    """A model that the user made int8 with eager-mode quantization."""
    import warnings

    before = torch.backends.quantized.engine
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch.ao.quantization as ao

        if stubs:
            layers = [ao.QuantStub(), *layers, ao.DeQuantStub()]
        net = torch.nn.Sequential(*layers).eval()
        torch.backends.quantized.engine = "qnnpack"
        try:
            net.qconfig = ao.get_default_qconfig("qnnpack")
            ao.prepare(net, inplace=True)
            net(torch.randn(4, 3, 8, 8))
            return torch.jit.script(ao.convert(net))
        finally:
            torch.backends.quantized.engine = before


def script_model(script: torch.jit.ScriptModule) -> Model:
    specs = (TensorSpec("x", "float32", (1, 3, 8, 8)),), (TensorSpec("output", "float32", None),)
    return Model(Source("net", "torchscript"), Signature(*specs), script=script)


def test_pitfall_q_01_an_eager_model_without_stubs_is_explained(tmp_path: Path) -> None:
    model = script_model(eager(stubs=False))
    _, runner = graphs.lowered("torchscript", model, tmp_path)
    with pytest.raises(UnsupportedError, match="without QuantStub") as caught:
        runner.run(nets.noise(1, 3, 8, 8)(0))
    assert caught.value.code == "quantized_without_stubs" and "--quantize static-int8" in caught.value.fix


def test_pitfall_q_01_one_with_stubs_runs_on_qnnpack(tmp_path: Path) -> None:
    script = eager(stubs=True)
    before = torch.backends.quantized.engine
    _, runner = graphs.lowered("torchscript", script_model(script), tmp_path)
    x = nets.noise(1, 3, 8, 8)(0)
    torch.backends.quantized.engine = "qnnpack"
    try:
        wanted = script(torch.from_numpy(x[0])).numpy()
    finally:
        torch.backends.quantized.engine = before
    assert np.array_equal(runner.run(x)[0], wanted)


def test_torchscript_without_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        nets.quantized(script_model(torch.jit.script(torch.nn.Conv2d(3, 4, 3))), "weight-int8", tmp_path)
    assert caught.value.code == "quantize_without_program" and ".pt2" in caught.value.fix


def test_int4_isn_t_offered() -> None:
    assert {"static-int8", "dynamic-int8", "weight-int8"} <= set(nets.RUNTIME.quantizations)
    assert "weight-int4" not in nets.RUNTIME.quantizations


class Faint(torch.nn.Module):
    """A layer with weights of 1e-30 whose answers matter, and one of ordinary size."""

    def __init__(self, value: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.faint, self.head = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 16)
        with torch.no_grad():
            self.faint.weight *= value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.faint(x) * 1e30)


@pytest.mark.parametrize("scheme", ["static-int8", "dynamic-int8", "weight-int8"])
def test_weights_below_int8_s_scales_do_not_become_zero(scheme: str, tmp_path: Path) -> None:
    model = nets.of(Faint(1e-30), torch.randn(2, 64))
    data = nets.samples(model, nets.noise(2, 64), tmp_path / "data")
    made, runner = nets.quantized(model, scheme, tmp_path, data)
    layers = nets.by_name(made)
    assert nets.worst(runner, model, nets.noise(2, 64)(99)) > GOOD
    assert layers["head"].precision == "int8"
    if scheme != "weight-int8":  # which multiplies in float32 and needs no scale above 1e-9
        assert layers["faint"].precision == "float32" and "too small for int8" in (layers["faint"].why or "")


def test_infinite_weights_stay_float(tmp_path: Path) -> None:
    net = Faint(1e-2)
    with torch.no_grad():
        net.head.weight[3, 3] = float("inf")
    made, _ = nets.quantized(nets.of(net, torch.randn(2, 64)), "dynamic-int8", tmp_path)
    layers = nets.by_name(made)
    assert layers["faint"].precision == "int8"
    assert layers["head"].precision == "float32" and "infinite" in (layers["head"].why or "")


class Cell(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.cell(x)
        return found


def test_weights_of_cells_alone_are_worth_a_file(tmp_path: Path) -> None:
    model = graphs.model_of(Cell(), (torch.randn(2, 16),))
    made, runner = nets.quantized(model, "weight-int8", tmp_path)
    assert nets.worst(runner, model, [np.ones((2, 16), np.float32)]) > 25
    assert {x.precision for x in made.layers if x.name.startswith("cell.weight")} == {"int8"}
