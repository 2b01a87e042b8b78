"""A TorchScript module as a plain ``nn.Module`` that torch.export can follow.

torch.export refuses a ``ScriptModule``, and torch's own converter stops at ``prim::If`` and at attributes that change.
Here the module's graph is interpreted in Python, operator by operator: a condition on sizes or constants takes its
branch (torch.export keeps the guard), one on a tensor's values is refused by torch.export with its line, and tensors
stored in attributes become buffers, that is, state which the exported program carries from call to call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edgesdk.errors import UnsupportedError
from edgesdk.importing._script_numbers import Number, as_tensors, called
from edgesdk.importing._script_ops import resolve
from edgesdk.importing._translate import short

if TYPE_CHECKING:
    import torch
    from torch import nn

_LINE = re.compile(r'File "([^"]+\.py)", line (\d+)')
_STRUCTURE = frozenset(
    ("prim::Constant", "prim::GetAttr", "prim::SetAttr", "prim::If", "prim::Loop", "prim::CreateObject")
)


@dataclass(frozen=True)
class Step:
    """One operator: what to call, the names of the values it reads and makes, and the line it came from."""

    kind: str
    call: Callable[..., Any] | None
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    name: str | None = None
    value: Any = None
    blocks: tuple[Block, ...] = ()
    line: str | None = None


@dataclass(frozen=True)
class Block:
    """Steps in order; the values it takes and gives."""

    takes: tuple[str, ...]
    steps: tuple[Step, ...]
    gives: tuple[str, ...]


def interpreted(script: torch.jit.ScriptModule, parameters: Sequence[inspect.Parameter]) -> nn.Module:
    """The script behind a Python ``forward`` with the same weights, buffers and names.

    Args:
        parameters: of ``forward()``, without ``self``.

    Raises:
        UnsupportedError: the graph holds an operator that can't be interpreted (names it and its line).
    """
    import torch

    method: Any = script.forward
    graph = method.graph.copy()
    torch._C._jit_pass_inline(graph)

    class Holder(torch.nn.Module):
        """Weights, buffers, constants and children of one script module, under its names."""

    class Interpreted(Holder):
        edgesdk_strict = False

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            return as_tensors(run_block(body, list(bound.arguments.values())))

    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([me, *parameters])
    vars(Interpreted.forward)["__signature__"] = signature
    module = Interpreted()
    _hold(module, script, _attribute_names(graph), Holder)
    body = _block(graph, module)
    return module.eval()


def _attribute_names(block: Any) -> set[str]:
    found = set()
    for node in block.nodes():
        if node.kind() in ("prim::GetAttr", "prim::SetAttr"):
            found.add(node.s("name"))
        for inner in node.blocks():
            found |= _attribute_names(inner)
    return found


def _hold(module: nn.Module, script: torch.jit.ScriptModule, names: set[str], kind: type[nn.Module]) -> None:
    """Take over what the graph reads and writes; a tensor that is no parameter is a buffer."""
    import torch

    for name, child in script.named_children():
        held = kind()
        _hold(held, child, names, kind)  # type: ignore[arg-type]
        module.add_module(name, held)
    parameters = dict(script.named_parameters(recurse=False))
    buffers = dict(script.named_buffers(recurse=False))
    for name, parameter in parameters.items():
        module.register_parameter(name, torch.nn.Parameter(parameter.detach(), requires_grad=False))
    for name, buffer in buffers.items():
        module.register_buffer(name, buffer.detach().clone())
    for name in sorted(names - {*module._modules, *parameters, *buffers, "training"}):
        if not script._c.hasattr(name):
            continue
        value = script._c.getattr(name)
        if isinstance(value, torch.Tensor):
            module.register_buffer(name, value.detach().clone(), persistent=False)
        else:
            vars(module)[name] = value


def _block(block: Any, root: nn.Module) -> Block:
    takes = tuple(v.debugName() for v in block.inputs())
    gives = tuple(v.debugName() for v in block.outputs())
    return Block(takes, tuple(_step(node, root) for node in block.nodes()), gives)


def _step(node: Any, root: nn.Module) -> Step:
    kind = node.kind()
    reads = tuple(v.debugName() for v in node.inputs())
    makes = tuple(v.debugName() for v in node.outputs())
    line = _line(node)
    if kind == "prim::Constant":
        name, value = _constant(node, root)
        return Step(kind, None, reads, makes, name, value, line=line)
    if kind in ("prim::GetAttr", "prim::SetAttr"):
        return Step(kind, None, reads, makes, node.s("name"), line=line)
    if kind in _STRUCTURE:
        return Step(kind, None, reads, makes, blocks=tuple(_block(b, root) for b in node.blocks()), line=line)
    call = resolve(kind, node.schema())
    if call is None:
        place = f" (at {line})" if line else ""
        raise UnsupportedError(
            "unsupported_op",
            f"The TorchScript operator {kind}{place} can't be converted.",
            why="It calls Python, starts a task or is registered by a library that isn't loaded here.",
            fix="Package the original module as file.py:factory, or use --runtime torchscript.",
            details={"operator": kind, **({"line": line} if line else {})},
        )
    return Step(kind, call, reads, makes, line=line)


def _line(node: Any) -> str | None:
    """Where the author's code said it, on the author's machine."""
    found = _LINE.findall(node.sourceRange() or "")
    own = [f for f in found if "site-packages" not in f[0]] or found
    return f"{short(own[0][0])}:{own[0][1]}" if own else None


def _constant(node: Any, root: nn.Module) -> tuple[str | None, Any]:
    """A constant's value; tensors move into the module so that they are exported as weights."""
    import torch

    (output,) = node.outputs()
    value = output.toIValue()
    if isinstance(value, torch.device):
        return None, torch.device("cpu")
    if not isinstance(value, torch.Tensor):
        return None, value
    value = value.detach().cpu()
    if value.dtype is torch.int64 and not value.dim():  # what a trace multiplies sizes with
        return None, Number(int(value))
    name = f"constant_{len(root._parameters) + len(root._buffers)}"
    if value.is_floating_point() and value.dim():
        root.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))
    else:
        root.register_buffer(name, value)
    return name, root


def run_block(block: Block, values: Sequence[Any], outer: dict[str, Any] | None = None) -> Any:
    """Run a graph on the module and its arguments; one value comes back, or a list of a block's values."""
    env: dict[str, Any] = dict(zip(block.takes, values, strict=True)) if outer is None else outer
    if outer is not None:
        env.update(zip(block.takes, values, strict=True))
    else:
        env["\0root"] = values[0]
    for step in block.steps:
        script_line = step.line  # the shape watcher reads it off this frame
        try:
            _run(step, env)
        except Exception as exc:  # whatever an operator raises
            if script_line and not hasattr(exc, "edgesdk_line"):
                exc.edgesdk_line = script_line  # type: ignore[attr-defined]
            raise
    given = [env[name] for name in block.gives]
    return given if outer is not None else given[0] if len(given) == 1 else tuple(given)


def _run(step: Step, env: dict[str, Any]) -> None:
    values = [env[name] for name in step.reads]
    if step.call is not None:
        made = called(step.kind, step.call, values)
        if len(step.makes) == 1:
            env[step.makes[0]] = made
        elif step.makes:
            env.update(zip(step.makes, made, strict=True))
    elif step.kind == "prim::Constant":
        env[step.makes[0]] = getattr(env["\0root"], step.name) if step.name else step.value
    elif step.kind == "prim::GetAttr":
        env[step.makes[0]] = getattr(values[0], step.name or "")
    elif step.kind == "prim::SetAttr":
        log = getattr(env["\0root"], "_edgesdk_sets", None)
        if log is not None:
            log.append((values[0], step.name, values[1].clone() if hasattr(values[1], "clone") else values[1]))
        setattr(values[0], step.name or "", values[1])
    elif step.kind == "prim::If":
        branch = step.blocks[0] if values[0] else step.blocks[1]
        env.update(zip(step.makes, run_block(branch, [], env), strict=True))
    elif step.kind == "prim::Loop":
        env.update(zip(step.makes, _loop(step, values, env), strict=True))
    else:
        env[step.makes[0]] = SimpleNamespace()


def _loop(step: Step, values: Sequence[Any], env: dict[str, Any]) -> list[Any]:
    """``for`` and ``while``, unrolled: the count and the condition must not depend on a tensor's values."""
    count, go, *carried = values
    turn = 0
    while turn < count and go:
        go, *carried = run_block(step.blocks[0], [turn, *carried], env)
        turn += 1
    return carried
