"""The schemes of quantization for ONNX Runtime, as edits of an ONNX graph.

Talks to ONNX Runtime only through ``edgesdk.runtimes._onnx_quant``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model
from edgesdk.errors import InputError
from edgesdk.quantize import find
from edgesdk.quantize._onnx import _dynamic, _prepare, _static, _weights
from edgesdk.quantize._onnx._result import Quantized, nothing

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgesdk.data._store import Store
    from edgesdk.runtimes._base import LowerConfig

__all__ = ["Quantized", "quantize"]


def quantize(graph: ir.Model, model: Model, config: LowerConfig) -> Quantized:
    """Carry out the scheme of ``config`` on a graph that was made from ``model``.

    Raises:
        UnsupportedError: the scheme can quantize nothing in this graph (``nothing_quantized``).
        InputError: calibration samples are missing, don't fit, or tell nothing about a layer.
    """
    path = model.onnx or Path(f"{model.source.name}.onnx")
    ready = _prepare.prepare(graph, path, model.program)
    made = _carried_out(ready, config)
    static = config.quantization in ("static-int8", "qat-int8")
    if not any(x.precision != "float32" and x.bytes and not (static and x.why) for x in made.layers):
        raise nothing(model.source.name, config.quantization, made.layers)
    _prepare.tidy(made.graph)
    return made


def _carried_out(graph: ir.Model, config: LowerConfig) -> Quantized:
    keep = frozenset(config.keep_float)
    settings: Any = find(config.quantization, config.options)
    folded = not config.ort_format
    if config.quantization == "dynamic-int8":
        return _dynamic.quantize(graph, keep, per_channel=settings.per_channel, folded=folded)
    if config.quantization == "weight-int8":
        return _weights.int8(graph, keep, folded=folded)
    if config.quantization == "weight-int4":
        return _weights.int4(graph, keep, settings.group_size)
    return _static_int8(graph, config)


def _static_int8(graph: ir.Model, config: LowerConfig) -> Quantized:
    settings: Any = find(config.quantization, config.options)
    keep = frozenset(config.keep_float)
    store = calibration(config)
    seen = _static.calibrate(graph, keep, store.first(settings.samples))
    return _static.quantize(
        graph, keep, seen, observer=settings.observer, per_channel=settings.per_channel, folded=not config.ort_format
    )


def calibration(config: LowerConfig) -> Store:
    from edgesdk.data._store import Store

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
