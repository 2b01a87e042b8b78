"""Dynamic dimensions: taken in the whole range that was asked, or refused with the line that pins them (E-02)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgesdk.artifacts import Dim, Model, Source, parse_input
from edgesdk.errors import UnsupportedError
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._export import export_module

HERE = Located("module", "net", Source("net", "module"))


def export(module: nn.Module, *inputs: str) -> Model:
    return export_module(module, HERE, ImportOptions(tuple(map(parse_input, inputs))))


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class Two(Linear):
    def forward(self, a: Any, b: Any) -> Any:
        return self.layer(a - 2 * b)


class Apart(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a.sum(0, keepdim=True) * b.sum(0, keepdim=True), torch.cat([a, b])


def symbols(model: Model) -> list[str | None]:
    return [d.symbol for s in model.signature.inputs for d in s.shape or () if isinstance(d, Dim)]


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_pitfall_e_02_every_size_of_the_range_works_size_1_included(size: int) -> None:
    model = export(Linear(), "x=float32[1..8,3]")
    assert str(model.signature.outputs[0]) == "output=float32[1..8,4]"
    assert model.program is not None
    x = torch.randn(size, 3)
    torch.testing.assert_close(model.program.module()(x), Linear()(x))


def test_dimensions_that_must_be_equal_share_a_symbol_and_others_do_not() -> None:
    one, other = symbols(export(Two(), "a=float32[1..8,3]", "b=float32[1..8,3]"))
    assert one is not None and one == other
    model = export(Apart(), "a=float32[1..8,3]", "b=float32[2..6,3]")
    one, other = symbols(model)
    assert one != other
    assert str(model.signature.outputs[1]) == "output_1=float32[3..14,3]", "a sum of two ranges"


def test_output_sizes_follow_from_the_ranges() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(3, 4, 3, 2, 1)

        def forward(self, x: Any) -> Any:
            y = self.down(x)
            return y, functional.interpolate(y, scale_factor=2), y.mean((2, 3))

    model = export(Net(), "x=float32[1..2,3,16..64,16..96]")
    shapes = [str(s).partition("=")[2] for s in model.signature.outputs]
    assert shapes == ["float32[1..2,4,8..32,8..48]", "float32[1..2,4,16..64,16..96]", "float32[1..2,4]"]


class Pinned(Linear):
    def forward(self, x: Any) -> Any:
        return self.layer(x).view(4, -1) + torch.ones(4, 4)


class Even(Linear):
    def forward(self, x: Any) -> Any:
        return self.layer(x).reshape(-1, 2, 4)


class ByNumber(Linear):
    def forward(self, x: Any) -> Any:
        return self.layer(x) if x.shape[0] > 5 else self.layer(x) * 2


class Stored(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.zeros(4, 4))

    def forward(self, x: Any) -> Any:
        return self.layer(x) + self.bias


@pytest.mark.parametrize("kind", [Pinned, Even, ByNumber, Stored])
def test_pitfall_e_02_a_pinned_size_is_refused_with_its_line(kind: type[nn.Module]) -> None:
    with pytest.raises(UnsupportedError, match=r"test_export_dynamic\.py:\d+") as caught:
        export(kind(), "x=float32[1..8,3]")
    assert caught.value.code == "dimension_not_dynamic"


def test_pitfall_e_02_ranges_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"1\.\.8.*2\.\.6"):
        export(Two(), "a=float32[1..8,3]", "b=float32[2..6,3]")


def test_pitfall_e_02_another_path_at_size_1_is_found() -> None:
    class Lone(Linear):
        def forward(self, x: Any) -> Any:
            return self.layer(x) if x.shape[0] == 1 else self.layer(x) * 2

    with pytest.raises(UnsupportedError, match=r"x=\[1, 3\]"):
        export(Lone(), "x=float32[1..8,3]")
    assert export(Lone(), "x=float32[2..8,3]").program is not None


def test_an_output_that_loses_a_dimension_at_size_1_is_found() -> None:
    class Squeezed(Linear):
        def forward(self, x: Any) -> Any:
            return self.layer(x).squeeze()

    with pytest.raises(UnsupportedError, match=r"shape \[4\]"):
        export(Squeezed(), "x=float32[1..8,3]")


def test_a_dynamic_number_of_steps_of_a_recurrent_layer_says_why_not() -> None:
    with pytest.raises(UnsupportedError, match="4..16") as caught:
        export(nn.LSTM(5, 6, batch_first=True), "input=float32[1..2,4..16,5]")
    assert "unrolls" in caught.value.why and "pad" in caught.value.fix
    assert "takes only" not in caught.value.message  # the number would be one that the export tried
    assert export(nn.LSTM(5, 6, batch_first=True), "input=float32[1..4,7,5]").program is not None


def test_attention_takes_a_dynamic_length() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert str(export(layer, "src=float32[1..2,4..64,8]").signature.outputs[0]) == "output=float32[1..2,4..64,8]"
