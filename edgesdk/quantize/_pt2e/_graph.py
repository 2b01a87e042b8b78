"""From an exported program to a graph module that torchao can edit, and back, with the same inputs and sizes."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model
from edgesdk.quantize._pt2e._products import to_linear
from edgesdk.runtimes import _ts_alias
from edgesdk.runtimes._fp16 import _dynamic

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without torchao's deprecations and hints, which the user can do nothing about; everything is put back."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def operators() -> Any:
    """``torch.ops.quantized_decomposed``, which exists once its library is imported."""
    import torch
    import torch.ao.quantization.fx._decomposed

    return torch.ops.quantized_decomposed


def module_of(program: ExportedProgram) -> GraphModule:
    """The program as a graph module with weights as attributes, products with a constant matrix as linear layers.

    Weights are shared with the program, what it writes to is copied: a run leaves the program as it was.
    """
    import torch

    module: Any = _without_inner_writes(program).module(check_guards=False)
    for name in written_buffers(module):
        owner, _, leaf = name.rpartition(".")
        value = getattr(module.get_submodule(owner), leaf)
        copied = value.detach().clone()
        held = torch.nn.Parameter(copied, requires_grad=False) if isinstance(value, torch.nn.Parameter) else copied
        setattr(module.get_submodule(owner), leaf, held)  # an embedding with max_norm writes into a parameter
    _without_writes(module)
    to_linear(module, frozenset(written_buffers(module)))
    for name in ("train", "eval"):  # bound to this very object: torchao's copies would keep it and its weights alive
        module.__dict__.pop(name, None)
    found: GraphModule = module
    return found


def _without_inner_writes(program: ExportedProgram) -> ExportedProgram:
    """The program in functional form when it writes into values that somebody else reads, such as ``y[:, :8] += 1``.

    Each reader of a quantized value gets a copy of its own: a write into one of them would be lost, and a copy of state
    that is made before a write would be old.
    """
    inner = any(_writes_into_a_value(node) for node in program.graph.nodes)
    if not inner and not _ts_alias.reads_between_writes(program.graph):
        return program
    with quiet():
        found: ExportedProgram = program.run_decompositions({})
        return found


def _writes_into_a_value(node: Node) -> bool:
    if node.op != "call_function":
        return False
    written = [source for source in _ts_alias.written(node) if not _ts_alias.aliases(source)]
    pure = str(getattr(node.target, "__name__", "")) in (*_PURE, "relu6_.default") and _is_owned(node)
    return bool(written) and not pure


def written_buffers(module: GraphModule) -> list[str]:
    """Names of the buffers that a call changes."""
    written = _ts_alias.mutated(module.graph)
    return sorted({str(node.target) for node in module.graph.nodes if node.op == "get_attr" and node in written})


_PURE = {
    "relu_.default": "relu.default", "hardtanh_.default": "hardtanh.default", "add_.Tensor": "add.Tensor",
    "mul_.Tensor": "mul.Tensor", "sub_.Tensor": "sub.Tensor", "div_.Tensor": "div.Tensor",
    "hardswish_.default": "hardswish.default", "silu_.default": "silu.default", "sigmoid_.default": "sigmoid.default",
    "hardsigmoid_.default": "hardsigmoid.default", "leaky_relu_.default": "leaky_relu.default",
    "elu_.default": "elu.default", "mish_.default": "mish.default",
    "tanh_.default": "tanh.default", "clamp_.default": "clamp.default", "dropout_.default": "dropout.default",
}  # fmt: skip


def _without_writes(module: GraphModule) -> None:
    """``relu_`` becomes ``relu`` where nobody else looks at what it overwrites; observers can't stand such writes."""
    import torch

    for node in module.graph.nodes:
        if str(getattr(node.target, "__name__", "")) == "relu6.default":
            node.target, node.args = torch.ops.aten.hardtanh.default, (node.args[0], 0.0, 6.0)
        pure = _PURE.get(str(getattr(node.target, "__name__", "")))
        if node.op != "call_function" or pure is None or not _is_owned(node):
            continue
        name, _, overload = pure.partition(".")
        node.target = getattr(getattr(torch.ops.aten, name), overload)
    module.recompile()


def _is_owned(node: Node) -> bool:
    source: Any = node.args[0]
    schema = getattr(source.target, "_schema", None)
    fresh = schema is not None and not any(r.alias_info is not None for r in schema.returns)
    return source.op == "call_function" and fresh and len(source.users) == 1


def scalars_to_tensors(module: GraphModule) -> GraphModule:
    """``x + 0.5`` and ``x * 2`` read a constant tensor, which can be quantized.

    Like executorch's ``_convert_scalars_to_attrs``, but of float tensors only: that one adds a float 0 to positions, too, and
    they can't be indices any more.
    """
    import torch

    for node in list(module.graph.nodes):
        value = node.meta.get("val")
        if node.target not in (torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor) or value.dtype != torch.float32:
            continue
        for place, given in enumerate(node.args):
            if isinstance(given, (int, float)):
                node.update_arg(place, _constant(module, node, float(given)))
    module.recompile()
    return module


def _constant(module: GraphModule, node: Node, number: float) -> Node:
    import torch

    count = 0
    while hasattr(module, f"_tensor_constant_{count}"):
        count += 1
    name = f"_tensor_constant_{count}"
    module.register_buffer(name, torch.tensor(number))
    with module.graph.inserting_before(node):
        made = module.graph.create_node("get_attr", name)
    made.meta["val"] = node.meta["val"].fake_mode.from_tensor(getattr(module, name), static_shapes=True)
    return made


def attribute(module: torch.nn.Module, target: str) -> Any:
    """What a ``get_attr`` node reads."""
    found: Any = module
    for part in target.split("."):
        found = getattr(found, part)
    return found


def leaves_of(model: Model, feed: Mapping[str, Any]) -> list[Any]:
    """The flat arguments of one call: tensors of the feed by the signature's order, other values from the example."""
    import numpy as np
    import torch

    program: Any = model.program
    given = iter([torch.from_numpy(np.array(feed[spec.name])) for spec in model.signature.inputs])
    example = torch.utils._pytree.tree_leaves(program.example_inputs)
    return [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in example]


def call(module: GraphModule, program: ExportedProgram, leaves: list[Any]) -> list[Any]:
    """Run the graph on flat arguments; flat results."""
    import torch

    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    with torch.no_grad():
        return list(torch.utils._pytree.tree_leaves(module(*args, **kwargs)))


def exported(module: GraphModule, program: ExportedProgram) -> ExportedProgram:
    """Export the edited graph anew: flat tensors in, flat tensors out, sizes as dynamic as they were."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(program.example_inputs)
    # NumPy's new axis has a stride of 0, which a clone hasn't.
    plain = torch.contiguous_format
    tensors = tuple(leaf.clone(memory_format=plain) for leaf in leaves if isinstance(leaf, torch.Tensor))
    for node in module.graph.nodes:
        node.meta = {key: node.meta[key] for key in ("stack_trace", "nn_module_stack", "custom") if key in node.meta}
    with quiet(), torch.no_grad(), torch.fx.traceback.preserve_node_meta():
        return torch.export.export(_flat(module, leaves), tensors, dynamic_shapes=_dynamic(program))


def _flat(module: GraphModule, leaves: list[Any]) -> torch.nn.Module:
    import torch

    class Traced(torch.fx.Interpreter):
        def run_node(self, n: Node) -> Any:
            with torch.fx.traceback.set_current_meta(n):
                return super().run_node(n)

    class Flat(torch.nn.Module):
        """Holds the very dictionaries of the graph module, so that weights keep their names."""

        def __init__(self) -> None:
            super().__init__()
            self._parameters, self._buffers, self._modules = module._parameters, module._buffers, module._modules
            self._held = [module]  # in a list: as a submodule it would put its name before all others

        def forward(self, *tensors: torch.Tensor) -> Any:
            given = iter(tensors)
            values = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            return tuple(Traced(self._held[0]).run(*values, enable_io_processing=False))

    return Flat()


def detached(module: GraphModule) -> GraphModule:
    """A copy with weights of its own."""
    return copy.deepcopy(module)
