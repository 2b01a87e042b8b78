"""State between calls: buffers are exported, Python attributes are never baked in without a word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.artifacts import Model, Source, parse_input
from edgesdk.errors import UnsupportedError
from edgesdk.importing import import_module
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._export import export_module
from edgesdk.importing._reference import reference_outputs, reference_steps

HERE = Located("module", "net", Source("net", "module"))


def export(module: nn.Module) -> Model:
    return export_module(module, HERE, ImportOptions((parse_input("x=float32[2,3]"),)))


def steps(model: Model, count: int = 3) -> list[np.ndarray[Any, Any]]:
    feeds = [{"x": np.full((2, 3), i + 1, np.float32)} for i in range(count)]
    return [answer["output"] for answer in reference_steps(model, feeds)]


def program_steps(model: Model, count: int = 3) -> list[np.ndarray[Any, Any]]:
    assert model.program is not None
    module = model.program.module()
    return [module(torch.full((2, 3), i + 1.0)).detach().numpy().copy() for i in range(count)]


class Attribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.hidden = nn.GRUCell(3, 4), torch.zeros(2, 4)

    def forward(self, x: Any) -> Any:
        self.hidden = self.cell(x, self.hidden)
        return self.hidden


class Late(Attribute):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = None  # type: ignore[assignment]

    def forward(self, x: Any) -> Any:
        self.hidden = self.cell(x) if self.hidden is None else self.cell(x, self.hidden)
        return self.hidden


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def forward(self, x: Any) -> Any:
        self.seen.append(x)
        return torch.stack(self.seen).sum(0)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


@pytest.mark.parametrize(
    ("kind", "name"), [(Attribute, "hidden"), (Late, "hidden"), (Listed, "seen"), (Counter, "calls")]
)
def test_hidden_state_in_attributes_is_refused_by_name(kind: type[nn.Module], name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"self.{name}") as caught:
        export(kind())
    assert caught.value.code == "hidden_state" and "register_buffer" in caught.value.fix


class Cache(nn.Module):
    """Attributes that never change an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.places, self.calls = nn.Linear(3, 3), None, 0

    def forward(self, x: Any) -> Any:
        if self.places is None:
            self.places = torch.arange(3.0)  # type: ignore[assignment]
        self.calls += 1
        self.shown = self.layer(x + self.places)
        return self.shown


def test_caches_and_counters_that_change_no_answer_are_fine() -> None:
    model = export(Cache())
    assert not model.stateful and model.program is not None


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: Any) -> Any:
        self.total.add_(x)  # type: ignore[operator]
        return self.total * 1.0  # type: ignore[operator]


class Replaced(InPlace):
    def forward(self, x: Any) -> Any:
        old = self.total
        self.total = self.total + x  # type: ignore[operator]
        return self.total + 10 * old  # type: ignore[operator]


class Deep(nn.Module):
    """torch 2.15 drops the replacement of a buffer in a submodule without a word."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Replaced(), Replaced()

    def forward(self, x: Any) -> Any:
        return self.first(x) + self.second(2 * x)


@pytest.mark.parametrize("kind", [InPlace, Replaced, Deep])
def test_buffers_that_forward_changes_are_carried_from_call_to_call(kind: type[nn.Module]) -> None:
    model = export(kind())
    assert model.stateful
    module = kind()
    wanted = [module(torch.full((2, 3), i + 1.0)).numpy().copy() for i in range(3)]
    for found in (steps(model), steps(model), program_steps(model)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_buffer_that_grows_is_refused() -> None:
    class Grows(InPlace):
        def forward(self, x: Any) -> Any:
            self.total = torch.cat([self.total, x])  # type: ignore[list-item]
            return self.total.sum(0)

    with pytest.raises(UnsupportedError, match="total"):
        export(Grows())


def test_hooks_that_the_first_call_installs_are_no_state() -> None:
    class Installs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = nn.Linear(3, 3), False
            self.collected: Any = None

        def forward(self, x: Any) -> Any:
            if not self.seen:
                self.layer.register_forward_hook(lambda layer, given, made: made * 2)
                self.seen = True
            return self.layer(x)

    model = import_module(Installs(), ImportOptions(inputs=(parse_input("x=float32[2,3]"),)))
    assert not model.stateful


def test_the_reference_forgets_earlier_calls() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.total.add_(x)  # type: ignore[operator]
            return self.total + 0  # type: ignore[operator]

    model = export_module(Sum(), HERE, ImportOptions((parse_input("x=float32[3]"),)))
    one = {"x": np.ones(3, np.float32)}
    found = reference_steps(model, [one, one])
    assert found[0]["output"].tolist() == [1, 1, 1] and found[1]["output"].tolist() == [2, 2, 2]
    assert reference_outputs(model, one)["output"].tolist() == [1, 1, 1]
