"""Which layers lose most: the float and the quantized graph side by side, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import LayerError, Model
from edgesdk.quantize._fx._engine import engine
from edgesdk.quantize._fx._graph import Player, Work
from edgesdk.quantize._fx._quantize import Feeds, Prepared, prepare
from edgesdk.quantize._fx._report import Made

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

    from edgesdk.runtimes._base import LowerConfig

_ALONE = 64  # layers that are also tried alone, the noisiest
_ALONE_SAMPLES = 8


class Noise:
    """Sums of squares of a signal and of its error."""

    def __init__(self) -> None:
        self.signal = self.error = 0.0

    def add(self, exact: torch.Tensor, found: torch.Tensor) -> None:
        exact = exact.double()
        self.signal += float(exact.square().sum())
        self.error += float((found.double() - exact).square().sum())

    @property
    def db(self) -> float | None:
        """None when there is no error; -inf can't be: a signal of zero counts as the smallest number."""
        if self.error == 0:
            return None
        return 10 * math.log10(max(self.signal, 1e-300) / self.error)


def layer_errors(model: Model, config: LowerConfig, samples: int, with_alone: bool) -> tuple[LayerError, ...]:
    """See ``EdgeRuntime.layer_errors``. Needs ``config.calibration`` whatever the scheme.

    Raises:
        InputError: there are no samples, or they leave a layer without a range.
    """
    from edgesdk.quantize._fx._quantize import no_samples

    if config.calibration is None:
        raise no_samples(config.quantization)
    with engine():
        prepared = prepare(model, config)
        feeds = Feeds(config.calibration, samples)
        work, made = prepared.quantized(config.keep_float)
        noise = _side_by_side(prepared, work, made, feeds)
        ranked = sorted(noise, key=lambda name: (_worst_first(noise[name].db), name))
        weighted = sorted(ranked, key=lambda name: not made.layers[name].bytes)  # those that restoring helps
        alone = _alone(prepared, made, weighted[:_ALONE], feeds) if with_alone else {}
    return tuple(LayerError(n, made.layers[n].op, noise[n].db, alone.get(n)) for n in ranked)


def _worst_first(db: float | None) -> float:
    return math.inf if db is None else db


def _side_by_side(prepared: Prepared, work: Work, made: Made, feeds: Feeds) -> Mapping[str, Noise]:
    """Noise at each quantized layer's output with everything quantized."""
    names = [n for n, layer in made.layers.items() if layer.precision == "int8" and n in made.nodes]
    noise = {name: Noise() for name in names}
    tails = {made.tails[name]: name for name in names}
    places = {made.nodes[name]: name for name in names}
    exact: dict[str, torch.Tensor] = {}

    def remember(node: Node, value: Any) -> None:
        if node.name in tails:
            exact[tails[node.name]] = _plain(value)

    def compare(node: Node, value: Any) -> None:
        name = places.get(node.name)
        if name is not None:
            noise[name].add(exact.pop(name), _plain(value))

    float_player = Player(prepared.graph, prepared.model.signature)
    player = Player(work, prepared.model.signature)
    for feed in feeds:
        float_player.play(feed, remember)
        player.play(feed, compare)
    return noise


def _alone(prepared: Prepared, made: Made, names: list[str], feeds: Feeds) -> Mapping[str, float | None]:
    """Noise at the model's outputs when one layer alone is quantized."""
    signature = prepared.model.signature
    some = list(islice(feeds, _ALONE_SAMPLES))
    player = Player(prepared.graph, signature)
    exact = [player.play(feed) for feed in some]
    everything = {n for n, layer in made.layers.items() if layer.precision == "int8"}
    found: dict[str, float | None] = {}
    for name in names:
        work, alone = prepared.quantized(everything - {name} | _floats(made), name)
        layer = alone.layers.get(name)
        if layer is None or layer.precision != "int8":
            continue
        player = Player(work, signature)
        found[name] = _outputs([player.play(feed) for feed in some], exact)
    return found


def _floats(made: Made) -> set[str]:
    return {n for n, layer in made.layers.items() if layer.precision != "int8"}


def _outputs(found: list[list[Any]], exact: list[list[Any]]) -> float | None:
    """dB of the worst output; None when no output changed."""
    import torch

    worst: float | None = None
    for column, wanted in zip(zip(*found, strict=True), zip(*exact, strict=True), strict=True):
        noise = Noise()
        for a, b in zip(column, wanted, strict=True):
            if isinstance(b, torch.Tensor) and b.is_floating_point():
                noise.add(b, a)
        if noise.db is not None:
            worst = noise.db if worst is None else min(worst, noise.db)
    return worst


def _plain(value: Any) -> torch.Tensor:
    """A float tensor; of a recurrent layer's results, the sequence."""
    first: torch.Tensor = value[0] if isinstance(value, (tuple, list)) else value
    return first.dequantize() if first.is_quantized else first.float()
