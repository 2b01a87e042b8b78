"""Models that come quantized: quantizing them again would add errors on top of errors, and save nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from edgesdk.errors import UnsupportedError

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgesdk.artifacts import Model

_NAMESPACES = ("quantized_decomposed::", "torchao::", "quantized::")
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
    found = _of_program(model.program) if model.program is not None else Counter[str]()
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
    if node.domain == "com.microsoft":
        return str(node.op_type).startswith(_MICROSOFT) or node.op_type in _ONNX
    return not node.domain and node.op_type in _ONNX


def _of_program(program: Any) -> Counter[str]:
    import torch

    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    names = [_name(n.target) for m in modules for n in m.graph.nodes if n.op == "call_function"]
    return Counter(name.partition("::")[2] for name in names if name.startswith(_NAMESPACES))


def _name(target: Any) -> str:
    schema = getattr(target, "_schema", None)
    return str(schema.name) if schema is not None else ""


def _refusal(name: str, scheme: str, found: Counter[str]) -> UnsupportedError:
    listed = ", ".join(f"{count} {op}" for op, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))[:4])
    return UnsupportedError(
        "already_quantized", f"{name} is quantized already, so {scheme} has nothing to start from: it holds {listed}.",
        why="Rounding rounded numbers again loses accuracy and saves nothing.",
        fix="Leave out --quantize to package it as it is, or give the float model.",
    )  # fmt: skip
