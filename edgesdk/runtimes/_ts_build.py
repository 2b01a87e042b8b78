"""Write an exported program as a TorchScript graph, operator by operator.

Tracing would bake the sizes of dynamic dimensions and run the model; scripting needs the user's source. The exported
graph already is a list of ATen calls with complete schemas, so each call becomes the node of the same name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from edgesdk.errors import UnsupportedError
from edgesdk.runtimes._ts_alias import aliases, is_state, mutated
from edgesdk.runtimes._ts_tables import (
    CHECKS,
    MEMORY_FORMATS,
    NUMBERS,
    SIZES,
    TORCH_NUMBERS,
    plain_list,
    source_line,
    spread,
    torch_types,
)

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from edgesdk.quantize._fx._graph import Work

MODULE_NAME = "__torch__.EdgeModel"

_NO_SCHEMA = "(no schema)"
# TorchScript overloads take numbers as Scalar, which isn't bool; operators without such an overload take a tensor.
_WRAPPED: tuple[tuple[type, ...], ...] = ((bool,), (), (bool, int, float))


@dataclass(frozen=True)
class Built:
    """A module with one method ``forward`` of plain tensors.

    Attributes:
        module: the script module; everything that never changes is a constant of its graph.
        stateful: buffers are kept as attributes and change from call to call.
        widened: the program had half precision arithmetic, which became float32.
    """

    module: torch.ScriptModule
    stateful: bool
    widened: bool


@dataclass
class _Scope:
    """Values of the FX nodes of one graph; ``gm`` resolves its submodules."""

    gm: torch.fx.GraphModule
    values: dict[torch.fx.Node, Any] = field(default_factory=dict)


def build(program: ExportedProgram | Work, *, ranks: bool = False) -> Built:
    """Translate ``program``.

    Args:
        ranks: note dtype and number of dimensions of every tensor, for who reads the graph (the ONNX exporter).

    Raises:
        UnsupportedError: an operator that TorchScript doesn't have.
    """
    return _Builder(program, ranks).build()


def _packed(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Nodes that read packed weights (objects of C++ classes, or lists of such), which no constant of a graph can be."""
    import torch

    read = {n.target: n for n in gm.graph.nodes if n.op == "get_attr"}
    return [n for target, n in read.items() if isinstance(getattr(gm, str(target)), (torch.ScriptObject, list))]


def _packed_type(value: Any) -> Any:
    import torch

    infer: Any = torch._C._jit_try_infer_type
    return infer(value).type()


class _Builder:
    def __init__(self, program: ExportedProgram | Work, ranks: bool) -> None:
        import torch

        self.torch, self.program, self.ranks = torch, program, ranks
        self.nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
        specs = program.graph_signature.input_specs
        self.specs = dict(zip(self.nodes, specs, strict=True))
        self.written = mutated(program.graph)
        self.state = {n: f"state_{i}" for i, n in enumerate(self.nodes) if self._changes(n)}
        self.packed = {n.target: f"packed_{i}" for i, n in enumerate(_packed(program.graph_module))}
        self.widened = False
        self.narrow = {torch.float16, torch.bfloat16}

    def _changes(self, node: torch.fx.Node) -> bool:
        target = self.specs[node].target
        return is_state(self.specs[node]) and (
            node in self.written or target in self.program.graph_signature.buffers_to_mutate.values()
        )

    # -- the frame ----------------------------------------------------------------------------------------------------

    def build(self) -> Built:
        torch = self.torch
        users = [n for n in self.nodes if self.specs[n].kind.name == "USER_INPUT"]
        tensors = [n for n in users if isinstance(n.meta.get("val"), torch.Tensor)]
        module = self._empty_module([f"input_{i}" for i in range(len(tensors))], self._returned())
        self.graph = module._get_method("forward").graph
        this, *inputs = self.graph.inputs()
        old = list(self.graph.nodes())
        self.this = this
        scope = _Scope(self.program.graph_module)
        for node, value in zip(tensors, inputs, strict=True):
            value.setType(torch._C.TensorType.get())
            scope.values[node] = self._entered(node, value)
        self._fill_placeholders(scope, this, users)
        results = self._translate(scope)
        self.graph.return_node().replaceInput(0, self._returns(results))
        for node in reversed(old):
            node.destroy()
        self.graph.lint()
        return Built(module, bool(self.state), self.widened)

    def _empty_module(self, names: list[str], outputs: int) -> Any:
        """A module with its own compilation unit: the names in the file then don't depend on what was compiled before.

        Python can't attach a graph to a module, but it can trace a function of the right arity and rewrite its graph.
        """
        torch = self.torch
        module = torch._C.ScriptModule(MODULE_NAME, torch._C.CompilationUnit(), False)
        for node, name in self.state.items():
            module._register_attribute(name, torch._C.TensorType.get(), self._tensor(node).clone())
        for target, name in self.packed.items():
            value = getattr(self.program.graph_module, str(target))
            module._register_attribute(name, _packed_type(value), value)
        zero = torch.zeros(())

        def arity(*_: Any) -> Any:
            made = tuple(zero.clone() for _ in range(outputs))
            return made if outputs > 1 else made[0]

        module._create_method_from_trace(
            "forward", arity, tuple(zero for _ in names), lambda _: "", True, False, names, False
        )
        return module

    def _fill_placeholders(self, scope: _Scope, this: Any, users: list[torch.fx.Node]) -> None:
        for node in self.nodes:
            if node in scope.values:
                continue
            if node in self.state:
                got = self.graph.create("prim::GetAttr", [this], 1)
                got.s_("name", self.state[node])
                scope.values[node] = self._typed(got, self.torch._C.TensorType.get())
            elif node in users:
                scope.values[node] = self._constant(self.specs[node].arg.value)
            elif not node.users:
                scope.values[node] = None
            elif is_state(self.specs[node]):
                scope.values[node] = self.graph.insertConstant(self._wide(self._tensor(node)))
            else:
                raise self._refuse(node, f"an input of kind {self.specs[node].kind.name.lower()}")

    def _tensor(self, node: torch.fx.Node) -> torch.Tensor:
        target, program = self.specs[node].target, self.program
        found = program.state_dict.get(target) if target in program.state_dict else program.constants.get(target)
        if not isinstance(found, self.torch.Tensor):
            raise self._refuse(node, f"the object '{target}'")
        return found.detach().contiguous()

    def _wide(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype not in self.narrow:
            return tensor
        self.widened = True
        return tensor.float()

    def _entered(self, node: torch.fx.Node, value: Any) -> Any:
        """An input as the graph uses it: never written to, never half precision."""
        if node.meta["val"].dtype in self.narrow:
            self.widened = True
            return self._cast(value, self.torch.float32)
        if node in self.written or node.name in self.program.graph_signature.user_inputs_to_mutate.values():
            return self._op("aten::clone", [value, None])
        return value

    # -- outputs ------------------------------------------------------------------------------------------------------

    def _user_outputs(self) -> list[Any]:
        output = next(n for n in reversed(self.program.graph.nodes) if n.op == "output")
        specs = self.program.graph_signature.output_specs
        return [a for a, s in zip(output.args[0], specs, strict=True) if s.kind.name == "USER_OUTPUT" and a is not None]

    def _returned(self) -> int:
        return len(self._user_outputs())

    def _returns(self, results: Mapping[torch.fx.Node, Any]) -> Any:
        torch = self.torch
        self._write_back(results)
        values = []
        for item in self._user_outputs():
            if not isinstance(item, torch.fx.Node):
                values.append(self._op("aten::tensor", [item, None, None, False]))
                continue
            value = results[item]
            if not isinstance(item.meta.get("val"), torch.Tensor):
                value = self._op("aten::tensor", [value, None, None, False])
            elif item.meta["val"].dtype in self.narrow:
                value = self._cast(value, item.meta["val"].dtype)
            elif aliases(item):  # the caller owns what it gets: neither its own input nor our state
                value = self._op("aten::clone", [value, 0])
            values.append(value)
        if len(values) == 1:
            return values[0]
        made = self.graph.create("prim::TupleConstruct", values, 1)
        return self._typed(made, torch._C.TupleType([torch._C.TensorType.get()] * len(values)))

    def _write_back(self, results: Mapping[torch.fx.Node, Any]) -> None:
        """Functionalized programs return the new buffers; put them where the next call finds them."""
        output = next(n for n in reversed(self.program.graph.nodes) if n.op == "output")
        by_target = {self.specs[n].target: n for n in self.state}
        for item, spec in zip(output.args[0], self.program.graph_signature.output_specs, strict=True):
            if spec.kind.name == "BUFFER_MUTATION" and spec.target in by_target:
                self._op("aten::copy_", [results[by_target[spec.target]], results[item], False])

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _translate(self, scope: _Scope) -> dict[torch.fx.Node, Any]:
        for node in scope.gm.graph.nodes:
            if node.op == "call_function":
                scope.values[node] = self._call(node, scope)
            elif node.op == "get_attr" and node.target in self.packed:
                scope.values[node] = self._attribute(self.packed[node.target], getattr(scope.gm, node.target))
            elif node.op == "get_attr" and isinstance(getattr(scope.gm, node.target), self.torch.Tensor):
                scope.values[node] = self.graph.insertConstant(self._wide(getattr(scope.gm, node.target)))
        return scope.values

    def _attribute(self, name: str, value: Any) -> Any:
        got = self.graph.create("prim::GetAttr", [self.this], 1)
        got.s_("name", name)
        return self._typed(got, _packed_type(value))

    def _call(self, node: torch.fx.Node, scope: _Scope) -> Any:
        torch, target = self.torch, node.target
        if target is operator.getitem:
            return self._getitem(node, scope)
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self._higher_order(node, scope)
        if isinstance(target, torch._ops.OpOverload):
            return self._overload(node, target, scope)
        name = NUMBERS.get(target) or TORCH_NUMBERS.get(getattr(target, "__name__", ""))
        if name is None:
            raise self._refuse(node, f"the function {getattr(target, '__name__', target)}")
        args = [self._look(a, scope) for a in node.args]
        return self._number(self._op(name, args, node), node)

    def _overload(self, node: torch.fx.Node, target: torch._ops.OpOverload, scope: _Scope) -> Any:
        name = target._schema.name
        if name in CHECKS:
            return None
        if name in SIZES:
            made = self._op(SIZES[name], [self._look(a, scope) for a in node.args], node)
            return self._number(made, node)
        if name in ("aten::item", "aten::_local_scalar_dense"):
            return self._item(node, scope)
        if name == "aten::lift_fresh_copy":
            return self._op("aten::clone", [self._look(node.args[0], scope), None], node)
        for wrapped in _WRAPPED:
            args = self._arguments(node, target._schema, scope, wrapped)
            made = self.graph.insertNode(self.graph.create(name, args, len(target._schema.returns)))
            if made.schema() != _NO_SCHEMA:
                break
            made.destroy()
        else:
            raise self._refuse(node, f"the operator {name}")
        outputs = list(made.outputs())
        for output, returned in zip(outputs, target._schema.returns, strict=True):
            output.setType(returned.type)
        found = node.meta.get("val")
        if str(outputs[0].type()) == "List[Tensor]" and isinstance(found, (list, tuple)):
            outputs = self._unpack(outputs[0], len(found))
            self._note_ranks(node, outputs)
            return outputs
        self._note_ranks(node, outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _unpack(self, value: Any, count: int) -> list[Any]:
        """The tensors of a list; torch.export fixes how many there are."""
        made = self.graph.insertNode(self.graph.create("prim::ListUnpack", [value], count))
        outputs = list(made.outputs())
        for output in outputs:
            output.setType(self.torch._C.TensorType.get())
        return outputs

    def _arguments(self, node: torch.fx.Node, schema: Any, scope: _Scope, wrapped: tuple[type, ...]) -> list[Any]:
        """All arguments of a call; numbers of the types ``wrapped`` become tensors without dimensions."""
        given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
        values = {a.name: spread(given.get(a.name, a.default_value), a) for a in schema.arguments}
        numbers = [a for a in schema.arguments if a.real_type.kind() in ("NumberType", "TensorType")]
        for name in [a.name for a in numbers if isinstance(values[a.name], bool)]:
            if "dtype" in values and values["dtype"] is None:  # full(size, True): as a number it would make integers
                values["dtype"] = node.meta["val"].dtype
            values[name] = values[name] if bool in wrapped else int(values[name])
        for name in [a.name for a in numbers if isinstance(values[a.name], wrapped)]:
            values[name] = self.torch.tensor(values[name])
        return [self._argument(values[a.name], a.real_type, scope) for a in schema.arguments]

    def _note_ranks(self, node: torch.fx.Node, outputs: list[Any]) -> None:
        if not self.ranks:
            return
        found = node.meta.get("val")
        known = found if isinstance(found, (list, tuple)) else [found]
        for output, tensor in zip(outputs, known, strict=False):
            if isinstance(tensor, self.torch.Tensor) and str(output.type()) == "Tensor":
                output.setType(output.type().with_dtype(tensor.dtype).with_sizes([None] * tensor.dim()))

    def _item(self, node: torch.fx.Node, scope: _Scope) -> Any:
        kinds = {self.torch.SymInt: "aten::Int", self.torch.SymFloat: "aten::Float", self.torch.SymBool: "aten::Bool"}
        plain = {int: "aten::Int", float: "aten::Float", bool: "aten::Bool"}
        kind = (kinds | plain).get(type(node.meta.get("val")))
        if kind is None:
            raise self._refuse(node, "a number read from a tensor")
        return self._number(self._op(kind, [self._look(node.args[0], scope)], node), node)

    def _getitem(self, node: torch.fx.Node, scope: _Scope) -> Any:
        source, index = scope.values[cast(Any, node.args[0])], cast(Any, node.args[1])
        if isinstance(source, list):
            return source[index]
        made = self.graph.insertNode(self.graph.create("aten::__getitem__", [source, self._constant(index)], 1))
        return self._typed(made, self.torch._C.TensorType.get(), inserted=True)

    # -- control flow -------------------------------------------------------------------------------------------------

    def _higher_order(self, node: torch.fx.Node, scope: _Scope) -> Any:
        name = str(cast(Any, node.target).name())
        arguments: tuple[Any, ...] = node.args
        if name == "cond":
            return self._cond(node, scope)
        if name == "wrap_with_set_grad_enabled":
            return self._inline(getattr(scope.gm, arguments[1].target), arguments[2:], scope)
        if name == "wrap_with_autocast":
            return self._inline(getattr(scope.gm, arguments[4].target), arguments[5:], scope)
        raise self._refuse(node, f"the control flow '{name}'")

    def _inline(self, gm: torch.fx.GraphModule, operands: Sequence[Any], outer: _Scope) -> list[Any]:
        inner = _Scope(gm)
        places = [n for n in gm.graph.nodes if n.op == "placeholder"]
        for place, operand in zip(places, operands, strict=True):
            inner.values[place] = self._look(operand, outer)
        self._translate(inner)
        output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
        results = output.args[0] if isinstance(output.args[0], (list, tuple)) else [output.args[0]]
        return [self._look(r, inner) for r in results]

    def _cond(self, node: torch.fx.Node, scope: _Scope) -> list[Any]:
        torch = self.torch
        predicate, yes, no, operands = cast("tuple[Any, Any, Any, Any]", node.args)
        flag = self._look(predicate, scope)
        if not isinstance(flag, bool) and str(flag.type()) == "Tensor":
            flag = self._op("aten::Bool", [flag], node)
            flag.setType(torch._C.BoolType.get())
        branch = self.graph.insertNode(self.graph.create("prim::If", [self._value(flag)], len(node.meta["val"])))
        for submodule in (yes, no):
            block = branch.addBlock()
            with self.graph.insert_point_guard(block):
                for result in self._inline(getattr(scope.gm, submodule.target), operands, scope):
                    block.registerOutput(self._value(result))
        outputs = list(branch.outputs())
        for output, value in zip(outputs, node.meta["val"], strict=True):
            output.setType(self._number_type(value) or torch._C.TensorType.get())
        return outputs

    # -- values -------------------------------------------------------------------------------------------------------

    def _look(self, value: Any, scope: _Scope) -> Any:
        return scope.values[value] if isinstance(value, self.torch.fx.Node) else value

    def _argument(self, value: Any, kind: Any, scope: _Scope) -> Any:
        """The graph value of one argument of a schema."""
        torch = self.torch
        while kind.kind() == "OptionalType" and value is not None:
            kind = kind.getElementType()
        if isinstance(value, torch.fx.Node):
            found = self._value(scope.values[value])
            integer = kind.kind() == "FloatType" and str(found.type()) == "int"
            return self._typed(self.graph.create("aten::Float", [found], 1), kind) if integer else found
        if isinstance(value, (list, tuple)):
            return self._list(value, kind, scope)
        if kind.kind() == "FloatType" and isinstance(value, int):
            value = float(value)
        return self._constant(value)

    def _list(self, items: Sequence[Any], kind: Any, scope: _Scope) -> Any:
        element = kind.getElementType()
        plain = plain_list(items, element.kind())
        if plain:  # a constant of the graph, as the passes expect (convolution's strides and padding)
            return self.graph.insertConstant(plain)
        values = [self._argument(item, element, scope) for item in items]
        types = torch_types(self.torch)
        made = self.graph.insertNode(self.graph.create("prim::ListConstruct", values, 1))
        optional = element.kind() == "OptionalType"
        inner = types.get((element.getElementType() if optional else element).kind(), self.torch._C.TensorType.get())
        inner = self.torch._C.OptionalType(inner) if optional else inner
        return self._typed(made, self.torch._C.ListType(inner), inserted=True)

    def _constant(self, value: Any) -> Any:
        torch = self.torch
        if isinstance(value, torch.memory_format):
            value = MEMORY_FORMATS[str(value).removeprefix("torch.")]
        if isinstance(value, torch.dtype) and value in self.narrow:
            self.widened = True
            value = torch.float32
        return self.graph.insertConstant(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):  # an unpacked list, used as a whole
            made = self.graph.create("prim::ListConstruct", [self._value(item) for item in value], 1)
            return self._typed(made, self.torch._C.ListType(self.torch._C.TensorType.get()))
        return value if isinstance(value, self.torch._C.Value) else self._constant(value)

    def _op(self, name: str, args: Iterable[Any], node: torch.fx.Node | None = None) -> Any:
        made = self.graph.insertNode(self.graph.create(name, [self._value(a) for a in args], 1))
        self._check(made, node, name)
        return made.output()

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        made = [value, self.graph.insertConstant(dtype), False, False, None]
        return self._op("aten::to", made)

    def _typed(self, node: Any, kind: Any, inserted: bool = False) -> Any:
        if not inserted:
            self.graph.insertNode(node)
        node.output().setType(kind)
        return node.output()

    def _number_type(self, value: Any) -> Any:
        torch = self.torch
        table: list[tuple[tuple[type, ...], Callable[[], Any]]] = [
            ((torch.SymBool, bool), torch._C.BoolType.get),
            ((torch.SymInt, int), torch._C.IntType.get),
            ((torch.SymFloat, float), torch._C.FloatType.get),
        ]
        return next((get() for types, get in table if isinstance(value, types)), None)

    def _number(self, output: Any, node: torch.fx.Node) -> Any:
        output.setType(self._number_type(node.meta.get("val")) or self.torch._C.IntType.get())
        return output

    def _check(self, made: Any, node: torch.fx.Node | None, name: str) -> None:
        if made.schema() == _NO_SCHEMA:
            raise self._refuse(node, f"the operator {name}")

    def _refuse(self, node: torch.fx.Node | None, what: str) -> UnsupportedError:
        place = source_line(node)
        return UnsupportedError(
            "unsupported_op", f"TorchScript Lite can't take {what}{place}.",
            why="The TorchScript language has no such thing, so PyTorch Mobile couldn't run it.",
            fix="Use --runtime executorch or --runtime onnx, or rewrite that line with other operators.",
        )  # fmt: skip
