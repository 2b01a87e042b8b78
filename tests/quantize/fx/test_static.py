"""Static int8 in TorchScript Lite, judged by what the file answers on the Lite interpreter."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from edgesdk.artifacts import Lowered, Model
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.runtimes import LowerConfig, Runner
from tests.quantize.fx import nets
from tests.runtimes import graphs

F = torch.nn.functional
GOOD = 25.0  # dB; 8 bits give 30 to 45 on noise through a few layers


@pytest.fixture(scope="module")
def model() -> Model:
    return nets.small_model()


@pytest.fixture(scope="module")
def calibration(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nets.samples(model, nets.noise(1, 3, 8, 8), tmp_path_factory.mktemp("calibration"))


@pytest.fixture(scope="module")
def made(model: Model, calibration: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lowered, Runner]:
    return nets.quantized(model, "static-int8", tmp_path_factory.mktemp("made"), calibration)


def test_samples_that_calibration_never_saw_in_batches_of_any_size(made: tuple[Lowered, Runner], model: Model) -> None:
    for batch in (1, 3, 8):
        assert nets.worst(made[1], model, nets.noise(batch, 3, 8, 8)(1000)) > GOOD


def test_every_layer_is_reported_and_runs_in_int8(made: tuple[Lowered, Runner]) -> None:
    layers = nets.by_name(made[0])
    assert {"conv", "depthwise", "head"} <= set(layers)
    assert {layer.precision for layer in made[0].layers} == {"int8"}
    assert layers["head"].bytes == 200 * 16 * 4 and layers["conv"].op == "conv2d"
    found = nets.operators(made[0])
    assert {
        "quantized::conv2d_relu.new",
        "quantized::conv2d.new",
        "quantized::add",
        "quantized::linear_dynamic",
    } <= set(found)
    assert not {"aten::conv2d", "aten::linear", "aten::batch_norm"} & set(found)


def test_equal_bytes(made: tuple[Lowered, Runner], model: Model, calibration: Path, tmp_path: Path) -> None:
    again, _ = nets.quantized(model, "static-int8", tmp_path, calibration, "other")
    assert again.path.read_bytes() == made[0].path.read_bytes() and again.layers == made[0].layers


def test_layers_kept_in_float_keep_their_names_and_cost_no_accuracy(
    made: tuple[Lowered, Runner], model: Model, calibration: Path, tmp_path: Path
) -> None:
    kept, runner = nets.quantized(model, "static-int8", tmp_path, calibration, keep_float=("depthwise", "head"))
    layers = nets.by_name(kept)
    assert set(layers) >= {"conv", "depthwise", "head"}
    assert layers["depthwise"].precision == layers["head"].precision == "float32" and layers["head"].why
    assert layers["conv"].precision == "int8"
    x = nets.noise(4, 3, 8, 8)(1000)
    assert nets.worst(runner, model, x) > nets.worst(made[1], model, x)
    assert {"large_float_weights"} <= {w.code for w in kept.warnings}


def test_nothing_left_to_quantize_is_refused(model: Model, calibration: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="kept in float") as caught:
        nets.quantized(model, "static-int8", tmp_path, calibration, keep_float=("conv", "depthwise", "head"))
    assert caught.value.code == "nothing_quantized" and not list(tmp_path.iterdir())


def test_a_model_without_weights_says_what_it_consists_of(tmp_path: Path) -> None:
    plain = nets.of(torch.nn.ReLU(), torch.randn(2, 3))
    with pytest.raises(UnsupportedError, match="1 relu") as caught:
        nets.quantized(plain, "static-int8", tmp_path, nets.samples(plain, nets.noise(1, 3), tmp_path / "s"))
    assert caught.value.exit == 4


def test_without_samples(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        nets.quantized(model, "static-int8", tmp_path)
    assert caught.value.code == "no_calibration"
    with pytest.raises(InputError):
        nets.quantized(model, "static-int8", tmp_path, nets.samples(model, nets.noise(1, 3, 8, 8), tmp_path / "s", 0))


# -- pitfalls ---------------------------------------------------------------------------------------------------------


class Islands(torch.nn.Module):
    """Residual add, squeeze and excitation with its multiply, hardswish, and a GELU that has no int8 kernel."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        nn = torch.nn
        self.a, self.b, self.c = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))
        self.down, self.up, self.out = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.hardswish(self.a(x))
        s = F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(y, 1)))))
        y = self.b(y * s) + y
        return self.out(F.gelu(self.c(y)))


def test_pitfall_q_02_operators_without_int8_kernels_become_islands_that_are_listed(tmp_path: Path) -> None:
    model = nets.of(Islands(), torch.randn(2, 8, 6, 6))
    store = nets.samples(model, nets.noise(1, 8, 6, 6), tmp_path / "s")
    made, runner = nets.quantized(model, "static-int8", tmp_path, store)
    assert nets.worst(runner, model, nets.noise(3, 8, 6, 6)(1000)) > GOOD
    ops = {layer.op for layer in made.layers if layer.precision == "int8"}
    assert {"conv2d", "add", "mul", "hardswish", "hardsigmoid"} <= ops
    said = next(w for w in made.warnings if w.code == "float_islands")
    assert "gelu" in said.message and "hardswish" not in said.message


def test_pitfall_q_03_qnnpack_computes_and_the_engine_before_is_back(
    model: Model, calibration: Path, tmp_path: Path
) -> None:
    before = torch.backends.quantized.engine
    assert before != "qnnpack"
    made, runner = nets.quantized(model, "static-int8", tmp_path, calibration)
    assert torch.backends.quantized.engine == before
    answers = runner.run(nets.noise(1, 3, 8, 8)(1))
    torch.backends.quantized.engine = "fbgemm"
    try:  # whatever is active when the caller runs it, the file is computed as on the phone
        other = nets.RUNTIME.load(made.path, model.signature)
        assert all(np.array_equal(a, b) for a, b in zip(answers, other.run(nets.noise(1, 3, 8, 8)(1)), strict=True))
        with pytest.raises(InputError):
            other.run([np.zeros(3, np.float32)])
        with pytest.raises(InputError):
            nets.quantized(model, "static-int8", tmp_path)
        assert torch.backends.quantized.engine == "fbgemm"
    finally:
        torch.backends.quantized.engine = before


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_pitfall_q_04_transposed_convolutions(dims: int, groups: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    kind = getattr(torch.nn, f"ConvTranspose{dims}d")
    norm = getattr(torch.nn, f"BatchNorm{dims}d")(8)
    norm.running_mean.normal_()
    net = nets.One(torch.nn.Sequential(kind(4, 8, 3, stride=2, groups=groups), norm))
    model = nets.of(net, torch.randn(2, 4, *[6] * dims))
    store = nets.samples(model, nets.noise(1, 4, *[6] * dims), tmp_path / "s")
    made, runner = nets.quantized(model, "static-int8", tmp_path, store)
    layer = nets.by_name(made)["layer.0"]
    assert layer.precision == "int8" and (layer.why is None) == (groups == 1)
    assert nets.worst(runner, model, nets.noise(3, 4, *[6] * dims)(1000)) > GOOD


def test_pitfall_q_04_three_dimensions_stay_float_and_say_why(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv3d(2, 4, 3), torch.nn.Flatten(), torch.nn.Linear(32, 40))
    model = nets.of(net, torch.randn(2, 2, 4, 4, 4))
    store = nets.samples(model, nets.noise(1, 2, 4, 4, 4), tmp_path / "s")
    made, runner = nets.quantized(model, "static-int8", tmp_path, store)
    assert nets.by_name(made)["0"].precision == "float32" and "3-D" in str(nets.by_name(made)["0"].why)
    assert nets.worst(runner, model, nets.noise(3, 2, 4, 4, 4)(1000)) > GOOD


def test_pitfall_q_05_depthwise_convolutions_have_a_scale_for_each_channel(tmp_path: Path) -> None:
    """One channel's weights are a hundred times the others', and ReLU6 hides it, as folded batch norms of MobileNets do."""
    torch.manual_seed(0)
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.ReLU6(), nn.Conv2d(16, 8, 1))
    with torch.no_grad():
        net[0].weight[3] *= 100
        net[2].weight[:, 3] *= 0.1  # listen to the others
    model = nets.of(net, torch.randn(2, 16, 6, 6))
    store = nets.samples(model, nets.noise(1, 16, 6, 6), tmp_path / "s")
    x = nets.noise(3, 16, 6, 6)(1000)
    _, runner = nets.quantized(model, "static-int8", tmp_path, store)
    assert nets.worst(runner, model, x) > GOOD
    _, runner = nets.quantized(model, "static-int8", tmp_path, store, options={"per_channel": False})
    assert nets.worst(runner, model, x) < 15
    config = LowerConfig(quantization="static-int8", calibration=store, options={"per_channel": False})
    errors = nets.RUNTIME.layer_errors(model, config, 8)
    alone = {e.name: e.alone_db or 99 for e in errors}
    assert alone["0"] < alone["2"] - 3  # and this is how one finds it


class Flow(torch.nn.Module):
    """Control flow on sizes, a boolean default, ``self.training``, and a branch on data."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 8, 3)

    def forward(self, x: torch.Tensor, scaled: bool = True) -> torch.Tensor:
        if x.size(1) != 3:
            raise ValueError("three channels")
        y = self.a(x) * 2 if scaled else self.a(x)
        if self.training:
            y = y + torch.randn_like(y)
        y = torch.cond(x.sum() > 0, lambda y: y.relu(), lambda y: -y, (y,))
        return self.b(y)


def test_pitfall_q_07_control_flow_in_forward(tmp_path: Path) -> None:
    model = nets.of(Flow(), torch.randn(2, 3, 8, 8))
    made, runner = nets.quantized(
        model, "static-int8", tmp_path, nets.samples(model, nets.noise(1, 3, 8, 8), tmp_path / "s")
    )
    assert {layer.precision for layer in made.layers if layer.bytes} == {"int8"}
    x = nets.noise(2, 3, 8, 8)(1000)[0]
    for shift in (-1, 1):  # either branch
        assert nets.worst(runner, model, [x + np.float32(shift)]) > GOOD


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_pitfall_q_09_blank_samples_are_an_error_that_names_the_layer(
    model: Model, value: float, tmp_path: Path
) -> None:
    blank = nets.samples(model, lambda _: [np.full((1, 3, 8, 8), value, np.float32)], tmp_path / "s")
    with pytest.raises(InputError, match="Layer 'conv'") as caught:
        nets.quantized(model, "static-int8", tmp_path, blank)
    assert caught.value.code == "observer_untouched" and not (tmp_path / "small.ptl").exists()


def test_pitfall_q_19_calibration_holds_no_samples(model: Model, tmp_path: Path) -> None:
    """Histograms have a fixed size, however many samples stream through and however their range grows."""
    from edgesdk.quantize._fx._ranges import Histogram

    histogram = Histogram()
    for i in range(64):
        histogram.add(torch.randn(1000, generator=torch.Generator().manual_seed(i)) * 2.0**i)
        assert len(histogram._counts) <= 4097
    assert histogram.seen == 64_000


def test_infinite_values_and_channels_that_died(tmp_path: Path) -> None:
    """A mask of -inf in between, a convolution's channel without weights but with a bias: int8 around them, no nonsense."""
    net = Dead()
    model = nets.of(net, torch.randn(2, 4, 6, 6))
    store = nets.samples(model, nets.noise(1, 4, 6, 6), tmp_path / "s")
    made, runner = nets.quantized(model, "static-int8", tmp_path, store)
    assert nets.by_name(made)["a"].precision == "int8" and "infinite" in str(nets.by_name(made)["b"].why)
    x = nets.noise(3, 4, 6, 6)(1000)
    found, exact = runner.run(x), net(torch.from_numpy(x[0]))
    assert nets.snr(found[0], exact[0].detach().numpy()) > GOOD
    assert np.array_equal(np.isinf(found[1]), np.isinf(exact[1].detach().numpy()))


class Dead(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Conv2d(4, 4, 3), torch.nn.Conv2d(4, 4, 1)
        with torch.no_grad():
            self.a.weight[2], self.a.bias[2] = 1e-20, 3.0

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.a(x)
        return y * 2, self.b(torch.where(y > 2, float("-inf"), y))


def test_a_sample_that_the_model_can_t_take(model: Model, tmp_path: Path) -> None:
    store = nets.samples(model, nets.noise(1, 5, 8, 8), tmp_path / "s")
    with pytest.raises(InputError, match="sample 0") as caught:
        nets.quantized(model, "static-int8", tmp_path, store)
    assert caught.value.code == "calibration_failed"


class Deep(torch.nn.Module):
    """Hundreds of operators one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Linear(8, 40), torch.nn.Linear(40, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for _ in range(120):
            y = torch.erf(y) + 0.1
        return self.last(y)


def test_deep_graphs(tmp_path: Path) -> None:
    model = nets.of(Deep(), torch.randn(2, 8))
    made, _ = nets.quantized(model, "static-int8", tmp_path, nets.samples(model, nets.noise(1, 8), tmp_path / "s", 4))
    assert nets.by_name(made)["last"].precision == "int8"


# -- programs ---------------------------------------------------------------------------------------------------------


class Running(torch.nn.Module):
    """Keeps its hidden state from call to call."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = torch.nn.Linear(8, 64), torch.nn.Linear(64, 8)
        self.register_buffer("hidden", torch.zeros(1, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden.copy_(torch.tanh(self.inner(x) + 0.9 * self.hidden))
        found: torch.Tensor = self.outer(self.hidden)
        return found


def test_state_survives_calls_and_reset_forgets_it(tmp_path: Path) -> None:
    model = graphs.model_of(Running(), (torch.randn(1, 8),), stateful=True)
    store = nets.samples(model, nets.noise(1, 8), tmp_path / "s")
    _, runner = nets.quantized(model, "static-int8", tmp_path, store)
    net = copy.deepcopy(model.module)  # with the state that the program begins with
    assert net is not None
    given = nets.noise(1, 8)(5)
    with torch.no_grad():
        exact = [net(torch.from_numpy(given[0])).numpy() for _ in range(3)]
    found = [runner.run(given)[0] for _ in range(3)]
    assert all(nets.snr(a, b) > GOOD for a, b in zip(found, exact, strict=True))
    runner.reset()
    assert np.array_equal(runner.run(given)[0], found[0])


class Reuse(torch.nn.Module):
    """In-place operators, views, one layer called on two ranges, a list of parts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.same, self.head = torch.nn.Conv2d(4, 4, 3, padding="same"), torch.nn.Conv2d(4, 4, 1), None
        self.head = torch.nn.Linear(4 * 36, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).relu_()
        y += self.same(x)
        y = self.same(y * 8)
        y = torch.cat(y.chunk(2, dim=1)[::-1], 1)
        y[:, 0].mul_(2)
        return self.head(y.view(y.size(0), -1))


def test_in_place_operators_views_and_a_layer_that_is_called_twice(tmp_path: Path) -> None:
    model = nets.of(Reuse(), torch.randn(2, 4, 6, 6))
    store = nets.samples(model, nets.noise(1, 4, 6, 6), tmp_path / "s")
    made, runner = nets.quantized(model, "static-int8", tmp_path, store)
    assert [layer.name for layer in made.layers].count("same") == 1
    assert nets.worst(runner, model, nets.noise(3, 4, 6, 6)(1000)) > GOOD


def test_half_precision_models(tmp_path: Path) -> None:
    net = nets.Small().half()
    model = nets.of(net, torch.randn(2, 3, 8, 8).half())
    store = nets.samples(model, lambda i: [nets.noise(1, 3, 8, 8)(i)[0].astype(np.float16)], tmp_path / "s")
    _, runner = nets.quantized(model, "static-int8", tmp_path, store)
    x = nets.noise(2, 3, 8, 8)(1000)[0].astype(np.float16)
    found = runner.run([x])[0]
    assert found.dtype == np.float16
    assert nets.snr(found, net.float()(torch.from_numpy(x).float()).detach().numpy()) > GOOD


def test_an_older_bytecode(model: Model, calibration: Path, tmp_path: Path) -> None:
    _, runner = nets.quantized(model, "static-int8", tmp_path, calibration, bytecode=5)
    assert nets.worst(runner, model, nets.noise(1, 3, 8, 8)(1)) > GOOD


def test_values_beyond_the_samples_aren_t_clipped_at_once(tmp_path: Path) -> None:
    """Scores of later inputs exceed those of the calibration samples a little."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 48), torch.nn.ReLU(), torch.nn.Linear(48, 32))
    model = nets.of(net, torch.randn(2, 16))
    store = nets.samples(model, nets.noise(1, 16), tmp_path / "s")
    _, runner = nets.quantized(model, "static-int8", tmp_path, store, options={"observer": "minmax"})
    assert nets.worst(runner, model, nets.noise(64, 16)(1000)) > 28


def test_a_linear_layer_between_float_operators_keeps_its_outliers(tmp_path: Path) -> None:
    """One feature a hundred times the others, as in transformers: a fixed range for the output would drown the rest."""
    torch.manual_seed(0)
    nn = torch.nn
    net = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 32), nn.LayerNorm(32))
    with torch.no_grad():
        net[2].bias[0] += 100
    model = nets.of(net, torch.randn(2, 16))
    made, runner = nets.quantized(
        model, "static-int8", tmp_path, nets.samples(model, nets.noise(1, 16), tmp_path / "s")
    )
    assert "on the fly" in str(nets.by_name(made)["2"].why)
    x = nets.noise(64, 16)(1000)
    exact = net(torch.from_numpy(x[0])).detach().numpy()[:, 1:]
    assert nets.snr(runner.run(x)[0][:, 1:], exact) > GOOD


def test_layer_errors_name_the_layer_that_loses_most(tmp_path: Path) -> None:
    """A channel whose weights are a thousand times the others' spoils the activation behind it."""
    net = nets.Small()
    with torch.no_grad():
        net.depthwise.weight[3] *= 1000
    model = nets.of(net, torch.randn(2, 3, 8, 8))
    store = nets.samples(model, nets.noise(1, 3, 8, 8), tmp_path / "s")
    config = LowerConfig(quantization="static-int8", calibration=store)
    errors = nets.RUNTIME.layer_errors(model, config, 8)
    made, _ = nets.quantized(model, "static-int8", tmp_path, store)
    assert {e.name for e in errors} == set(nets.by_name(made))
    ranked = [e.snr_db for e in errors]
    assert all(isinstance(v, float) for v in ranked) and ranked == sorted(ranked, key=float)
    alone = {e.name: e.alone_db for e in errors}
    assert all(v is None or v > 0 for v in alone.values()) and alone["conv"] is not None
    fewer = nets.RUNTIME.layer_errors(model, LowerConfig(
        quantization="static-int8", calibration=store, keep_float=(errors[0].name,)
    ), 8)  # fmt: skip
    assert errors[0].name not in {e.name for e in fewer}


class Between(torch.nn.Module):
    """An operator that keeps the scale, between int8 layers."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.between = between
        self.first, self.last = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Conv2d(4, 5, 1)
        torch.nn.init.uniform_(self.first.bias, 1.0, 2.0)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.between(self.first(x)))
        return found


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(lambda x: F.relu6(F.max_pool2d(x, 2)), id="relu6"),  # channels-last data come out mixed up
        pytest.param(lambda x: F.max_pool2d(x, 2).clamp(0, 1.5), id="clamp"),
        pytest.param(lambda x: F.max_pool2d(x, 2).clamp_min(0), id="clamp_min"),
        pytest.param(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), id="average without border"),
        pytest.param(lambda x: F.avg_pool2d(x, 2, divisor_override=3), id="average with divisor"),
        pytest.param(lambda x: F.max_pool2d(x, 3, 1, 1, 2), id="dilated maximum"),
    ],
)
def test_what_qnnpack_computes_otherwise_is_computed_in_float(
    between: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path
) -> None:
    model = nets.of(Between(between).eval(), torch.randn(2, 3, 8, 8))
    calibration = nets.samples(model, nets.noise(1, 3, 8, 8), tmp_path / "samples")
    _, runner = nets.quantized(model, "static-int8", tmp_path, calibration)
    assert nets.worst(runner, model, nets.noise(1, 3, 8, 8)(99)) > 30
