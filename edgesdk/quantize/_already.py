"""Models that come quantized: quantizing them again would add errors on top of errors, and save nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Warn
from edgesdk.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgesdk.artifacts import Model

_SIMULATED = ("aten::fake_quantize_", "aten::_fake_quantize_")
_ROUNDING = (
    "quantized_decomposed::", "torchao::", "quantized::", "aten::quantize_per_", "aten::dequantize", *_SIMULATED
)  # fmt: skip
_TRAINING = ("aten::fused_moving_avg_obs_fake_quant", "aten::_fused_moving_avg_obs_fq_helper")
_OBSERVERS = re.compile(
    r"(^|\.)(activation_post_process(_\d+)?|weight_fake_quant)(?=\."
    r"(activation_post_process\.)?(min_val|max_val|histogram|fake_quant_enabled|observer_enabled)$)"
)
"""Names that ``prepare``, ``prepare_fx`` and ``prepare_pt2e`` give to their observers, which have these buffers."""
_ONNX = frozenset({
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv",
    "QLinearMatMul", "MatMulNBits", "MatMulBnb4",
})  # fmt: skip
_MICROSOFT = ("QLinear", "QGemm", "QAttention", "QEmbed", "DynamicQuantize", "MatMulInteger")


def comes_quantized(model: Model) -> bool:
    """Whether the model computes with rounded numbers before anything is done to it."""
    return bool(_operators(model))


def refuse(model: Model, scheme: str) -> None:
    """Raises:
    UnsupportedError: the model was quantized before it came here.
    """
    found = _operators(model)
    if found:
        raise _refusal(model.source.name, scheme, found)


def _operators(model: Model) -> Counter[str]:
    """Quantized operators by name."""
    if model.program is not None:
        found = _rounding(_called(model.program))
    else:
        found = _rounding(_kinds(model.script.inlined_graph) if model.script is not None else ())
    if not found and model.onnx is not None:
        from edgesdk.runtimes._onnx_source import read

        return _of_graph(read(model.onnx))
    return found


def refuse_graph(graph: ir.Model, name: str, scheme: str) -> None:
    """The same for an ONNX graph.

    Raises:
        UnsupportedError: it holds quantized operators.
    """
    found = _of_graph(graph)
    if found:
        raise _refusal(name, scheme, found)


def _of_graph(graph: ir.Model) -> Counter[str]:
    from edgesdk.runtimes._onnx_write import graphs

    return Counter(str(n.op_type) for part in graphs(graph) for n in part if _is_quantized(n))


def _is_quantized(node: Any) -> bool:
    return is_quantized_operator(str(node.op_type), str(node.domain))


def is_quantized_operator(name: str, domain: str) -> bool:
    """Whether an ONNX operator rounds its values or computes in integers; ``domain`` is empty for ONNX's own."""
    if domain == "com.microsoft":
        return name.startswith(_MICROSOFT) or name in _ONNX
    return not domain and name in _ONNX


def _rounding(names: Iterable[str]) -> Counter[str]:
    return Counter(name.partition("::")[2] for name in names if name.startswith(_ROUNDING))


def _called(program: Any) -> Iterator[str]:
    """Names of the operators that a program calls, as ``aten::conv2d``."""
    import torch

    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    for node in (n for m in modules for n in m.graph.nodes if n.op == "call_function"):
        schema = getattr(node.target, "_schema", None)
        if schema is not None:
            yield str(schema.name)


def about_simulation(model: Model) -> list[Warn]:
    """A note on int8 that is only simulated: values are rounded, weights and arithmetic stay float32."""
    names = _called(model.program) if model.program is not None else iter(())
    found = Counter(name.partition("::")[2] for name in names if name.startswith(_SIMULATED))
    if not found:
        return []
    return [Warn(
        "simulated_int8", f"The model simulates int8 ({_listed(found)}) and is float32 otherwise: neither smaller nor faster. To "
        "ship integers, convert it before it is exported (convert, convert_fx or convert_pt2e).",
    )]  # fmt: skip


def refuse_unfinished(model: Model) -> None:
    """Raises:
    InputError: the model was prepared for quantization and never converted; its observers still learn at each call.
    UnsupportedError: torchao quantized it in place.
    """
    _refuse_wrapped(model)
    if model.program is not None:
        called, named = _called(model.program), model.program.graph_signature.inputs_to_buffers.values()
    elif model.script is not None:
        called, named = _kinds(model.script.inlined_graph), model.script.state_dict()
    else:
        return
    learning = sum(name.startswith(_TRAINING) for name in called)
    refuse_observers(named, learning)


def refuse_quantized_tensors(model: Model) -> None:
    """Raises:
    UnsupportedError: the program has tensors of torch's own quantized dtypes, which torch can't write to a file, or torchao's.
    """
    _refuse_wrapped(model)
    names = _called(model.program) if model.program is not None else iter(())
    found = Counter(name.partition("::")[2] for name in names if name.startswith("aten::quantize_per_"))
    if found:
        raise UnsupportedError(
            "already_quantized", f"{model.source.name} is quantized already, in torch's older form: it holds {_listed(found)}.",
            why="Only TorchScript Lite has its quantized tensors, and a program with them can't be handed on to be quantized.",
            fix="Package it as file.py:factory with --runtime torchscript alone and no --quantize, or give the float model with --quantize static-int8.",
        )  # fmt: skip


def _refuse_wrapped(model: Model) -> None:
    """torchao's ``quantize_`` leaves objects in the place of weights, which no runtime here takes."""
    import torch.utils._python_dispatch as dispatch

    is_wrapped: Any = dispatch.is_traceable_wrapper_subclass  # narrows the type to one without data
    weights: Iterable[Any] = model.program.state_dict.values() if model.program is not None else ()
    found = Counter(type(t.data).__name__ for t in weights if is_wrapped(t))
    if found:
        raise UnsupportedError(
            "already_quantized", f"{model.source.name} is quantized already, by torchao: it holds {_listed(found)}.",
            why="Its weights are torchao's objects, which no runtime here can read.",
            fix="Give the float model with --quantize weight-int8, dynamic-int8 or weight-int4.",
        )  # fmt: skip


def refuse_observers(names: Iterable[str], learning: int = 0) -> None:
    """The same by the names of a model's buffers.

    Args:
        learning: operators that are known to observe, whatever their names.

    Raises:
        InputError: there are observers.
    """
    found = {name[: match.end()] for name in map(str, names) if (match := _OBSERVERS.search(name))}
    count = learning or len(found)
    if count:
        raise InputError(
            "unfinished_quantization", "The model was prepared for quantization and never converted: it holds "
            f"{count} observer{'s' * (count > 1)}.",
            why="Observers change their ranges at every call, and the weights are still float32.",
            fix="Finish it with convert, convert_fx or convert_pt2e, whichever belongs to its prepare step, and export the result; "
            "or give the float model with --quantize qat-int8 or static-int8.",
        )  # fmt: skip


def _kinds(block: Any) -> Iterator[str]:
    for node in block.nodes():
        yield str(node.kind())
        for inner in node.blocks():
            yield from _kinds(inner)


def _refusal(name: str, scheme: str, found: Counter[str]) -> UnsupportedError:
    return UnsupportedError(
        "already_quantized",
        f"{name} is quantized already, so {scheme} has nothing to start from: it holds {_listed(found)}.",
        why="Rounding rounded numbers again loses accuracy and saves nothing.",
        fix="Leave out --quantize to package it as it is, or give the float model.",
    )  # fmt: skip


def _listed(found: Counter[str]) -> str:
    return ", ".join(f"{count} {op}" for op, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:4])
