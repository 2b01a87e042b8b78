"""Modules with unusual faces: what they return, write to or hold must not reach the phone in another form."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk import modelfile
from edgesdk.artifacts import Model, parse_input
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.importing import ImportOptions, import_module
from edgesdk.importing._reference import reference_outputs
from edgesdk.runtimes import LowerConfig, find

X = "x=float32[2,4]"


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Linear(4, 4)


class Scored(NamedTuple):
    score: torch.Tensor
    box: torch.Tensor


class NamedOutputs(Linear):
    def forward(self, x: torch.Tensor) -> Scored:
        return Scored(self.a(x), x + 1)


class WritesItsInput(Linear):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        x[0].mul_(2)
        return x, self.a(x)


class NothingInIt(Linear):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[:0], self.a(x)


class NamelessKey(Linear):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"": self.a(x), "a": x + 1, "a_1": x + 2}


class NeedsAKeptPosition(Linear):
    """Padding masks of attention: True is masked, and a row must keep something."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        torch._check(not bool(mask.all(-1).any()) if not torch.compiler.is_exporting() else True)
        return self.a(x).masked_fill(mask, float("-inf")).softmax(-1)


def imported(module: nn.Module, *inputs: str) -> Model:
    return import_module(module, ImportOptions(inputs=tuple(map(parse_input, inputs or (X,)))))


def run(model: Model, runtime: str, folder: Path, feed: dict[str, np.ndarray[Any, Any]]) -> list[Any]:
    lowered = find(runtime).lower(model, LowerConfig(), folder / "made")
    runner = find(runtime).load(lowered.path, model.signature)
    return list(runner.run([feed[s.name] for s in model.signature.inputs]))


@pytest.mark.parametrize("kind", [NamedOutputs, WritesItsInput, NothingInIt, NamelessKey])
def test_odd_outputs_survive_saving(kind: type[nn.Module], tmp_path: Path) -> None:
    model = imported(kind())
    modelfile.save(model, tmp_path)
    again, x = modelfile.load(tmp_path), np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    wanted, found = reference_outputs(model, {"x": x}), reference_outputs(again, {"x": x})
    assert list(wanted) == list(found)
    for name in wanted:
        np.testing.assert_array_equal(wanted[name], found[name])


def test_fields_of_a_named_tuple_name_the_outputs() -> None:
    assert [s.name for s in imported(NamedOutputs()).signature.outputs] == ["score", "box"]


def test_names_are_neither_empty_nor_twice_there() -> None:
    assert [s.name for s in imported(NamelessKey()).signature.outputs] == ["_", "a", "a_1"]


@pytest.mark.parametrize("runtime", ["executorch", "onnx", "torchscript"])
@pytest.mark.slow
def test_a_changed_input_is_no_output_and_the_callers_array_stays(runtime: str, tmp_path: Path) -> None:
    model, x = imported(WritesItsInput()), np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    kept = x.copy()
    found = run(model, runtime, tmp_path, {"x": x})
    wanted = [t.detach().numpy() for t in WritesItsInput()(torch.from_numpy(x.copy()))]
    assert len(found) == 2
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_array_equal(x, kept)


class WritesParts(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[:, 1] = 0
        y[0] += 2
        y[:, ::2] *= 3
        return self.a(y)


@pytest.mark.parametrize("shape", ["2", "1..6"])
def test_writes_to_parts_of_a_tensor_reach_onnx(shape: str, tmp_path: Path) -> None:
    """torch's exporter for TorchScript ends the process on this one."""
    model = imported(WritesParts(), f"x=float32[{shape},4]")
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    (found,) = run(model, "onnx", tmp_path, {"x": x})
    np.testing.assert_allclose(found, WritesParts()(torch.from_numpy(x)).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3, 4])
@pytest.mark.parametrize("net", [nn.GRU(4, 3, batch_first=True), nn.LSTMCell(4, 3)], ids=["gru", "lstm cell"])
@pytest.mark.slow
def test_pitfall_e_02_layers_that_split_a_tensor_keep_a_dynamic_batch_in_executorch(
    net: nn.Module, batch: int, tmp_path: Path
) -> None:
    """ExecuTorch's own check of dtypes pinned the batch to the example's."""
    shape = "1..4,2,4" if isinstance(net, nn.GRU) else "1..4,4"
    model = imported(net, f"input=float32[{shape}]")
    x = np.random.default_rng(0).normal(size=(batch, *((2, 4) if isinstance(net, nn.GRU) else (4,)))).astype("float32")
    found = run(model, "executorch", tmp_path, {"input": x})
    for one, other in zip(found, net(torch.from_numpy(x)), strict=True):
        np.testing.assert_allclose(one, other.detach().numpy(), atol=1e-5)


def reparametrized() -> nn.Module:
    from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = nn.Sequential(
            parametrizations.weight_norm(nn.Linear(4, 4)), weight_norm(nn.Linear(4, 3)), spectral_norm(nn.Linear(3, 3)),
            parametrizations.orthogonal(nn.Linear(3, 3)), nn.Linear(3, 4),
        )  # fmt: skip
    prune.l1_unstructured(net[4], "weight", 0.5)
    return net.eval()


def test_pitfall_c_01_reparametrized_weights_become_plain_ones_and_the_callers_stay(tmp_path: Path) -> None:
    net = reparametrized()
    x = torch.randn(2, 4)
    wanted, before = net(x).detach().numpy(), {k: v.clone() for k, v in net.state_dict().items()}
    model = imported(net, "input=float32[2,4]")
    assert "reparametrization_folded" in [w.code for w in model.warnings]
    assert model.program is not None and sum(p.numel() for p in model.program.parameters()) == 20 + 15 + 12 + 12 + 16
    (found,) = run(model, "executorch", tmp_path, {"input": x.numpy()})
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items()) and len(before) == len(net.state_dict())
    np.testing.assert_array_equal(net(x).detach().numpy(), wanted)


def test_sparse_weights_are_refused() -> None:
    class Sparse(Linear):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("s", torch.eye(4).to_sparse())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.mm(self.s, x.t())

    with pytest.raises(UnsupportedError, match="sparse"):
        imported(Sparse())


def test_a_derived_size_may_be_1_at_the_least_size(tmp_path: Path) -> None:
    class SecondHalf(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x[x.shape[0] // 2 :])

    model = imported(SecondHalf(), "x=float32[2..5,4]")
    for n in (2, 3, 5):
        x = np.random.default_rng(0).normal(size=(n, 4)).astype("float32")
        (found,) = run(model, "onnx", tmp_path, {"x": x})
        np.testing.assert_allclose(found, SecondHalf()(torch.from_numpy(x)).detach().numpy(), atol=1e-5)


def test_a_number_read_from_a_tensor_is_named_with_its_line(tmp_path: Path) -> None:
    class Item(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * x.sum().item()

    with pytest.raises(UnsupportedError, match=r"reads a number .*x\.sum\(\)\.item\(\)"):
        find("executorch").lower(imported(Item()), LowerConfig(), tmp_path / "made")


def test_lazy_layers_are_refused() -> None:
    with pytest.raises(InputError, match="lazy"):
        imported(nn.Sequential(nn.LazyLinear(3)), "input=float32[1,4]")


def test_a_model_without_inputs_is_refused_as_such() -> None:
    class Constant(Linear):
        def forward(self) -> torch.Tensor:
            return self.a.weight

    with pytest.raises(InputError, match="takes no inputs"):
        import_module(Constant(), ImportOptions())


def test_half_inputs_of_a_half_model_are_widened_with_it() -> None:
    model = imported(nn.Sequential(nn.Linear(4, 4)).half(), "input=float16[2,4]")
    assert model.signature.inputs[0].dtype == "float32" and "half_to_float32" in [w.code for w in model.warnings]


def test_examples_mask_no_whole_row() -> None:
    imported(NeedsAKeptPosition(), X, "mask=bool[2,4]")


def test_a_model_that_fails_on_a_sample_is_told_in_words() -> None:
    class Picky(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_exporting() and bool((x > 50).any()):
                raise ValueError("too large")
            return self.a(x)

    with pytest.raises(InputError, match="fails on an input") as caught:
        reference_outputs(imported(Picky()), {"x": np.full((2, 4), 99, "float32")})
    assert "too large" in caught.value.why


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 8, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


def test_a_packed_sequence_is_called_that() -> None:
    """torch's own words are about zeros() and a FakeTensor."""
    inputs = (parse_input("x=float32[2,5,4]"), parse_input("lengths=int64[2]"))
    with pytest.raises(UnsupportedError, match="can't be captured") as caught:
        import_module(Packed(), ImportOptions(inputs))
    assert caught.value.code == "packed_sequence"
    assert "PackedSequence" in caught.value.why and "lengths - 1" in caught.value.fix
