"""Carry out a scheme for ExecuTorch: an exported program in, one with int8 tensors out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Layer, Model, Warn
from edgesdk.errors import UnsupportedError
from edgesdk.quantize._pt2e import _calibrate as calibrate
from edgesdk.quantize._pt2e import _graph as graphs
from edgesdk.quantize._pt2e._annotate import Annotated, Wishes, quantizer
from edgesdk.quantize._pt2e._layers import float_islands, large_float_weights, layers_of, nothing_quantized
from edgesdk.quantize._pt2e._widen import widen

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule

    from edgesdk.runtimes._base import LowerConfig

SCHEMES = ("dynamic-int8", "static-int8")
"""The schemes of ``edgesdk.quantize`` that this package carries out."""


@dataclass(frozen=True)
class Quantized:
    """The program to lower, what became of each layer, and what the user should know."""

    program: ExportedProgram
    layers: tuple[Layer, ...]
    notes: tuple[Warn, ...]


@dataclass(frozen=True)
class Converted:
    """A quantized graph before it is exported again."""

    module: GraphModule
    record: Annotated


def quantize(model: Model, config: LowerConfig) -> Quantized:
    """Quantize ``model.program`` as ``config`` asks.

    Raises:
        UnsupportedError: nothing can be quantized, or the back end has no such scheme.
        InputError: the calibration samples are missing, blank or all alike.
    """
    refuse_backend(config)
    if config.quantization == "dynamic-int8":
        return _finish(model, convert_dynamic(model, config))
    made = convert_static(model, config)
    islands = float_islands(made.module)
    done = _finish(model, made)
    return replace(done, notes=(*done.notes, *islands))


def refuse_backend(config: LowerConfig) -> None:
    """Raises:
    UnsupportedError: the back end can't run what the scheme makes.
    """
    if (config.backend or "xnnpack") not in ("xnnpack", "portable"):
        raise UnsupportedError(
            "quantization_unsupported", f"The back end '{config.backend}' has no {config.quantization} here.",
            why="Its quantizer is missing in this ExecuTorch.", fix="Use --backend xnnpack, or --quantize fp16.",
        )  # fmt: skip


def wishes_of(config: LowerConfig) -> Wishes:
    """The scheme's settings."""
    from edgesdk.quantize import find

    scheme: Any = find(config.quantization, config.options)
    per_channel, observer = getattr(scheme, "per_channel", True), getattr(scheme, "observer", "histogram")
    return Wishes(per_channel=per_channel, observer=observer, keep=frozenset(config.keep_float))


def convert_static(model: Model, config: LowerConfig) -> Converted:
    """Measure the ranges and write int8 into the graph."""
    wishes = wishes_of(config)
    made = _convert_static(model, config, wishes)
    return made if isinstance(made, Converted) else _second(model, config, replace(wishes, reasons=made))


def _second(model: Model, config: LowerConfig, wishes: Wishes) -> Converted:
    made = _convert_static(model, config, wishes, final=True)
    if not isinstance(made, Converted):
        raise TypeError("the second pass converts")
    return made


def _convert_static(
    model: Model, config: LowerConfig, wishes: Wishes, *, final: bool = False
) -> Converted | dict[str, str]:
    """The converted graph, or the operators that turned out to be unfit, with reasons."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from edgesdk.quantize import find

    program: Any = model.program
    samples: Any = find(config.quantization, config.options)
    with graphs.quiet():
        chosen, record = quantizer(wishes)
        module = graphs.module_of(program)
        widen(module, wishes.keep)
        prepared = prepare_pt2e(module, chosen)
        if not any(site.weight is not None for site in record.quantized):
            raise nothing_quantized(
                config.quantization, record.sites, record.why, "--quantize weight-int8 or dynamic-int8"
            )
        calibrate.observe(prepared, model, calibrate.opened(config.calibration).first(samples.samples))
        calibrate.check_observers(prepared, record.quantized)
        unfit = {} if final else calibrate.masked(prepared, record.quantized)
        if unfit:
            return unfit
        calibrate.protect_biases(prepared, record.quantized)
        return Converted(convert_pt2e(prepared), record)


def convert_dynamic(model: Model, config: LowerConfig) -> Converted:
    """int8 weights in linear layers; their inputs are quantized when they arrive. Recurrent layers become linear ones."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    program = unrolled(model.program)
    with graphs.quiet():
        chosen, record = quantizer(replace(wishes_of(config), mode="dynamic"))
        prepared = prepare_pt2e(graphs.module_of(program), chosen)
        if not record.quantized:
            raise nothing_quantized(config.quantization, record.sites, record.why, "--quantize static-int8")
        calibrate.show_weights(prepared)
        module = convert_pt2e(prepared)
        _own_chains(module)
    return Converted(module, record)


def unrolled(program: Any) -> Any:
    """The program with recurrent layers written out as linear layers, one step after the other."""
    import torch
    from torch._decomp import core_aten_decompositions

    aten = torch.ops.aten
    recurrent = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    if not any(node.target in recurrent for node in program.graph.nodes):
        return program
    table = core_aten_decompositions()
    with graphs.quiet():
        return program.run_decompositions({op: table[op] for op in recurrent})


def _own_chains(module: GraphModule) -> None:
    """Each linear layer gets its own quantization of the input that it shares with others (pitfall Q-15)."""
    from executorch.backends.transforms.duplicate_dynamic_quant_chain import DuplicateDynamicQuantChainPass

    DuplicateDynamicQuantChainPass().call(module)


def _finish(model: Model, made: Converted) -> Quantized:
    program: Any = model.program
    record = made.record
    layers = layers_of(record.sites, record.quantized, record.why)
    notes = large_float_weights(layers, weight_bytes(program))
    return Quantized(graphs.exported(made.module, program), layers, tuple(notes))


def weight_bytes(program: ExportedProgram) -> int:
    """Bytes of all float weights."""
    values = {**program.state_dict, **program.constants}.values()
    return sum(v.numel() * v.element_size() for v in values if hasattr(v, "element_size") and v.is_floating_point())
