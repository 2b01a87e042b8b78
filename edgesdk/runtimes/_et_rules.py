"""When a pass of ExecuTorch would change a node while it rebuilds a graph; see ``_et_fast``.

Each rule errs towards True: then the pass simply runs. Read against executorch 1.5.1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

Rule = Callable[[Any], bool]


@functools.cache
def rules() -> dict[type, Rule]:
    """By pass class: whether it may act on a graph module without submodules and attributes."""
    from executorch.exir.passes.const_prop_pass import ConstPropPass
    from executorch.exir.passes.memory_format_ops_pass import DimOrderOpsRevertPass, MemoryFormatOpsPass
    from executorch.exir.passes.normalize_transpose_pass import NormalizeTransposePass
    from executorch.exir.passes.remove_mixed_type_operators import RemoveMixedTypeOperators
    from executorch.exir.passes.replace_broken_ops_with_function_ops_pass import ReplaceBrokenOpsWithFunctionalOpsPass
    from executorch.exir.passes.scalar_to_tensor_pass import ScalarToTensorPass
    from executorch.exir.passes.sym_to_tensor_pass import SymToTensorPass

    return {
        NormalizeTransposePass: _transposes,
        ReplaceBrokenOpsWithFunctionalOpsPass: _views,
        SymToTensorPass: _symbols,
        RemoveMixedTypeOperators: _mixed_types,
        MemoryFormatOpsPass: _memory_formats,
        DimOrderOpsRevertPass: _dim_orders,
        ConstPropPass: _constants,
        ScalarToTensorPass: _scalars,
    }


def _calls(module: Any) -> Iterator[Any]:
    return (node for node in module.graph.nodes if node.op == "call_function")


def _transposes(module: Any) -> bool:
    import torch

    return any(node.target == torch.ops.aten.t.default for node in _calls(module))


def _views(module: Any) -> bool:
    """A view operator is replaced by its copying twin; whatever is no operator at all is left to the pass."""
    import torch

    return any(
        node.target.is_view
        for node in _calls(module)
        if isinstance(node.target, torch._ops.OpOverload) or hasattr(node.target, "is_view")
    )


def _symbols(module: Any) -> bool:
    import torch

    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return any(isinstance(node.meta.get("val"), kinds) for node in module.graph.nodes)


def _scalars(module: Any) -> bool:
    """A number stands where the schema wants a tensor."""
    import torch

    def of_tensors(kind: Any) -> bool:
        return "Tensor" in str(kind)

    def has_number(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return any(map(has_number, value))
        return isinstance(value, bool | int | float)

    for node in _calls(module):
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        for i, argument in enumerate(node.target._schema.arguments):
            value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
            if of_tensors(argument.type) and has_number(value):
                return True
    return False


def _mixed_types(module: Any) -> bool:
    """An operator that promotes has operands that are not all floating-point tensors of one dtype."""
    import torch

    aten = torch.ops.aten
    promoting = {
        aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.div.Tensor, aten.div.Tensor_mode, aten.minimum.default
    }  # fmt: skip
    for node in _calls(module):
        if node.target not in promoting:
            continue
        values = [a.meta.get("val") if isinstance(a, torch.fx.Node) else None for a in node.args]
        if not all(isinstance(v, torch.Tensor) and v.dtype.is_floating_point for v in values):
            return True
        if len({v.dtype for v in values if v is not None}) > 1:
            return True
    return False


def _memory_formats(module: Any) -> bool:
    from executorch.exir.passes.dim_order_ops_registry import DimOrderOpsMap

    return any(node.target in DimOrderOpsMap for node in _calls(module))


def _dim_orders(module: Any) -> bool:
    from executorch.exir.passes.dim_order_ops_registry import MemoryFormatOpsMap

    return any(node.target in MemoryFormatOpsMap for node in _calls(module))


def _constants(module: Any) -> bool:
    """A call without tensors from the graph has constant arguments only and is computed at once."""
    return any(not node.all_input_nodes for node in _calls(module))
