"""Carry out a scheme for ExecuTorch: an exported program in, one with int8 tensors out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgesdk._memory import park
from edgesdk.artifacts import Layer, Model, Warn
from edgesdk.errors import UnsupportedError
from edgesdk.quantize import _already
from edgesdk.quantize._pt2e import _calibrate as calibrate
from edgesdk.quantize._pt2e import _coreml
from edgesdk.quantize._pt2e import _graph as graphs
from edgesdk.quantize._pt2e._annotate import Annotated, Wishes, quantizer
from edgesdk.quantize._pt2e._fold import fold_weights, strip
from edgesdk.quantize._pt2e._layers import float_islands, large_float_weights, layers_of, nothing_quantized
from edgesdk.quantize._pt2e._marks import mark
from edgesdk.quantize._pt2e._norms import fold_norms
from edgesdk.quantize._pt2e._sites import CONVS, EMBEDDING, LINEAR, TRANSPOSED, short
from edgesdk.quantize._pt2e._weights import embed, pack, without_unread
from edgesdk.quantize._pt2e._widen import widen
from edgesdk.quantize.static_int8 import StaticInt8

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule

    from edgesdk.runtimes._base import LowerConfig

SCHEMES = ("dynamic-int8", "qat-int8", "static-int8", "weight-int4", "weight-int8")
"""The schemes of ``edgesdk.quantize`` that this package carries out."""


Reasons = Mapping[str, str]
"""By layer, why it stays float."""
_NONE: Reasons = {}


@dataclass(frozen=True)
class Quantized:
    """The program to lower, what became of each layer, and what the user should know."""

    program: ExportedProgram
    layers: tuple[Layer, ...]
    notes: tuple[Warn, ...]


@dataclass(frozen=True)
class Converted:
    """A quantized graph before it is exported again; with float weights by node names when they were asked for."""

    module: GraphModule
    record: Annotated
    weights: Mapping[str, Any] = field(default_factory=dict)
    precisions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Warn, ...] = ()


def quantize(model: Model, config: LowerConfig, refused: Reasons | None = None) -> Quantized:
    """Quantize ``model.program`` as ``config`` asks.

    Args:
        refused: layers that the back end turned out not to take in int8, with the reason.

    Raises:
        UnsupportedError: nothing can be quantized, or the back end has no such scheme.
        InputError: the calibration samples are missing, blank or all alike.
    """
    _already.refuse(model, config.quantization)
    made = convert(model, config, refused=refused or {})
    mark(made.module, made.record.quantized)
    ours = config.backend != "coreml" and config.quantization in ("static-int8", "qat-int8")
    islands = float_islands(made.module) if ours else []
    layers = layers_of(made.record.sites, made.record.quantized, made.record.why, made.precisions)
    program: Any = model.program
    notes = (*made.notes, *large_float_weights(layers, weight_bytes(program)), *islands)
    with graphs.quiet():
        embed(made.module)
    without_unread(made.module)
    return Quantized(graphs.exported(made.module, program), layers, notes)


def convert(model: Model, config: LowerConfig, *, keep_weights: bool = False, refused: Reasons = _NONE) -> Converted:
    """The quantized graph; see :func:`quantize`."""
    refuse_backend(config)
    if config.quantization == "weight-int8" and config.backend == "coreml":
        return convert_coreml_weights(model, config, keep_weights=keep_weights, refused=refused)
    if config.quantization.startswith("weight-"):
        return convert_weights(model, config, refused)
    way = {"dynamic-int8": convert_dynamic, "qat-int8": convert_tuned}.get(config.quantization, convert_static)
    made = way(model, config, keep_weights=keep_weights, refused=refused)
    return made if config.backend == "coreml" else _with_tables(made, config, keep_weights, refused)


def _with_tables(made: Converted, config: LowerConfig, keep_weights: bool, refused: Reasons) -> Converted:
    """Embeddings in int8, as the weight-only schemes have them: in a language model they are most of the file (Q-16)."""
    with graphs.quiet():
        done = pack(made.module, 8, 0, frozenset(config.keep_float), refused, only=EMBEDDING)
    packed = {site.node.name for site in done.record.quantized}
    tables = [site for site in made.record.sites if site.node.name in packed]
    for site in tables:
        made.record.why.pop(site.name, None)
    made.record.quantized += tables
    weights = {**made.weights, **done.weights} if keep_weights else made.weights
    return replace(made, weights=weights)


def refuse_backend(config: LowerConfig) -> None:
    """Raises:
    UnsupportedError: the back end can't run what the scheme makes.
    """
    backend = config.backend or "xnnpack"
    if backend == "portable" and config.quantization == "weight-int4":
        raise UnsupportedError(
            "quantization_unsupported", "The portable kernels can't read int4 weights.",
            why="Only XNNPACK keeps two weights in a byte.", fix="Use --backend xnnpack, or --quantize weight-int8.",
        )  # fmt: skip
    if backend == "coreml" and config.quantization not in _coreml.SCHEMES:
        raise UnsupportedError(
            "quantization_unsupported", f"There is no {config.quantization} for the back end 'coreml'.",
            why="ExecuTorch's quantizer for Core ML has fixed ranges or int8 weights only.",
            fix="Use --quantize static-int8 or weight-int8 for Core ML.",
        )  # fmt: skip
    if backend not in ("xnnpack", "portable", "coreml"):
        raise UnsupportedError(
            "quantization_unsupported", f"There is no {config.quantization} for the back end '{backend}'.",
            why="No engine on this machine runs what it would give, and a quantized file that nobody ran is not shipped.",
            fix="Use --backend xnnpack for int8, or --quantize fp16 for this back end.",
        )  # fmt: skip


def wishes_of(config: LowerConfig) -> Wishes:
    """The scheme's settings."""
    from edgesdk.quantize import find

    scheme: Any = find(config.quantization, config.options)
    per_channel, observer = getattr(scheme, "per_channel", True), getattr(scheme, "observer", "histogram")
    return Wishes(per_channel=per_channel, observer=observer, keep=frozenset(config.keep_float))


def convert_static(
    model: Model, config: LowerConfig, *, keep_weights: bool = False, refused: Reasons = _NONE
) -> Converted:
    """Measure the ranges and write int8 into the graph."""
    wishes = replace(wishes_of(config), reasons=refused)
    with graphs.quiet():
        prepared, record = _calibrated(model, config, wishes)
        unfit = {
            **({} if config.backend == "coreml" else calibrate.faint(prepared, record.quantized)),
            **refused,
            **calibrate.masked(prepared, record.quantized),
            **calibrate.unsound(prepared, record.quantized),
        }
        if len(unfit) > len(refused):
            prepared, record = _calibrated(model, config, replace(wishes, reasons=unfit))
        calibrate.check_observers(prepared, record.quantized)
        if config.backend == "coreml":  # no limits on scales, and biases stay float
            return _converted(prepared, record, keep_weights)
        calibrate.protect_biases(prepared, record.quantized)
        extreme = calibrate.refused(prepared, record.quantized)
        if extreme:
            prepared, record = _calibrated(model, config, replace(wishes, reasons={**unfit, **extreme}))
            calibrate.protect_biases(prepared, record.quantized)
        return _converted(prepared, record, keep_weights)


def _calibrated(model: Model, config: LowerConfig, wishes: Wishes) -> tuple[GraphModule, Annotated]:
    """The graph with observers that saw the samples."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    from edgesdk.quantize import find

    program: Any = model.program
    scheme: Any = find(config.quantization, config.options)
    for_coreml = config.backend == "coreml"
    chosen, record = _coreml.quantizer(wishes, weights_only=False) if for_coreml else quantizer(wishes)
    module = graphs.module_of(program)
    fold_norms(module)
    if not for_coreml:
        widen(module, wishes.keep)
    prepared: Any = prepare_pt2e(module, chosen)
    if not any(site.weight is not None for site in record.quantized):
        raise nothing_quantized(config.quantization, record.sites, record.why, "--quantize weight-int8 or dynamic-int8")
    park(program.state_dict.values())  # batch norms are fused into other weights now
    count = min(scheme.samples, StaticInt8.samples) if scheme.labelled else scheme.samples
    calibrate.observe(prepared, model, calibrate.opened(config.calibration).first(count))
    return prepared, record


def _converted(prepared: GraphModule, record: Annotated, keep_weights: bool) -> Converted:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    weights = _float_weights(prepared, record) if keep_weights else {}
    made = convert_pt2e(prepared, fold_quantize=False)
    strip(prepared)
    fold_weights(made)
    _own_biases(made)
    return Converted(made, record, weights)


def as_xnnpack_takes_it(program: ExportedProgram) -> ExportedProgram:
    """A program that came quantized, with integers for weights and a bias for each layer; the very program when it is so.

    ``convert_pt2e(fold_quantize=False)`` leaves float weights that are rounded at each call: the library ends the process.
    """
    module: Any = program.module(check_guards=False)
    folded = fold_weights(module)
    if not _own_biases(module) and not folded:
        return program
    return graphs.exported(module, program)


def _own_biases(module: GraphModule) -> bool:
    """Each layer gets a bias of its own when layers share one.

    XNNPACK counts a bias in steps of input scale times weight scale. The back end writes a shared one once, in the steps of
    the layer that comes first, and the others would answer wrong without an error.

    Returns:
        whether any did.
    """
    taken: set[str] = set()
    shared = False
    for node in [n for n in module.graph.nodes if n.op == "get_attr"]:
        target = str(node.target)
        for user in [u for u in node.users if short(u) in LINEAR | CONVS | TRANSPOSED and u.args[2:3] == (node,)]:
            if target not in taken:
                taken.add(target)
                continue
            name = f"{target.replace('.', '_')}_of_{user.name}"
            module.register_buffer(name, graphs.attribute(module, target).detach().clone())
            with module.graph.inserting_before(user):
                own = module.graph.get_attr(name)
            own.meta = dict(node.meta)
            user.update_arg(2, own)
            shared = True
    module.recompile()
    return shared


def _float_weights(prepared: GraphModule, record: Annotated) -> dict[str, Any]:
    """The weights that the observers of the quantized layers look at."""
    values = calibrate.fixed_values(prepared)
    return {s.node.name: values[s.node.args[1]] for s in record.quantized if s.weight is not None}  # type: ignore[index]


def convert_tuned(
    model: Model, config: LowerConfig, *, keep_weights: bool = False, refused: Reasons = _NONE
) -> Converted:
    """Train with simulated int8, then quantize the trained weights; training is run once for all choices of float layers."""
    from edgesdk.quantize._qat import fine_tune

    tuned = fine_tune(replace(model, warnings=()), replace(config, keep_float=()))
    made = convert_static(tuned, config, keep_weights=keep_weights, refused=refused)
    return replace(made, notes=(*made.notes, *tuned.warnings))


def convert_dynamic(
    model: Model, config: LowerConfig, *, keep_weights: bool = False, refused: Reasons = _NONE
) -> Converted:
    """int8 weights in linear layers; their inputs are quantized when they arrive. Recurrent layers become linear ones."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    program = unrolled(model.program)
    with graphs.quiet():
        chosen, record = quantizer(replace(wishes_of(config), mode="dynamic", reasons=refused))
        module = graphs.module_of(program)
        fold_norms(module)
        prepared = prepare_pt2e(module, chosen)
        if not record.quantized:
            raise nothing_quantized(config.quantization, record.sites, record.why, "--quantize static-int8")
        calibrate.fixed_values(prepared)  # the observers of weights see them, without a run
        made = _converted(prepared, record, keep_weights)
        _own_chains(made.module)
    return made


def convert_weights(model: Model, config: LowerConfig, refused: Reasons = _NONE) -> Converted:
    """Small weights, float arithmetic; see ``_weights``."""
    from edgesdk.quantize import find

    scheme: Any = find(config.quantization, config.options)
    with graphs.quiet():
        module = graphs.module_of(unrolled(model.program))
        group = getattr(scheme, "group_size", 0)
        done = pack(module, scheme.weight_bits, group, frozenset(config.keep_float), refused)
    record = done.record
    if f"int{scheme.weight_bits}" not in done.precisions.values():
        better = "--quantize static-int8" if not record.quantized else "--quantize weight-int8"
        raise nothing_quantized(config.quantization, record.sites, record.why, better)
    return Converted(module, record, done.weights, done.precisions)


def convert_coreml_weights(
    model: Model, config: LowerConfig, *, keep_weights: bool = False, refused: Reasons = _NONE
) -> Converted:
    """int8 weights, arithmetic in float16, as Core ML's quantizer places them."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    program: Any = model.program
    with graphs.quiet():
        chosen, record = _coreml.quantizer(replace(wishes_of(config), reasons=refused), weights_only=True)
        module = graphs.module_of(program)
        fold_norms(module)
        prepared = prepare_pt2e(module, chosen)
        record.quantized = [site for site in record.quantized if site.weight is not None]
        if not record.quantized:
            raise nothing_quantized(config.quantization, record.sites, record.why, "--quantize fp16")
        calibrate.fixed_values(prepared)  # the observers of weights see them, without a run
        return _converted(prepared, record, keep_weights)


def unrolled(program: Any) -> Any:
    """The program with recurrent layers written out as linear layers, one step after the other."""
    import torch
    from torch._decomp import core_aten_decompositions

    aten = torch.ops.aten
    layers = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    cells = {aten.lstm_cell.default: _lstm_cell, aten.gru_cell.default: _gru_cell}
    if not any(node.target in (*layers, *cells) for node in program.graph.nodes):
        return program
    table = core_aten_decompositions()
    with graphs.quiet():
        return program.run_decompositions({**{op: table[op] for op in layers}, **cells})


def _lstm_cell(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """As ``torch.nn.LSTMCell`` defines it."""
    from torch.nn import functional

    i, f, g, o = (functional.linear(x, w_ih, b_ih) + functional.linear(hx[0], w_hh, b_hh)).chunk(4, 1)
    c = f.sigmoid() * hx[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_cell(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """As ``torch.nn.GRUCell`` defines it."""
    from torch.nn import functional

    r, z, n = functional.linear(x, w_ih, b_ih).chunk(3, 1)
    hr, hz, hn = functional.linear(hx, w_hh, b_hh).chunk(3, 1)
    z = (z + hz).sigmoid()
    return (1 - z) * (n + (r + hr).sigmoid() * hn).tanh() + z * hx


def _own_chains(module: GraphModule) -> None:
    """Each linear layer gets its own quantization of the input that it shares with others (pitfall Q-15)."""
    from executorch.backends.transforms.duplicate_dynamic_quant_chain import DuplicateDynamicQuantChainPass

    DuplicateDynamicQuantChainPass().call(module)


def weight_bytes(program: ExportedProgram) -> int:
    """Bytes of all float weights."""
    values = {**program.state_dict, **program.constants}.values()
    return sum(v.numel() * v.element_size() for v in values if hasattr(v, "element_size") and v.is_floating_point())
