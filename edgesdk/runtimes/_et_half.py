"""Half precision inside, the signature as it was: inputs and outputs keep their dtypes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from edgesdk.errors import UnsupportedError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def in_half_precision(program: ExportedProgram) -> ExportedProgram:
    """The program with float32 weights and arithmetic in float16.

    Raises:
        UnsupportedError: the graph mixes dtypes in a way that float16 breaks.
    """
    import torch

    module = copy.deepcopy(program.module(check_guards=False)).half()
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            _change_dtypes(part)
    wrapped = _wrapper(module, program)
    args, kwargs = program.example_inputs or ((), {})
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float16)  # tensors that the graph makes without naming a dtype
        with torch.no_grad():
            return torch.export.export(wrapped, args, kwargs, dynamic_shapes=_dynamic(program))
    except Exception as error:
        raise UnsupportedError(
            "fp16_unsupported", "The model can't be computed in half precision.",
            why=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
            fix="Package it without --quantize fp16.",
        ) from error  # fmt: skip
    finally:
        torch.set_default_dtype(default)


def _change_dtypes(module: Any) -> None:
    """float32 written into the graph (``zeros(dtype=float32)``, ``to(float32)``) becomes float16."""
    import torch

    def change(value: Any) -> Any:
        return torch.float16 if value is torch.float32 else value

    for node in module.graph.nodes:
        if node.op == "call_function":
            node.args = torch.fx.node.map_aggregate(node.args, change)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, change)
    module.recompile()


def _wrapper(module: Any, program: ExportedProgram) -> Any:
    import torch
    from torch.utils._pytree import tree_map_only

    wide = [_is_float32(node) for node in _outputs(program)]

    class HalfInside(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = tree_map_only(torch.Tensor, _narrow, (args, kwargs))
            leaves, spec = torch.utils._pytree.tree_flatten(self.inner(*args, **kwargs))
            found = [v.float() if w and isinstance(v, torch.Tensor) else v for v, w in zip(leaves, wide, strict=True)]
            return torch.utils._pytree.tree_unflatten(found, spec)

    return HalfInside()


def _narrow(tensor: Any) -> Any:
    import torch

    return tensor.half() if tensor.dtype == torch.float32 else tensor


def _outputs(program: ExportedProgram) -> list[Any]:
    nodes = {node.name: node for node in program.graph.nodes}
    return [nodes.get(name) if isinstance(name, str) else None for name in program.graph_signature.user_outputs]


def _is_float32(node: Any) -> bool:
    import torch

    value = node.meta.get("val") if node is not None else None
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _sizes(value: Any) -> list[Any]:
    return list(getattr(value, "shape", ()))


def _dynamic(program: ExportedProgram) -> Any:
    """The dynamic sizes of the inputs with their ranges, for exporting anew; None when all are fixed."""
    import torch
    from torch.export import Dim

    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    shapes = []
    for name in program.graph_signature.user_inputs:
        value = nodes[name].meta.get("val") if isinstance(name, str) else None
        dims: dict[int, Any] = {}
        for i, size in enumerate(_sizes(value)):
            if isinstance(size, torch.SymInt):
                limits = program.range_constraints.get(size.node.expr)
                low, high = (int(limits.lower), int(limits.upper)) if limits is not None else (None, None)
                dims[i] = Dim.AUTO(min=low, max=high)
        shapes.append(dims or None)
    if not any(shapes):
        return None
    _, spec = torch.utils._pytree.tree_flatten(program.example_inputs)
    args, kwargs = torch.utils._pytree.tree_unflatten(shapes, spec)
    return {"args": tuple(args), "kwargs": kwargs} if kwargs else {"args": tuple(args)}
