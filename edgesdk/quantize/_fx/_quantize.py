"""One scheme applied to one program: the graph that the writer takes, and what became of each layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk._memory import park
from edgesdk.artifacts import Layer, Model, Warn
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.quantize import _already, find
from edgesdk.quantize._fx import _dynamic, _islands, _static, _stored
from edgesdk.quantize._fx._engine import engine
from edgesdk.quantize._fx._graph import Player, Stopped, Work, copy_of, op_name
from edgesdk.quantize._fx._normal import normalize
from edgesdk.quantize._fx._report import Made, fill
from edgesdk.quantize._fx._tuned import tuned

if TYPE_CHECKING:
    import numpy as np

    from edgesdk.runtimes._base import LowerConfig

_ATTEMPTS = 8
_MOST = 512  # training takes all samples; ranges hardly move beyond these
_LARGE = 0.1  # share of the weights' bytes from which float ones are worth a word


@dataclass(frozen=True)
class Quantized:
    """A program with int8 operators, and the report on it.

    Attributes:
        work: stands for an exported program (``_ts_build.build`` takes it).
    """

    work: Work
    layers: tuple[Layer, ...]
    warnings: tuple[Warn, ...] = ()


@dataclass(frozen=True)
class Feeds:
    """The calibration samples, read from disk each time they are iterated."""

    folder: Path
    count: int

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        from edgesdk.data._store import Store

        return (sample.feed for sample in Store(self.folder).first(self.count))


@dataclass
class Prepared:
    """The float graph and what was measured on it: what every choice of int8 layers starts from."""

    model: Model
    scheme: Any
    graph: Work
    feeds: Feeds | None = None
    ranges: _static.Ranges = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    cache: dict[Any, Any] = field(default_factory=dict)

    def quantized(self, keep: Collection[str], force: str | None = None) -> tuple[Work, Made]:
        """A quantized copy of the graph with the layers of ``keep`` in float; ``force`` is int8 even on its own."""
        if self.scheme.calibrated:
            return self._static(keep, force)
        work, made = copy_of(self.graph), Made()
        if self.scheme.name == "dynamic-int8":
            _dynamic.linears(work, keep, self.scheme.per_channel, made)
            self._rest(work, keep, made)
        else:
            _stored.store(work, keep, made)
        work.clean()
        return work, made

    def _rest(self, work: Work, keep: Collection[str], made: Made) -> None:
        _dynamic.recurrent(work, keep, self.scheme.per_channel, made)
        _stored.store_embeddings(work, keep, made)

    def _static(self, keep: Collection[str], force: str | None) -> tuple[Work, Made]:
        """Tried on one sample; operators that the engine doesn't run are left in float."""
        settings = _static.Settings(self.scheme.per_channel, self.scheme.observer)
        for _ in range(_ATTEMPTS):
            work = copy_of(self.graph)
            made = _static.place(work, self.ranges, settings, keep, self.refused, self.cache, force)
            self._rest(work, keep, made)
            work.clean()
            try:
                Player(work, self.model.signature).play(next(iter(self.feeds or ())))
            except Stopped as exc:
                name = exc.node.meta.get("from")
                if name is None or name in self.refused:
                    raise
                self.refused.add(name)
                continue
            return work, made
        raise UnsupportedError(
            "nothing_quantized", "QNNPACK runs too few of this model's operators in int8.",
            why=f"It refused {', '.join(sorted(self.refused))}.", fix="Use --quantize weight-int8.",
        )  # fmt: skip


def quantize(model: Model, config: LowerConfig) -> Quantized:
    """Carry out ``config.quantization``.

    Raises:
        InputError: no calibration samples, or samples that leave a layer without a range.
        UnsupportedError: nothing in the model can be quantized this way.
    """
    _already.refuse(model, config.quantization)
    with engine():
        prepared = prepare(model, config)
        work, made = prepared.quantized(config.keep_float)
    layers = fill(made, prepared.graph, config.quantization)
    if not made.quantized:
        raise _nothing(prepared.graph, config, layers)
    said = prepared.model.warnings if prepared.model is not model else ()  # by the training
    return Quantized(work, layers, (*said, *_large(layers), *_islands.warn(work)))


def prepare(model: Model, config: LowerConfig) -> Prepared:
    """Normalize the program and, for schemes that need it, measure the ranges of its values."""
    scheme: Any = find(config.quantization, config.options)
    program: Any = model.program
    if not scheme.calibrated:
        return Prepared(model, scheme, normalize(program))
    if config.calibration is None:
        raise no_samples(scheme.name)
    feeds = Feeds(config.calibration, min(scheme.samples, _MOST) if scheme.labelled else scheme.samples)
    if next(iter(feeds), None) is None:
        raise no_samples(scheme.name)
    if scheme.labelled:
        model = tuned(model, config)
    program = model.program  # of the tuned model, where there is one
    work = normalize(program)
    park(program.state_dict.values())  # batch norms are folded into other weights now
    return Prepared(model, scheme, work, feeds, _static.observe(work, model.signature, feeds))


# -- what to tell -----------------------------------------------------------------------------------------------------


def no_samples(scheme: str) -> InputError:
    return InputError(
        "no_calibration", f"{scheme} needs calibration samples, and there are none.",
        why="The range of each activation is measured on real inputs.", fix="Give --calibration PATH with 32 or more.",
    )  # fmt: skip


def _nothing(work: Work, config: LowerConfig, layers: tuple[Layer, ...]) -> UnsupportedError:
    counted = Counter(op_name(n.target) for n in work.graph.nodes if n.op == "call_function")
    parts = ", ".join(f"{count} {name}" for name, count in counted.most_common(6))
    asked = [layer.name for layer in layers if layer.name in config.keep_float]
    if asked and all(layer.name in asked for layer in layers if layer.bytes):
        why = "Every layer with weights was to be kept in float."
        fix = "Leave out --quantize, or allow more of them in int8 (--max-drop)."
    else:
        why = f"The model consists of {parts or 'no operators'}, none of which this scheme makes int8."
        better = "weight-int8" if config.quantization != "weight-int8" else "fp16"
        heavy = any(layer.bytes for layer in layers)
        fix = f"Use --quantize {better}, or leave out --quantize." if heavy else "Leave out --quantize."
    return UnsupportedError(
        "nothing_quantized", f"Nothing in this model can be quantized with {config.quantization}.", why=why, fix=fix,
        details={"operators": dict(counted)},
    )  # fmt: skip


def _large(layers: tuple[Layer, ...]) -> tuple[Warn, ...]:
    total = sum(layer.bytes for layer in layers)
    floats = [layer for layer in layers if layer.precision == "float32" and layer.bytes]
    size = sum(layer.bytes for layer in floats)
    if not total or size <= _LARGE * total:
        return ()
    largest = sorted(floats, key=lambda layer: (-layer.bytes, layer.name))[:5]
    named = ", ".join(f"{layer.name} ({layer.op}, {layer.bytes / 1e6:.2f} MB: {layer.why})" for layer in largest)
    return (Warn("large_float_weights", f"{size / total:.0%} of the weights' bytes stay float32: {named}."),)
