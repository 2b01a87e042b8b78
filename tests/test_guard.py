"""The search for layers to restore: measured at every step, minimal, and honest when it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgesdk.artifacts import Layer, LayerError, Lowered, OutputFidelity, Verification
from edgesdk.errors import GateError
from edgesdk.evaluation import Evaluation, Guarded, Score
from edgesdk.guard import Search, Tools

NAMES = [f"layer{i:02}" for i in range(20)]
ERRORS = tuple(LayerError(name, "conv2d", 30.0 - i, alone_db=20.0 + i) for i, name in enumerate(NAMES))


class Net:
    """A made-up net whose metric drops by what each quantized layer costs; counts what was lowered."""

    def __init__(
        self, costs: dict[str, float], names: list[str] = NAMES, bytes_of: Callable[[str], int] = lambda n: 8
    ) -> None:
        self.costs, self.names, self.bytes_of = costs, names, bytes_of
        self.lowered: list[tuple[str, ...]] = []

    def lower(self, keep: tuple[str, ...], folder: Path) -> tuple[Lowered, Verification]:
        self.lowered.append(keep)
        layers = tuple(Layer(n, "conv2d", "float32" if n in keep else "int8", self.bytes_of(n)) for n in self.names)
        low = Lowered("executorch", "xnnpack", "static-int8", folder / "f.pte", "full", layers=layers)
        return low, Verification(verified=True)

    def evaluate(self, lowered: Lowered) -> Evaluation:
        drop = sum(self.costs.get(layer.name, 0.0) for layer in lowered.layers if layer.precision == "int8")
        score = Score("top1", 90.0, 90.0 - drop, drop, 1000)
        output = OutputFidelity("y", 0.1, 0.01, 1.0, 20.0)
        return Evaluation(
            1000, "evaluation", "host", score, top1=1 - drop / 100, flipped=int(10 * drop), outputs=(output,)
        )

    def search(self, max_drop: float | None, folder: Path) -> tuple[Lowered, Verification, Guarded]:
        tools = Tools(self.lower, self.evaluate, lambda: ERRORS, lambda *_: None)
        return Search("executorch-xnnpack-static-int8", max_drop, tools, folder).run()


def test_a_file_that_holds_is_lowered_once(tmp_path: Path) -> None:
    net = Net({"layer03": 0.4})
    lowered, _, guarded = net.search(0.5, tmp_path)
    assert net.lowered == [()] and guarded.restored == () and lowered.layers[3].precision == "int8"


@pytest.mark.parametrize("guilty", [1, 2, 3, 5, 8, 13, 19])
def test_the_fewest_layers_of_the_ranking_go_back(guilty: int, tmp_path: Path) -> None:
    net = Net(dict.fromkeys(NAMES[:guilty], 2.0))
    lowered, _, guarded = net.search(1.0, tmp_path)
    assert guarded.restored == tuple(NAMES[:guilty])
    assert [layer.name for layer in lowered.layers if layer.precision == "float32"] == NAMES[:guilty]
    assert guarded.evaluation.score is not None and guarded.evaluation.score.drop == 0.0
    assert len(net.lowered) <= 11  # gallop and bisection, not one step a layer
    assert [p.restored for p in guarded.probes] == [len(keep) for keep in net.lowered]


def test_when_only_float_holds_nothing_is_shipped(tmp_path: Path) -> None:
    net = Net({NAMES[-1]: 2.0})
    with pytest.raises(GateError) as caught:
        net.search(1.0, tmp_path)
    assert caught.value.code == "gate_not_met"
    assert "drop of 2.00 points" in str(caught.value.message) and "19 → drop 2.00" in caught.value.why
    assert len(caught.value.details["probes"]) == len(net.lowered)


def test_a_file_without_a_quantized_weight_is_no_int8_file(tmp_path: Path) -> None:
    """Operators without weights come last in the ranking: int8 additions alone are no reason to ship."""
    names = ["conv", "add"]
    net = Net({"conv": 3.0}, names, bytes_of=lambda n: 8 if n == "conv" else 0)
    with pytest.raises(GateError, match="max-drop"):
        net.search(1.0, tmp_path)
    assert all("conv" not in keep for keep in net.lowered)


def test_without_a_limit_a_collapse_is_refused_with_the_worst_layers(tmp_path: Path) -> None:
    net = Net(dict.fromkeys(NAMES[:3], 20.0))
    with pytest.raises(GateError) as caught:
        net.search(None, tmp_path)
    assert caught.value.code == "accuracy_collapsed" and net.lowered == [()]
    assert "layer00 (conv2d) 30.0 dB, alone 20.0 dB" in caught.value.why and "--max-drop" in caught.value.fix
