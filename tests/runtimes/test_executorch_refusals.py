"""The ladder, and what is refused before a file is written: named, with the line and a way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.errors import UnsupportedError
from edgesdk.runtimes import LowerConfig, _et_kernels, _et_lower, _et_translate
from tests.runtimes.executorch_nets import RUNTIME, Dim, TinyCnn, build, model_of, nets

X = torch.randn(3, 4)


class Sorts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x * 2).values


class Buckets(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(x, torch.tensor([0.0, 1.0]))


class Volumes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class Spectrum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.rfft(x).abs()


def refused(net: nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path, **more: Any) -> UnsupportedError:
    with pytest.raises(UnsupportedError) as caught:
        build(net, inputs, folder, **more)
    assert list(folder.iterdir()) == []  # neither a file nor half of one
    return caught.value


@pytest.mark.parametrize(
    ("net", "operator", "line", "advice"),
    [
        (Sorts, "aten::sort.values on float32", "torch.sort(x * 2).values", "torch.topk"),
        (Buckets, "aten::bucketize.Tensor", "torch.bucketize(x,", "boundaries < x.unsqueeze(-1)"),
    ],
)
def test_pitfall_e_05_operators_without_a_kernel(
    net: type[nn.Module], operator: str, line: str, advice: str, tmp_path: Path
) -> None:
    error = refused(net(), (X,), tmp_path)
    assert error.code == "unsupported_op"
    assert operator in error.message and line in error.message
    assert re.search(r"test_executorch_refusals\.py:\d+", error.message)
    assert advice in error.fix and "--runtime onnx" in error.fix


def test_pitfall_e_05_a_kernel_that_does_not_take_the_shape(tmp_path: Path) -> None:
    error = refused(Volumes(), (torch.randn(1, 2, 5, 5, 5),), tmp_path)
    assert "aten::convolution" in error.message and "self.conv(x)" in error.message
    assert "3-D or 4-D" in error.why


@pytest.mark.parametrize("operator", sorted(_et_kernels.REPLACEMENTS))
def test_no_replacement_is_offered_for_what_has_a_kernel(operator: str) -> None:
    from edgesdk.runtimes import _et_native

    names = {name.partition("::")[2].partition(".")[0] for name in _et_native.library()._get_operator_names()}
    assert operator not in names


REPLACED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "sort": (lambda x: torch.sort(x, descending=True).values, lambda x: torch.topk(x, x.shape[-1], dim=-1).values),
    "bucketize": (
        lambda x: torch.bucketize(x, torch.tensor([0.0, 1.0])),
        lambda x: (torch.tensor([0.0, 1.0]) < x.unsqueeze(-1)).sum(-1),
    ),
    "cumprod": (lambda x: x.abs().cumprod(-1), lambda x: torch.exp(torch.cumsum(torch.log(x.abs()), -1))),
    "median": (
        lambda x: x.median(-1).values,
        lambda x: torch.topk(x, (x.shape[-1] - 1) // 2 + 1, dim=-1, largest=False).values[..., -1],
    ),
}


@pytest.mark.parametrize("operator", sorted(REPLACED))
@pytest.mark.slow
def test_replacements_lower_and_give_the_same(operator: str, tmp_path: Path) -> None:
    original, replacement = REPLACED[operator]
    (got,) = build(replacement, (X,), tmp_path).run()
    assert torch.allclose(torch.from_numpy(got).double(), original(X).double(), atol=1e-5)


def test_pitfall_e_07_complex_numbers(tmp_path: Path) -> None:
    error = refused(Spectrum(), (X,), tmp_path)
    assert error.code == "complex_unsupported" and "torch.fft.rfft(x)" in error.message
    assert "real-valued front end" in error.fix and "--runtime onnx" in error.fix


@pytest.mark.slow
def test_pitfall_e_13_a_generous_upper_bound(tmp_path: Path) -> None:
    sizes = {2: torch.export.Dim("h", min=4, max=4096), 3: torch.export.Dim("w", min=4, max=4096)}
    dims = [(1, 3, Dim(4, 4096), Dim(4, 4096))]
    small = torch.randn(1, 3, 12, 12)
    error = refused(nn.Conv2d(3, 32, 3, padding=1), (small,), tmp_path, dynamic=(sizes,), dims=dims)
    assert error.code == "memory_budget" and "2.2 GiB" in error.message and "upper bound" in error.fix
    built = build(nn.Conv2d(3, 4, 3, padding=1), (small,), tmp_path, dynamic=(sizes,), dims=dims)
    assert built.lowered.planned_bytes is not None
    assert 0 <= built.lowered.planned_bytes - 448 * 2**20 < 4096  # 7 channels of 4096² float32, aligned
    assert [w.code for w in built.lowered.warnings] == ["planned_memory"]


def test_pitfall_e_13_no_upper_bound_at_all(tmp_path: Path) -> None:
    dynamic = ({2: torch.export.Dim("h", min=4)},)
    error = refused(nn.Conv2d(3, 4, 3, padding=1), (torch.randn(1, 3, 12, 12),), tmp_path, dynamic=dynamic)
    assert error.code == "unbounded_dim" and "--input" in error.fix


def test_pitfall_e_16_weights_without_values(tmp_path: Path) -> None:
    with torch.device("meta"):
        net = nn.Linear(3, 3)
        program = torch.export.export(net, (torch.randn(1, 3),))
    model = model_of(nn.Linear(3, 3), (torch.randn(1, 3),))
    from dataclasses import replace

    with pytest.raises(UnsupportedError) as caught:
        RUNTIME.lower(replace(model, program=program), LowerConfig(), tmp_path / "n.pte")
    assert caught.value.code == "no_weights"


def break_visitor(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Make XNNPACK's code for one operator fail, as it did in past releases for one operator or another."""
    from executorch.backends.xnnpack.operators.node_visitor import _node_visitor_dict

    def define_node(self: Any, node: torch.fx.Node, *rest: Any) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(_node_visitor_dict[target], "define_node", define_node)


@pytest.mark.slow
def test_the_ladder_leaves_out_the_offending_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_visitor(monkeypatch, "aten.max_pool2d.default")
    net, inputs = nets()["cnn"]
    built = build(net, inputs, tmp_path)
    lowered = built.lowered
    assert lowered.rung == "partial" and lowered.delegated_fraction == 1.0
    assert "aten::max_pool2d_with_indices" in lowered.leftovers
    assert built.error() < 1e-5
    (note,) = [w for w in lowered.warnings if w.code == "partial_delegation"]
    assert "max_pool2d" in note.message and "no such luck" in note.message


@pytest.mark.slow
def test_the_ladder_ends_with_portable_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend

    def preprocess(*args: Any) -> None:
        raise RuntimeError("broken altogether")

    monkeypatch.setattr(XnnpackBackend, "preprocess", staticmethod(preprocess))
    built = build(nn.Linear(4, 2), (X,), tmp_path)
    assert built.lowered.rung == "portable" and built.error() < 1e-5
    assert [w.code for w in built.lowered.warnings] == ["no_delegation"]


@pytest.mark.parametrize(
    ("rung", "left"), [("partial", {"aten::max_pool2d_with_indices"}), ("portable", {"aten::convolution"})]
)
def test_the_pipeline_may_ask_for_a_lower_rung(rung: Any, left: set[str], tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)).eval()
    built = build(net, (torch.randn(1, 3, 6, 6),), tmp_path, LowerConfig(rung=rung))
    assert built.lowered.rung == rung and left <= set(built.lowered.leftovers)
    assert built.error() < 1e-5


@pytest.mark.slow
def test_a_back_end_that_takes_nothing_is_refused(tmp_path: Path) -> None:
    net = nn.Embedding(10, 4).double()
    model = model_of(net, (torch.tensor([1, 2]),))
    with pytest.raises(UnsupportedError) as caught:
        RUNTIME.lower(model, LowerConfig(backend="vulkan"), tmp_path / "n.pte")
    assert caught.value.code == "nothing_delegated" and "--backend xnnpack" in caught.value.fix


@pytest.mark.slow
def test_long_recurrences_are_announced(tmp_path: Path) -> None:
    net, _ = nets()["lstm"]
    built = build(net, (torch.randn(1, 41, 4),), tmp_path)
    assert [w.code for w in built.lowered.warnings] == ["unrolled_recurrence"]
    assert "41 time steps" in built.lowered.warnings[0].message
    assert built.error() < 1e-5


TEXTS = {
    "Operator torch._ops.aten.bucketize.Tensor is not in Core ATen opset (https://…)": "unsupported_op",
    "Missing out variants: {'aten::foo', 'my::bar'}": "unsupported_op",
    "Could not guard on data-dependent expression u0 > 3": "data_dependent",
    "Memory allocator node requires concrete upper-bounded dimensions.": "unbounded_dim",
    "something new": "lowering_failed",
}


@pytest.mark.parametrize("text", sorted(TEXTS))
def test_foreign_errors_become_ours(text: str) -> None:
    program = torch.export.export(nn.Linear(2, 2), (torch.randn(1, 2),))
    try:
        try:
            raise RuntimeError(text)
        except RuntimeError as inner:
            raise Exception("An error occurred when running the 'X' pass after the following passes: []") from inner
    except Exception as outer:
        error = _et_translate.lowering_failed(outer, program, "xnnpack")
    assert error.code == TEXTS[text] and error.exit == 4
    assert "An error occurred when running" not in error.why


def test_a_user_without_room_gets_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_et_lower, "smoke", full)
    with pytest.raises(OSError, match="No space left"):
        build(TinyCnn(), (torch.randn(1, 3, 8, 8),), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_arithmetic_on_dynamic_sizes_is_lowered(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.sum(1) * (x.shape[1] * 0.5)  # torch.sym_float, which upstream's check doesn't know

    model = model_of(
        Scaled(), (torch.ones(2, 3),), dynamic=({1: torch.export.Dim("t", min=2, max=8)},), dims=[(2, Dim(2, 8))]
    )
    lowered = RUNTIME.lower(model, LowerConfig(), tmp_path / "m.pte")
    runner = RUNTIME.load(lowered.path, model.signature)
    assert [float(runner.run([np.ones((2, t), "float32")])[0][0]) for t in (2, 8)] == [2.0, 32.0]
    runner.close()
