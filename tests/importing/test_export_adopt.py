"""Saved programs are taken over: names, ranges, inference form, half precision."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from edgesdk.artifacts import Model, Source, parse_input
from edgesdk.errors import InputError, UnsupportedError, UsageError
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._export import adopt_program
from edgesdk.importing._reference import reference_outputs, reference_steps
from edgesdk.runtimes import LowerConfig, find

HERE = Located("exported_program", "net.pt2", Source("net", "exported_program"))
X = torch.linspace(-1, 1, 6).reshape(2, 3)


def saved(program: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def adopt(program: ExportedProgram, *inputs: str) -> Model:
    return adopt_program(saved(program), HERE, ImportOptions(tuple(map(parse_input, inputs))))


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class Trains(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout()

    def forward(self, x: Any) -> Any:
        return self.drop(self.norm(self.layer(x)))


def dynamic(low: int = 1, high: int | None = None) -> ExportedProgram:
    return torch.export.export(Linear(), (X,), dynamic_shapes={"x": {0: Dim("n", min=low, max=high)}})


def test_names_come_from_the_program() -> None:
    class Nested(Linear):
        def forward(self, x: Any, *, y: Any) -> Any:
            return {"z": self.layer(x["q"][0]), "pair": (x["p"], y)}

    model = adopt(torch.export.export(Nested(), ({"q": [X], "p": X},), {"y": X}))
    assert [s.name for s in model.signature.inputs] == ["x.q.0", "x.p", "y"]
    assert [s.name for s in model.signature.outputs] == ["z", "pair.0", "pair.1"]


def test_ranges_come_from_the_program_and_open_ones_are_bounded_with_a_word() -> None:
    assert str(adopt(dynamic(1, 32)).signature.inputs[0]) == "x=float32[1..32,3]"
    model = adopt(dynamic())
    assert str(model.signature.outputs[0]) == "output=float32[1..8,4]"
    assert [w.code for w in model.warnings] == ["bound_chosen"]


def test_input_narrows_a_range_or_fixes_a_size() -> None:
    assert str(adopt(dynamic(1, 32), "x=float32[1..4,3]").signature.outputs[0]) == "output=float32[1..4,4]"
    assert str(adopt(dynamic(1, 32), "x=float32[3,3]").signature.outputs[0]) == "output=float32[3,4]"


@pytest.mark.parametrize("asked", ["x=float32[1..64,3]", "x=float32[2,4]", "x=int64[2,3]", "x=float32[2,3,1]"])
def test_input_that_contradicts_the_program_is_refused(asked: str) -> None:
    with pytest.raises(InputError, match="doesn't fit"):
        adopt(dynamic(1, 32), asked)


def test_an_unknown_input_is_named() -> None:
    with pytest.raises(UsageError, match="'y'"):
        adopt(dynamic(1, 32), "y=float32[2,3]")


@pytest.mark.parametrize("decomposed", [False, True])
def test_pitfall_e_03_a_program_exported_in_train_mode_is_set_to_inference(decomposed: bool) -> None:
    module = Trains().train()
    program = torch.export.export(module, (X,))
    model = adopt(program.run_decompositions({}) if decomposed else program)
    assert [w.code for w in model.warnings] == ["set_to_inference"]
    assert not model.stateful, "the counters of training are no state"
    wanted = module.eval()(X).detach().numpy()
    np.testing.assert_allclose(reference_outputs(model, {"x": X.numpy()})["output"], wanted, rtol=1e-5)


def test_constants_among_inputs_and_outputs_are_bound() -> None:
    class Times(Linear):
        def forward(self, x: Any, k: int, flag: Any = None) -> Any:
            return {"b": self.layer(x) * k, "a": (x, None)}

    model = adopt(torch.export.export(Times(), (X, 3)))
    assert [s.name for s in model.signature.inputs] == ["x"]
    assert [s.name for s in model.signature.outputs] == ["b", "a.0"]
    wanted = (Linear()(X) * 3).detach().numpy()
    np.testing.assert_allclose(reference_outputs(model, {"x": X.numpy()})["b"], wanted, rtol=1e-6)


def test_half_precision_is_widened_casts_included() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 4).half()

        def forward(self, x: Any) -> Any:
            return self.layer(x.half())

    model = adopt(torch.export.export(Half(), (X,)))
    assert [w.code for w in model.warnings] == ["half_to_float32"]
    assert model.signature.outputs[0].dtype == "float32"


def test_state_survives() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2, 3))

        def forward(self, x: Any) -> Any:
            self.total.add_(x)  # type: ignore[operator]
            return self.total * 1.0  # type: ignore[operator]

    for program in (torch.export.export(Sum(), (X,)), torch.export.export(Sum(), (X,)).run_decompositions({})):
        model = adopt(program)
        assert model.stateful
        first, second = reference_steps(model, [{"x": X.numpy()}] * 2)
        np.testing.assert_allclose(second["output"], 2 * first["output"])


def test_random_programs_are_refused() -> None:
    class Noisy(Linear):
        def forward(self, x: Any) -> Any:
            return self.layer(x + torch.rand_like(x))

    with pytest.raises(UnsupportedError, match="rand_like"):
        adopt(torch.export.export(Noisy(), (X,)))


def test_token_numbers_stay_inside_the_table() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(50, 3)

        def forward(self, tokens: Any) -> Any:
            return self.words(tokens)

    model = adopt(torch.export.export(Tokens(), (torch.zeros(2, 5, dtype=torch.int64),)))
    assert model.int_ranges == {"tokens": (0, 50)}


@pytest.mark.parametrize("high", [None, 6])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_pitfall_e_02_an_open_dimension_stays_dynamic_in_executorch(
    high: int | None, batch: int, tmp_path: Path
) -> None:
    """ExecuTorch takes the example's size for one without an upper bound."""
    model = adopt(dynamic(high=high))
    lowered = find("executorch").lower(model, LowerConfig(), tmp_path / "net.pte")
    x = np.random.default_rng(0).normal(size=(batch, 3)).astype("float32")
    (found,) = find("executorch").load(lowered.path, model.signature).run([x])
    np.testing.assert_allclose(found, Linear()(torch.from_numpy(x)).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "example", [torch.randn(3, 2).t(), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)]
)
def test_pitfall_e_09_an_example_in_another_order_asks_for_none(example: torch.Tensor, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(example[0].numel(), 2))
    model = adopt(torch.export.export(net, (example,)))
    lowered = find("executorch").lower(model, LowerConfig(), tmp_path / "net.pte")
    x = np.random.default_rng(0).normal(size=example.shape).astype("float32")
    (found,) = find("executorch").load(lowered.path, model.signature).run([x])
    np.testing.assert_allclose(found, net(torch.from_numpy(x)).detach().numpy(), atol=1e-5)


def test_one_example_tensor_for_two_inputs_is_told() -> None:
    class Two(Linear):
        def forward(self, x: Any, y: Any) -> Any:
            return self.layer(x) - self.layer(y * 2)

    assert "inputs_merged" in [w.code for w in adopt(torch.export.export(Two(), (X, X))).warnings]
    assert "inputs_merged" not in [w.code for w in adopt(torch.export.export(Two(), (X, X + 1))).warnings]


def test_state_written_in_place_beside_weights_that_train(tmp_path: Path) -> None:
    """Exported without no_grad(): the buffer takes a value that depends on weights."""

    class Mean(Linear):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("h", torch.zeros(1, 4))

        def forward(self, x: Any) -> Any:
            self.h.mul_(0.5).add_(self.layer(x).mean(0, keepdim=True))
            return self.h + 1

    model = adopt(torch.export.export(Mean(), (X,)))
    lowered = find("executorch").lower(model, LowerConfig(), tmp_path / "net.pte")
    runner, net = find("executorch").load(lowered.path, model.signature), Mean()
    for _ in range(3):
        (found,) = runner.run([X.numpy()])
        np.testing.assert_allclose(found, net(X).detach().numpy(), atol=1e-5)
