"""A copy of an exported program that may be edited, and running it sample by sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from edgesdk.artifacts import Signature
from edgesdk.runtimes._ts_alias import is_state, mutated

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

    See = Callable[["Node", Any], None]

HALVES = ("float16", "bfloat16")


@dataclass
class Work:
    """What the TorchScript writer reads of an exported program, with a graph of our own.

    Values that quantization adds (packed weights, scales) are attributes of ``graph_module``, read by ``get_attr``
    nodes; the program's own tensors stay placeholders and are shared, not copied.

    Attributes:
        weights: the node's constant weight and its name, by operator node; filled by ``_normal``.
    """

    graph_module: torch.fx.GraphModule
    graph_signature: Any
    state_dict: dict[str, Any]
    constants: dict[str, Any]
    names: dict[str, str] = field(default_factory=dict)
    _added: int = 0

    @property
    def graph(self) -> torch.fx.Graph:
        return self.graph_module.graph

    def placeholders(self) -> list[tuple[Node, Any]]:
        nodes = [n for n in self.graph.nodes if n.op == "placeholder"]
        return list(zip(nodes, self.graph_signature.input_specs, strict=True))

    def changing(self) -> set[Node]:
        """Placeholders of buffers that a call changes."""
        written = mutated(self.graph)
        targets = set(self.graph_signature.buffers_to_mutate.values())
        return {n for n, spec in self.placeholders() if is_state(spec) and (n in written or spec.target in targets)}

    def tensor(self, target: str) -> torch.Tensor | None:
        import torch

        found = self.state_dict.get(target, self.constants.get(target))
        return found.detach() if isinstance(found, torch.Tensor) else None

    def add(self, value: Any, like: Node | None = None) -> Node:
        """A node that reads a new constant: a tensor, an object of packed weights or a list of such."""
        name = f"constant_{self._added}"
        self._added += 1
        setattr(self.graph_module, name, value)
        first = next(n for n in self.graph.nodes if n.op != "placeholder")
        with self.graph.inserting_before(first):
            node = self.graph.create_node("get_attr", name)
        node.meta = {"constant": value, **({"val": like.meta.get("val")} if like is not None else {})}
        return node

    def insert(self, after: Node, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Node:
        """A call right behind ``after``, which it is said to stand for."""
        if after.op in ("placeholder", "get_attr"):
            place = next(n for n in self.graph.nodes if n.op not in ("placeholder", "get_attr"))
            with self.graph.inserting_before(place):
                made = self.graph.call_function(target, args, dict(kwargs or {}))
        else:
            with self.graph.inserting_after(after):
                made = self.graph.call_function(target, args, dict(kwargs or {}))
        made.meta = dict(after.meta)
        return made

    def clean(self) -> None:
        """Forget what nothing reads any more. Placeholders stay: the signature counts them."""
        graph = self.graph
        graph.eliminate_dead_code()
        for node in list(graph.nodes):
            if node.op == "get_attr" and not node.users and node.target.startswith("constant_"):
                graph.erase_node(node)
                delattr(self.graph_module, node.target)
        graph.lint()  # (no recompile: the interpreter and the writer read the graph)


def copy_of(program: ExportedProgram | Work) -> Work:
    """A copy whose graph can be edited; sub-graphs and tensors are shared. Half precision becomes float32."""
    import torch

    graph = torch.fx.Graph()
    values: dict[Node, Node] = {}
    returned = graph.graph_copy(program.graph, values)
    output = program.graph.output_node()
    graph.output(returned).meta = dict(output.meta)
    gm = torch.fx.GraphModule(program.graph_module, graph)
    for node in graph.nodes:
        node.args = tuple(map(_wide, node.args))
        node.kwargs = {k: _wide(v) for k, v in node.kwargs.items()}
    state = {k: _wide_tensor(v) for k, v in program.state_dict.items()}
    constants = {k: _wide_tensor(v) for k, v in program.constants.items()}
    made = Work(gm, program.graph_signature, state, constants)
    if isinstance(program, Work):
        made.names, made._added = dict(program.names), program._added
    return made


def _wide(value: Any) -> Any:
    import torch

    return torch.float32 if value in (torch.float16, torch.bfloat16) else value


def _wide_tensor(value: Any) -> Any:
    import torch

    half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.detach().float() if half else value


def is_float(node: Any) -> bool:
    """Whether a node's value is one float32 tensor (half precision counts: it was widened)."""
    import torch

    value = getattr(node, "meta", {}).get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.float16, torch.bfloat16)


def module_path(node: Node) -> str:
    """``features.3``: the module whose code the operator came from; empty when unknown or the model itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]).removeprefix("L['self'].") if stack else ""


def op_name(target: Any) -> str:
    """``conv2d`` for ``aten.conv2d.default``."""
    schema = getattr(target, "_schema", None)
    name = schema.name.partition("::")[2] if schema is not None else getattr(target, "__name__", str(target))
    return str(name).rstrip("_")


class Player:
    """Runs a graph on feeds, one after the other. Buffers that calls change keep their values in between."""

    def __init__(self, work: Work, signature: Signature) -> None:
        self.work, self.signature = work, signature
        self._changing = work.changing()
        self._state = {n: self._first(spec).clone() for n, spec in work.placeholders() if n in self._changing}

    def _first(self, spec: Any) -> Any:
        return self.work.state_dict.get(spec.target, self.work.constants.get(spec.target))

    def play(self, feed: Mapping[str, np.ndarray], see: See | None = None) -> list[Any]:
        """The outputs that the user gets; ``see`` is told every operator's value as it is made."""
        import torch

        arrays = [feed[spec.name] for spec in self.signature.inputs]
        with torch.no_grad():
            found = _watch(self.work.graph_module, see).run(*self._arguments(arrays))
        return self._split(found)

    def _arguments(self, arrays: Iterable[np.ndarray]) -> list[Any]:
        import torch

        given = iter(arrays)
        values: list[Any] = []
        for node, spec in self.work.placeholders():
            if node in self._state:
                values.append(self._state[node])
            elif is_state(spec) or spec.kind.name != "USER_INPUT":
                values.append(self._first(spec))
            elif isinstance(node.meta.get("val"), torch.Tensor):
                values.append(_wide_tensor(torch.from_numpy(next(given).copy())))
            else:
                values.append(spec.arg.value)
        return values

    def _split(self, found: Any) -> list[Any]:
        outputs = []
        by_target = {spec.target: n for n, spec in self.work.placeholders() if n in self._state}
        for value, spec in zip(found, self.work.graph_signature.output_specs, strict=True):
            if spec.kind.name == "USER_OUTPUT":
                outputs.append(value)
            elif spec.kind.name == "BUFFER_MUTATION" and spec.target in by_target:
                self._state[by_target[spec.target]] = value
        return outputs


def _watch(gm: torch.fx.GraphModule, see: See | None) -> torch.fx.Interpreter:
    import torch

    class Watched(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            try:
                value = super().run_node(n)
            except Exception as exc:
                raise Stopped(n, exc) from exc
            if see is not None and n.op != "output":
                see(n, value)
            return value

    watched: Any = Watched(gm)
    watched.extra_traceback = False  # torch would print the whole graph into the message
    return cast("torch.fx.Interpreter", watched)


class Stopped(Exception):
    """An operator failed while a graph ran."""

    def __init__(self, node: Node, cause: Exception) -> None:
        super().__init__(f"{node.name}: {cause}")
        self.node, self.cause = node, cause
