"""What is checked and changed in an exported program before ExecuTorch's compiler sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgesdk import units
from edgesdk.artifacts import Layer, LayerError, Model, Warn
from edgesdk.errors import UnsupportedError
from edgesdk.runtimes._base import LowerConfig
from edgesdk.runtimes._et_exact import exact
from edgesdk.runtimes._et_kernels import source_line
from edgesdk.runtimes._et_translate import unbounded

if TYPE_CHECKING:
    from torch.export import ExportedProgram

NOTEWORTHY_SHARE = 0.1
"""Share of the weights above which the user is told that half precision leaves them in float32."""

LONG_RECURRENCE = 40
"""Time steps above which the unrolling of a recurrent layer is announced: lowering 80 steps of one layer takes 25 s of CPU."""


@dataclass(frozen=True)
class Prepared:
    """The program to lower, what the user should know, and what quantization made of each layer."""

    program: ExportedProgram
    notes: tuple[Warn, ...]
    layers: tuple[Layer, ...] = ()


NEVER_HALF = frozenset({"aten::layer_norm", "aten::native_layer_norm"})
"""The kernel of ExecuTorch 1.5 sums in float16: 384 values around 0 give a hundred times the right answer, or NaN."""


def prepare(model: Model, config: LowerConfig, refused: Mapping[str, str] | None = None) -> Prepared:
    """The program to lower; quantized when a scheme is asked for.

    Args:
        refused: layers that the back end turned out not to take in int8, with the reason; they stay float.

    Raises:
        UnsupportedError: there is no program, or ExecuTorch takes no such dtype or size.
    """
    if config.quantization == "fp16":
        from edgesdk.runtimes._fp16 import to_half

        model = to_half(model, never=NEVER_HALF)  # unless the caller did, with the values of real inputs
    program, notes = _checked(model)
    notes += _about_doubles(program) + _about_recurrence(program)
    if config.backend == "coreml":
        program = _strides_told(program)
    if config.quantization in ("none", "fp16"):
        if config.backend in (None, "xnnpack") and config.rung != "portable":
            notes += _about_half(program)
        return Prepared(_rounding(model, program), tuple(notes))
    from edgesdk.quantize._pt2e import quantize

    done = quantize(replace(model, program=program), config, refused)
    return Prepared(done.program, (*notes, *done.notes), done.layers)


def _rounding(model: Model, program: ExportedProgram) -> ExportedProgram:
    """A model that came quantized in a form that XNNPACK computes right."""
    from edgesdk.quantize._already import comes_quantized

    if not comes_quantized(replace(model, program=program, onnx=None)):
        return program
    from edgesdk.quantize._pt2e import as_xnnpack_takes_it

    return as_xnnpack_takes_it(program)


def _checked(model: Model) -> tuple[ExportedProgram, list[Warn]]:
    program = _program_of(model)
    _refuse_complex(program)
    _refuse_unbounded(program)
    program, notes = _on_cpu(program)
    return exact(_row_major(program)), notes


def layer_errors(model: Model, config: LowerConfig, samples: int, alone: bool) -> tuple[LayerError, ...]:
    """See ``EdgeRuntime.layer_errors``: measured on the very program that ``prepare`` would quantize."""
    from edgesdk.quantize._pt2e import layer_errors as measured

    return measured(replace(model, program=_checked(model)[0]), config, samples, alone)


def _program_of(model: Model) -> ExportedProgram:
    if model.program is not None:
        return model.program
    if isinstance(model.no_program, Exception):
        raise model.no_program
    raise UnsupportedError(
        "no_program", f"{model.source.name} has no exported program.", why="ExecuTorch lowers exported programs only.",
        fix="Export the model with torch.export, or choose --runtime onnx or --runtime torchscript.",
    )  # fmt: skip


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []


def _nodes(program: ExportedProgram) -> list[Any]:
    import torch

    return [n for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule) for n in m.graph.nodes]


def _refuse_complex(program: ExportedProgram) -> None:
    for node in _nodes(program):
        if any(t.is_complex() for t in _tensors(node.meta.get("val"))):
            name = str(node.target).removesuffix(".default")
            line = source_line(node)
            raise UnsupportedError(
                "complex_unsupported", f"{name} makes complex numbers{f' ({line})' if line else ''}.",
                why="ExecuTorch does not lower complex tensors, and so no FFT or STFT.",
                fix="Use a real-valued front end (the DFT as a matrix product or a convolution with sine and cosine "
                "weights), compute the spectrum in the app, or choose --runtime onnx or --runtime torchscript.",
                details={"operator": name, "line": line},
            )  # fmt: skip


def _refuse_unbounded(program: ExportedProgram) -> None:
    for symbol, limits in program.range_constraints.items():
        upper = str(limits.upper)  # a sympy number, or int_oo for none
        if not upper.isdigit() or int(upper) >= 2**31:
            if str(symbol).startswith(("u", "zu")):  # torch's names for what only a run can tell
                raise _value_as_number(program)
            raise unbounded(f"The range of {symbol} is {limits.lower} to {limits.upper}.")


def _value_as_number(program: ExportedProgram) -> UnsupportedError:
    reads = ("aten.item", "aten._local_scalar_dense", "aten.nonzero", "aten.unique", "aten.masked_select")
    node = next((n for n in _nodes(program) if str(n.target).startswith(reads)), None)
    line = source_line(node) if node is not None else None
    return UnsupportedError(
        "data_dependent", f"The model reads a number or a size from a tensor's values{f' ({line})' if line else ''}.",
        why="ExecuTorch plans ahead and knows no bounds for it: .item(), a tensor as an index, a boolean mask.",
        fix="Keep it a tensor (x * s instead of x * s.item(), index_select, index_copy_, torch.where), or choose "
        "--runtime torchscript.",
        details={"line": line},
    )  # fmt: skip


def _on_cpu(program: ExportedProgram) -> tuple[ExportedProgram, list[Warn]]:
    """ExecuTorch's serializer reads memory directly: a tensor elsewhere ends the process (pitfall E-16)."""
    kept = [*program.state_dict.values(), *program.constants.values()]
    away = sorted({str(t.device) for t in _tensors(kept) if t.device.type != "cpu"})
    away += sorted(
        {str(t.device) for n in _nodes(program) for t in _tensors(n.meta.get("val")) if t.device.type != "cpu"}
    )
    if not away:
        return program, []
    if "meta" in away:
        raise UnsupportedError(
            "no_weights", "The model has parameters without values (on the device 'meta').",
            why="It was built without loading its weights.", fix="Load the weights before exporting.",
        )  # fmt: skip
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(program, "cpu"), [
        Warn("moved_to_cpu", f"The model was moved from {away[0]} to the CPU.")
    ]


def _row_major(program: ExportedProgram) -> ExportedProgram:
    """Weights kept in another order (``channels_last``) make kernels refuse or read them wrongly (pitfall E-09).

    So do example inputs of NumPy's: ``array[:, None]`` has the stride 0, which a ``.pte`` can't hold.
    """
    kept = [t for held in (program.state_dict, program.constants) for t in held.values()]
    given = [n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"]
    if not any(_is_odd(value) for value in (*kept, *given)):
        return program
    import copy

    import torch

    changed = copy.copy(program)
    changed._state_dict = {n: _straight(t) for n, t in program.state_dict.items()}
    changed._constants = {n: _straight(t) for n, t in program.constants.items()}
    # The recorded layouts follow from those of the weights: take the graph through the interpreter again.
    changed._graph_module = copy.deepcopy(program.graph_module)
    for node in changed.graph_module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and _is_odd(value):
            node.meta["val"] = value.clone(memory_format=torch.contiguous_format)
    straightened: ExportedProgram = changed.run_decompositions({})
    return straightened


def _strides_told(program: ExportedProgram) -> ExportedProgram:
    """Pooling with its stride, which is the kernel's size when it isn't told: coremltools 9.0 reads it unasked."""
    pools = ("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default")

    def silent(node: Any) -> bool:
        return node.op == "call_function" and str(node.target) in pools and (len(node.args) < 3 or not node.args[2])

    if not any(map(silent, program.graph.nodes)):
        return program
    import copy

    changed = copy.copy(program)
    changed._graph_module = copy.deepcopy(program.graph_module)
    for node in filter(silent, changed.graph_module.graph.nodes):
        node.args = (*node.args[:2], node.args[1], *node.args[3:])
    changed.graph_module.recompile()
    return changed


def _is_odd(value: Any) -> bool:
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    # A dimension of size 1 may have any stride and count as contiguous; a file may not.
    return not value.is_contiguous() or 0 in value.stride() and value.numel() > 0


def _straight(value: Any) -> Any:
    import torch

    if not _is_odd(value):
        return value
    straight = value.detach().clone(memory_format=torch.contiguous_format)
    return torch.nn.Parameter(straight, value.requires_grad) if isinstance(value, torch.nn.Parameter) else straight


def _about_doubles(program: ExportedProgram) -> list[Warn]:
    import torch

    for node in _nodes(program):
        if node.op == "call_function" and any(t.dtype == torch.float64 for t in _tensors(node.meta.get("val"))):
            line = source_line(node)
            where = f" ({line})" if line else ""
            return [Warn("float64", f"{node.target} computes in float64{where}: slow portable kernels; use .float().")]
    return []


def _about_recurrence(program: ExportedProgram) -> list[Warn]:
    """Recurrent layers are unrolled: a copy of the cell for every time step, in the compiler and in the file."""
    longest = max((_time_steps(node) for node in _nodes(program)), default=0)
    if longest <= LONG_RECURRENCE:
        return []
    return [Warn(
        "unrolled_recurrence", f"A recurrent layer over {longest} time steps is unrolled: lowering takes its time, and "
        "every step is a delegate call of its own. Shorter windows, or a cell called step by step, are faster.",
    )]  # fmt: skip


def _about_half(program: ExportedProgram) -> list[Warn]:
    """``op_conv2d.py`` of ExecuTorch 1.5's XNNPACK back end writes every convolution's weight as float32."""
    import torch

    weights = {t.data_ptr(): t for t in program.state_dict.values() if t.dtype == torch.float16}
    held = sum(t.numel() for t in weights.values())
    names = {node.args[1] for node in _nodes(program) if str(node.target).startswith("aten.conv")}
    stored = program.graph_signature.inputs_to_parameters | program.graph_signature.inputs_to_buffers
    convolved = {stored[n.name]: program.state_dict.get(stored[n.name]) for n in names if n.name in stored}
    count = sum(t.numel() for t in convolved.values() if t is not None and t.dtype == torch.float16)
    if count < NOTEWORTHY_SHARE * held or not count:
        return []
    return [Warn(
        "fp16_convolutions_float32", "XNNPACK's files hold the weights of convolutions in float32, and compute in float16: "
        f"{units.size(4 * count)} of {units.size(4 * held)} become no smaller. ONNX halves them; static-int8 quarters them.",
    )]  # fmt: skip


def _time_steps(node: Any) -> int:
    """Time steps of a call to ``aten.lstm``, ``gru`` or ``rnn`` (sequence in ``args[0]``); 0 for all others."""
    if node.op != "call_function" or str(node.target) not in _BATCH_FIRST:
        return 0
    values = _tensors(node.args[0].meta.get("val"))
    batch_first = bool(node.args[_BATCH_FIRST[str(node.target)]])
    size = values[0].shape[1 if batch_first else 0] if values and values[0].dim() == 3 else 0
    return size if isinstance(size, int) else 0


# Position of ``batch_first``: (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first).
_BATCH_FIRST = dict.fromkeys(("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input"), 8)
