"""One scheme applied to one program: the graph that the writer takes, and what became of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Layer, Model, Warn
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.quantize import find
from edgesdk.quantize._fx import _static
from edgesdk.quantize._fx._engine import engine
from edgesdk.quantize._fx._graph import Player, Stopped, Work, copy_of
from edgesdk.quantize._fx._normal import normalize

if TYPE_CHECKING:
    import numpy as np

    from edgesdk.runtimes._base import LowerConfig

_ATTEMPTS = 8


@dataclass(frozen=True)
class Quantized:
    """A program with int8 operators, and the report on it.

    Attributes:
        work: stands for an exported program (``_ts_build.build`` takes it).
    """

    work: Work
    layers: tuple[Layer, ...]
    warnings: tuple[Warn, ...] = ()


def quantize(model: Model, config: LowerConfig) -> Quantized:
    """Carry out ``config.quantization``.

    Raises:
        InputError: no calibration samples, or samples that leave a layer without a range.
        UnsupportedError: nothing in the model can be quantized this way.
    """
    with engine():
        return _static_int8(model, config)


def _static_int8(model: Model, config: LowerConfig) -> Quantized:
    prepared = prepare(model, config)
    work, placed = prepared.placed(config.keep_float)
    return Quantized(work, layers_of(prepared.float, placed))


@dataclass
class Prepared:
    """The float graph with the ranges of its values: what every choice of int8 layers starts from."""

    model: Model
    float: Work
    ranges: _static.Ranges
    settings: _static.Settings
    feeds: Feeds

    def __post_init__(self) -> None:
        self.refused: set[str] = set()
        self.cache: dict[Any, Any] = {}

    def placed(self, keep: Any) -> tuple[Work, _static.Placed]:
        """A copy with int8 operators, tried on one sample; operators that the engine doesn't run are left in float."""
        for _ in range(_ATTEMPTS):
            work = copy_of(self.float)
            done = _static.place(work, self.ranges, self.settings, keep, self.refused, self.cache)
            try:
                Player(work, self.model.signature).play(next(iter(self.feeds)))
            except Stopped as exc:
                name = exc.node.meta.get("from")
                if name is None or name in self.refused:
                    raise
                self.refused.add(name)
                continue
            return work, done
        raise UnsupportedError(
            "nothing_quantized", "QNNPACK runs too few of this model's operators in int8.",
            why=f"It refused {', '.join(sorted(self.refused))}.", fix="Use --quantize weight-int8.",
        )  # fmt: skip


@dataclass(frozen=True)
class Feeds:
    """The calibration samples, read from disk each time they are iterated."""

    folder: Any
    count: int

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        from edgesdk.data._store import Store

        return (sample.feed for sample in Store(self.folder).first(self.count))


def prepare(model: Model, config: LowerConfig) -> Prepared:
    """Normalize the program and measure the ranges of its values."""
    scheme: Any = find(config.quantization, config.options)
    if config.calibration is None:
        raise no_samples(config.quantization)
    feeds = Feeds(config.calibration, scheme.samples)
    if next(iter(feeds), None) is None:
        raise no_samples(config.quantization)
    work = normalize(model.program)  # type: ignore[arg-type]
    ranges = _static.observe(work, model.signature, feeds)
    return Prepared(model, work, ranges, _static.Settings(scheme.per_channel, scheme.observer), feeds)


def no_samples(scheme: str) -> InputError:
    return InputError(
        "no_calibration", f"{scheme} needs calibration samples, and there are none.",
        why="The range of each activation is measured on real inputs.", fix="Give --calibration PATH with 32 or more.",
    )  # fmt: skip


def layers_of(work: Work, placed: _static.Placed) -> tuple[Layer, ...]:
    found: dict[str, Layer] = {}
    for unit in placed.units.values():
        found[unit.name] = Layer(unit.name, unit.op, "int8", unit.bytes, placed.why.get(unit.name))
    return tuple(found.values())
