"""The schemes of quantization for ONNX Runtime, as edits of an ONNX graph.

Talks to ONNX Runtime only through ``edgesdk.runtimes._onnx_quant``. The calls into ``onnxruntime.quantization`` that one
would expect aren't here: its calibrators keep what they see (pitfall Q-19), it leaves batch norms, embeddings, recurrent
layers and branches alone, fails on a grouped transposed convolution per channel (Q-04), and lets files grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk._memory import give_back
from edgesdk.artifacts import LayerError, Model
from edgesdk.errors import InputError, UsageError
from edgesdk.quantize import _already, find
from edgesdk.quantize._onnx import _dynamic, _errors, _prepare, _static, _weights
from edgesdk.quantize._onnx._observe import Observer
from edgesdk.quantize._onnx._result import Quantized, not_smaller, nothing

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgesdk.data import Store
    from edgesdk.runtimes._base import LowerConfig

__all__ = ["Quantized", "layer_errors", "quantize"]

_STATIC = ("static-int8", "qat-int8")


def quantize(graph: ir.Model, model: Model, config: LowerConfig) -> Quantized:
    """Carry out the scheme of ``config`` on a graph that was made from ``model``.

    Raises:
        UnsupportedError: the scheme can quantize nothing in this graph (``nothing_quantized``).
        InputError: calibration samples are missing, don't fit, or tell nothing about a layer.
        UsageError: an opset was asked for that has no scale for each channel.
    """
    if config.opset is not None and config.opset < _prepare.PER_CHANNEL_OPSET:
        raise _old_opset(config)
    _already.refuse_graph(graph, model.source.name, config.quantization)
    give_back()
    before = _prepare.file_bytes(graph)
    ready = _ready(graph, model)
    keep = frozenset(config.keep_float)
    made = _carried_out(ready, config, keep, _ranges(ready, config, keep))
    static = config.quantization in _STATIC
    if not any(x.precision != "float32" and x.bytes and not (static and x.why) for x in made.layers):
        raise nothing(model.source.name, config.quantization, made.layers, ready)
    _prepare.tidy(made.graph)
    after = _prepare.file_bytes(made.graph)
    if after >= before:
        return replace(made, warnings=(*made.warnings, not_smaller(before, after)))
    return made


def _old_opset(config: LowerConfig) -> UsageError:
    return UsageError(
        "bad_opset", f"--quantize {config.quantization} can't be written in opset {config.opset}.",
        why=f"A scale for each channel needs opset {_prepare.PER_CHANNEL_OPSET}.", fix="Leave the opset out.",
    )  # fmt: skip


def layer_errors(graph: ir.Model, model: Model, config: LowerConfig, count: int, alone: bool) -> tuple[LayerError, ...]:
    """Noise by layer, the noisiest first, measured on ``count`` calibration samples.

    Raises:
        InputError: there are no calibration samples.
    """
    ready = _ready(graph, model)
    keep = frozenset(config.keep_float)
    store = calibration(config)
    ranges = _ranges(ready, config, keep)

    def make(left: frozenset[str]) -> Quantized:
        return _carried_out(_prepare.copy(ready), config, left, ranges)

    return _errors.layer_errors(ready, make, keep, store.first, count, alone)


def _ready(graph: ir.Model, model: Model) -> ir.Model:
    return _prepare.prepare(graph, model.onnx or Path(f"{model.source.name}.onnx"), model.program)


def _ranges(graph: ir.Model, config: LowerConfig, keep: frozenset[str]) -> Mapping[str, Observer]:
    """What the activations of the float graph were on the calibration samples; nothing for schemes that don't ask."""
    if config.quantization not in _STATIC:
        return {}
    settings: Any = find(config.quantization, config.options)
    static: Any = find("static-int8")
    count = min(settings.samples, static.samples) if config.quantization == "qat-int8" else settings.samples
    return _static.calibrate(graph, keep, calibration(config).first(count))


def _carried_out(
    graph: ir.Model, config: LowerConfig, keep: frozenset[str], ranges: Mapping[str, Observer]
) -> Quantized:
    settings: Any = find(config.quantization, config.options)
    folded = not config.ort_format
    if config.quantization == "dynamic-int8":
        return _dynamic.quantize(graph, keep, per_channel=settings.per_channel, folded=folded)
    if config.quantization == "weight-int8":
        return _weights.int8(graph, keep, folded=folded)
    if config.quantization == "weight-int4":
        return _weights.int4(graph, keep, settings.group_size)
    return _static.quantize(
        graph, keep, ranges, observer=settings.observer, per_channel=settings.per_channel, folded=folded
    )


def calibration(config: LowerConfig) -> Store:
    """The samples that came with the request.

    Raises:
        InputError: there are none.
    """
    from edgesdk.data import Store

    if config.calibration is None:
        raise InputError(
            "missing_calibration", f"{config.quantization} needs sample inputs, and there are none.",
            why="The ranges of activations are measured on them.", fix="Give --calibration PATH.",
        )  # fmt: skip
    store = Store(config.calibration)
    if not len(store):
        raise InputError(
            "empty_calibration", "The calibration data are empty.", why="No sample was found in them.",
            fix="Give --calibration a folder or file with samples.",
        )  # fmt: skip
    return store
