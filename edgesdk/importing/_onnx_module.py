"""An ONNX graph as an ``nn.Module`` that torch.export can follow, dynamic sizes included."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgesdk.errors import EdgeError, UnsupportedError
from edgesdk.importing import _onnx_layers, _onnx_shapes
from edgesdk.importing._onnx_ops import OPERATORS, Const, Node, OnnxOperatorError, Value, host, light, tensor

if TYPE_CHECKING:
    from torch import nn

_REGISTERED = (_onnx_layers, _onnx_shapes)  # importing them fills OPERATORS


@dataclass(frozen=True)
class Graph:
    """Operators in order, constants by name, names of inputs and outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, Const]
    steps: tuple[tuple[Node, tuple[Graph, ...]], ...]


def identifier(name: str) -> str:
    """The name as Python and torch.export allow it."""
    word = re.sub(r"\W", "_", name)
    return word if word and not word[0].isdigit() else f"_{word}"


def parameters(names: Sequence[str]) -> list[str]:
    """Names of the inputs as parameters of ``forward``: no keyword, not ``self``, each its own (``a.b`` beside ``a_b``)."""
    words: list[str] = []
    for name in names:
        word = identifier(name)
        while keyword.iskeyword(word) or word == "self" or word in words:
            word += "_"
        words.append(word)
    return words


def converted(proto: Any, names: Sequence[str]) -> nn.Module:
    """The graph behind ``forward(NAMES…)``, which returns a dictionary by output name.

    Args:
        proto: an ``onnx.ModelProto`` with its weights.
        names: Python names of the graph's inputs, in order.

    Raises:
        UnsupportedError: an operator without torch counterpart; names it.
    """
    import torch

    class OnnxModule(torch.nn.Module):
        edgesdk_strict = False

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs)
            _, *values = bound.arguments.values()
            env = dict(zip(graph.inputs, values, strict=True))
            run(self, graph, env)
            return {name: tensor(self._of(_made(env, name))) for name in graph.outputs}

        def _of(self, value: Value) -> Value:
            return _own(self, value)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(n, kind) for n in ("self", *names)])
    vars(OnnxModule.forward)["__signature__"] = signature
    module = OnnxModule()
    opset = next((i.version for i in proto.opset_import if i.domain in ("", "ai.onnx")), 1)
    graph = _read_graph(proto.graph, opset, {})
    _register(module, graph)
    return module.eval()


def _read_graph(proto: Any, opset: int, outer: dict[str, Const]) -> Graph:
    from onnx import numpy_helper

    constants = {t.name: Const(np.array(numpy_helper.to_array(t))) for t in proto.initializer}
    steps = []
    for one in proto.node:
        node = _node(one, opset)
        seen = {**outer, **constants}
        if node.op == "Constant":
            constants[node.outputs[0]] = Const(np.array(_constant(node)))
            continue
        if (node.op not in OPERATORS and node.op != "If") or one.domain not in ("", "ai.onnx"):
            raise _no_counterpart(node, one.domain)
        if node.op in _FOLDED and node.inputs and all(not n or n in seen for n in node.inputs):
            constants.update(_folded(node, seen))
            continue
        branches = ("then_branch", "else_branch") if node.op == "If" else ()
        subgraphs = tuple(_read_graph(_attribute(one, n).g, opset, seen) for n in branches)
        steps.append((_with_weights(node, seen), subgraphs))
    inputs = tuple(v.name for v in proto.input if v.name not in constants)
    return Graph(inputs, tuple(v.name for v in proto.output), constants, tuple(steps))


_FOLDED = frozenset(["Unsqueeze", "Squeeze", "Transpose", "Concat", "Reshape", "Slice", "Cast", "Identity", "Neg"])
"""Operators that exporters leave between a weight and the layer that uses it."""


def _folded(node: Node, constants: dict[str, Const]) -> dict[str, Const]:
    values = [constants[n] if n else None for n in node.inputs]
    made = OPERATORS[node.op](node, values)
    array = made.array if isinstance(made, Const) else made if isinstance(made, np.ndarray) else made.numpy()
    return {node.outputs[0]: Const(np.array(array))}


def _register(module: nn.Module, graph: Graph) -> None:
    """Give the weights that are used a place in the module; sizes and single numbers stay arrays."""
    used = {n for g in _all(graph) for node, _ in g.steps for n in node.inputs} | set(graph.outputs)
    for one in _all(graph):
        named = [(n, c) for n, c in one.constants.items() if n in used]
        named += [
            (f"{node.name or node.op}_weight_{i}", c)
            for node, _ in one.steps
            for i, c in enumerate(node.attrs.get("torch_weights", ()))
        ]
        for name, const in named:
            _place(module, name, const)


def _all(graph: Graph) -> Iterator[Graph]:
    yield graph
    for _, subgraphs in graph.steps:
        for inner in subgraphs:
            yield from _all(inner)


def _place(module: nn.Module, name: str, const: Const) -> None:
    import torch

    array = const.array
    if const.key or array.dtype == object or array.ndim == 0:
        return
    if array.size <= 16 and not np.issubdtype(array.dtype, np.floating):
        return
    key = identifier(name)
    while hasattr(module, key):
        key += "_"
    value = torch.from_numpy(array)
    if value.is_floating_point():
        module.register_parameter(key, torch.nn.Parameter(value, requires_grad=False))
    else:
        module.register_buffer(key, value)
    const.key = key


def _attribute(node: Any, name: str) -> Any:
    return next(a for a in node.attribute if a.name == name)


def _node(proto: Any, opset: int) -> Node:
    import onnx

    attrs: dict[str, Any] = {}
    for attribute in proto.attribute:
        if attribute.type in (attribute.GRAPH, attribute.GRAPHS):
            continue
        value = onnx.helper.get_attribute_value(attribute)
        if attribute.type == attribute.STRING:
            value = value.decode()
        elif attribute.type == attribute.STRINGS:
            value = [v.decode() for v in value]
        elif attribute.type == attribute.TENSOR:
            value = onnx.numpy_helper.to_array(value)
        elif attribute.name == "to":
            value = str(onnx.helper.tensor_dtype_to_np_dtype(value))
        attrs[attribute.name] = value
    return Node(proto.op_type, proto.name, tuple(proto.input), tuple(proto.output), attrs, opset)


def _constant(node: Node) -> np.ndarray[Any, Any]:
    for key, kind in (("value_int", np.int64), ("value_ints", np.int64), ("value_float", np.float32), ("value_floats", np.float32)):  # fmt: skip
        if key in node.attrs:
            return np.asarray(node.attrs[key], dtype=kind)
    if "value" not in node.attrs:
        raise _no_counterpart(node, "")
    return np.asarray(node.attrs["value"])


def _own(module: nn.Module, value: Value) -> Value:
    """The constant as this module holds it, which may be a copy of the one that was built."""
    return Const(value.array, value.key, module) if isinstance(value, Const) else value


def _with_weights(node: Node, constants: dict[str, Const]) -> Node:
    """A recurrent layer's weights in torch's order, made once; the file's own order is then no longer needed."""
    if node.op not in ("LSTM", "GRU", "RNN"):
        return node
    given = [constants.get(node.inputs[i]) if i < len(node.inputs) else None for i in (1, 2, 3)]
    arrays = _onnx_layers.gates(node, [c.array if c is not None else None for c in given])
    made = tuple(Const(a) for a in arrays)
    kept = tuple("" if i in (1, 2, 3) and arrays else n for i, n in enumerate(node.inputs))
    return Node(node.op, node.name, kept, node.outputs, {**node.attrs, "torch_weights": made}, node.opset)


def run(module: nn.Module, graph: Graph, env: dict[str, Any]) -> None:
    """Run a graph's operators in order; their results go into ``env``."""
    env.update(graph.constants)
    for node, subgraphs in graph.steps:
        script_line = f"{node.op} '{node.name or node.outputs[0]}'"  # the shape watcher reads it off this frame
        try:
            values = [_own(module, _made(env, name)) if name else None for name in node.inputs]
            if node.op == "If":
                made = _branch(module, node, values, subgraphs, env)
            else:
                made = OPERATORS[node.op](_owned(module, node), values)
        except OnnxOperatorError as exc:
            raise _refused(script_line, exc) from exc
        except EdgeError:
            raise
        except Exception as exc:  # whatever torch raises
            if not hasattr(exc, "edgesdk_line"):
                exc.edgesdk_line = script_line  # type: ignore[attr-defined]
            raise
        results = [
            np.asarray(m) if isinstance(m, np.generic) else m for m in (made if isinstance(made, tuple) else (made,))
        ]
        env.update({name: value for name, value in zip(node.outputs, results, strict=False) if name})


def _made(env: dict[str, Any], name: str) -> Any:
    """A value by name; a second output (a mask, a mean) that the operator's counterpart doesn't give is told."""
    if name in env:
        return env[name]
    raise _refused(f"that makes '{name}'", OnnxOperatorError("this output of it has no torch counterpart"))


def _owned(module: nn.Module, node: Node) -> Node:
    weights = node.attrs.get("torch_weights")
    if weights is None:
        return node
    own = tuple(_own(module, c) for c in weights)
    return Node(node.op, node.name, node.inputs, node.outputs, {**node.attrs, "torch_weights": own}, node.opset)


def _branch(
    module: nn.Module, node: Node, values: Sequence[Value], subgraphs: Sequence[Graph], env: dict[str, Any]
) -> tuple[Any, ...]:
    condition = host(values[0])
    if condition is None or not light(values[0]):
        raise OnnxOperatorError("its condition depends on the values that are fed in, and a graph holds one branch")
    chosen = subgraphs[0] if bool(condition.reshape(-1)[0]) else subgraphs[1]
    inner = dict(env)
    run(module, chosen, inner)
    return tuple(inner[name] for name in chosen.outputs)


def _refused(place: str, exc: Exception) -> UnsupportedError:
    return UnsupportedError(
        "unsupported_op",
        f"The ONNX operator {place} can't be converted to PyTorch: {exc}.",
        why="ExecuTorch and TorchScript need the model as a PyTorch graph; ONNX Runtime takes the file as it is.",
        fix="Use --runtime onnx, or export the model without that operator.",
        details={"operator": place},
    )


def _no_counterpart(node: Node, domain: str) -> UnsupportedError:
    from edgesdk.quantize._already import is_quantized_operator

    name = f"{domain}.{node.op}" if domain else node.op
    if is_quantized_operator(node.op, domain):
        return UnsupportedError(
            "unsupported_op", f"The ONNX file is quantized already ({name} '{node.name or node.outputs[0]}').",
            why="Its integers can't be taken over into a PyTorch graph, which ExecuTorch and TorchScript need.",
            fix="Use --runtime onnx, which takes the file as it is, or give the float model with --quantize static-int8.",
            details={"operator": name},
        )  # fmt: skip
    return _refused(f"{name} '{node.name or node.outputs[0]}'", OnnxOperatorError("it has no torch counterpart here"))
