"""A model that comes quantized may differ by what its own roundings explain, output by output, and by no more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn

from edgesdk.artifacts import Model, Verification
from edgesdk.fidelity import TOLERANCES, Outputs, compare
from edgesdk.importing._reference import reference_steps
from edgesdk.quantize._steps import roundings
from edgesdk.samples import Case, make_cases
from tests.runtimes.executorch_nets import model_of

ROUND = torch.ops.quantized_decomposed


class _Stepped(nn.Module):
    """An input in steps of 1/32, as ``convert_pt2e`` leaves them, and a float layer; beside it one that sees no rounding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.behind, self.beside = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = ROUND.quantize_per_tensor(x, 1 / 32, 0, -128, 127, torch.int8)
        return self.behind(ROUND.dequantize_per_tensor(q, 1 / 32, 0, -128, 127, torch.int8)), self.beside(x)


class _WeightsOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("weight", torch.randint(-127, 127, (10, 64), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(10) / 127)
        self.register_buffer("zeros", torch.zeros(10, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = ROUND.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        return nn.functional.linear(x, weight)


class _ByToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale, zero = ROUND.choose_qparams_per_token_asymmetric(x, torch.int8)
        q = ROUND.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        y: torch.Tensor = self.layer(ROUND.dequantize_per_token(q, scale, zero, -128, 127, torch.int8, torch.float32))
        return y


def _asked(net: nn.Module) -> tuple[Model, tuple[Case, ...], list[list[Outputs]]]:
    model = model_of(net.eval(), (torch.randn(8, 64),))
    cases = make_cases(model.signature, int_ranges={}, preprocess=None, stateful=False, seed=0)
    return model, cases, [reference_steps(model, case.feeds) for case in cases]


def _judged(net: nn.Module, changed: nn.Module) -> Verification:
    model, cases, reference = _asked(net)
    found = [reference_steps(model_of(changed.eval(), (torch.randn(8, 64),)), case.feeds) for case in cases]
    explained = roundings(model, cases, reference)
    return compare(model.signature, cases, reference, found, TOLERANCES["none"], roundings=explained)


def _off(net: _Stepped, layer: nn.Linear, share: float) -> _Stepped:
    with torch.no_grad():
        layer.weight += share * layer.weight.abs().mean() * torch.randn(layer.weight.shape)
    return net


def test_a_float_layer_that_sees_no_rounding_is_held_to_float() -> None:
    wrong = _Stepped()
    # 38 dB, which the other output's steps don't explain.
    verdict = _judged(_Stepped(), _off(wrong, wrong.beside, 0.01))
    assert verdict.verified is False and "y1" in (verdict.why or "")


def test_a_wrong_layer_behind_a_rounding_is_found() -> None:
    """One pair of quantize and dequantize once opened the whole file to 25 dB and a quarter of the largest value."""
    wrong = _Stepped()
    verdict = _judged(_Stepped(), _off(wrong, wrong.behind, 0.05))
    assert verdict.verified is False and verdict.outputs[0].snr_db is not None
    assert (
        25 < verdict.outputs[0].snr_db < 30
        and verdict.outputs[0].max_abs_error < 0.25 * verdict.outputs[0].max_abs_reference
    )


def test_values_that_fall_to_the_other_side_of_a_step_pass() -> None:
    class Nudged(_Stepped):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(x + 0.3 / 32)[0], self.beside(x)

    assert _judged(_Stepped(), Nudged()).verified is True


def test_rounded_weights_alone_explain_nothing() -> None:
    assert roundings(*_asked(_WeightsOnly())) == {}


@pytest.mark.parametrize("net", [_Stepped, _ByToken], ids=["tensor", "token"])
def test_each_way_of_rounding_is_measured(net: type[nn.Module]) -> None:
    found = next(iter(roundings(*_asked(net())).values()))
    assert 25 < found.snr_db < 50 and 1e-3 < found.relative < 0.25


def test_the_measurement_is_the_same_each_time_and_leaves_the_model_alone() -> None:
    model, cases, reference = _asked(_Stepped())
    assert roundings(model, cases, reference) == roundings(model, cases, reference)
    again = [reference_steps(model, case.feeds) for case in cases]
    for one, other in zip(reference, again, strict=True):
        for a, b in zip(one, other, strict=True):
            assert all(np.array_equal(a[name], b[name]) for name in a)
