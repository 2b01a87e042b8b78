"""What a TorchScript module takes: tensors by name, and the numbers beside them that must be fixed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import TensorSpec, Warn
from edgesdk.errors import UnsupportedError
from edgesdk.importing._capture import quiet
from edgesdk.importing._inputs import dtype_name

if TYPE_CHECKING:
    import torch

_SCALARS = ("IntType", "FloatType", "BoolType")


def arguments_of(script: torch.jit.ScriptModule) -> list[Any]:
    """The schema's arguments of ``forward()``, ``self`` first."""
    method: Any = script.forward
    return list(method.schema.arguments)


def parameters_of(script: torch.jit.ScriptModule) -> list[inspect.Parameter]:
    """Parameters of ``forward()`` without ``self``; lists are annotated as such.

    Raises:
        UnsupportedError: a parameter can't hold tensors or a number (``List[str]``).
    """
    found = []
    for argument in arguments_of(script)[1:]:
        kind = argument.type.kind()
        inner = argument.type.annotation_str
        if kind not in _SCALARS and "Tensor" not in inner and not argument.has_default_value():
            raise UnsupportedError(
                "unsupported_input_type",
                f"forward() takes '{argument.name}' as {_python(inner)}.",
                why="A file on a phone takes tensors; text and objects have to become numbers in the app first.",
                fix="Save the part of the model that starts from tensors, e.g. after the tokenizer.",
            )
        default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        annotation = list if kind == "ListType" else inner
        found.append(
            inspect.Parameter(
                argument.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
            )
        )
    return found


def _python(text: str) -> str:
    return text.replace("__torch__.", "")


def fix_scalars(
    script: torch.jit.ScriptModule, parameters: Sequence[inspect.Parameter]
) -> tuple[torch.jit.ScriptModule, list[inspect.Parameter], list[Warn]]:
    """The script with its numbers bound: to their default, else to the number that its code compares them with first.

    Raises:
        UnsupportedError: a number without default that nothing in the code suggests a value for.
    """
    kept = [p for p in parameters if p.annotation is list or "Tensor" in str(p.annotation)]
    if len(kept) == len(parameters):
        return script, list(parameters), []
    warnings = []
    values = {}
    for p in parameters:
        if p in kept or p.default is not p.empty:
            continue
        values[p.name] = _suggested(script, p.name, str(p.annotation))
        text = f"The input '{p.name}' is a number, not a tensor, and was fixed at {values[p.name]}, which forward() tests for."
        warnings.append(Warn("scalar_fixed", f"{text} For another value wrap the model in a module that passes it."))
    return _bound(script, kept, values), kept, warnings


def _suggested(script: torch.jit.ScriptModule, name: str, kind: str) -> Any:
    import torch

    method: Any = script.forward
    graph = method.graph.copy()
    torch._C._jit_pass_inline(graph)
    place = [a.name for a in arguments_of(script)].index(name)
    value = list(graph.inputs())[place]
    for use in _comparisons(value):
        for other in use.inputs():
            if other.node().kind() == "prim::Constant" and other.debugName() != value.debugName():
                return other.toIValue()
    if kind == "bool":
        return False
    raise UnsupportedError(
        "scalar_input",
        f"forward() takes '{name}' as a number ({kind}), not as a tensor.",
        why="A file on a phone takes tensors, and no value to fix it at is known.",
        fix="Give it a default in forward(), or save a wrapper that passes the number.",
    )


def _comparisons(value: Any) -> Iterator[Any]:
    for use in value.uses():
        if use.user.kind() in ("aten::eq", "aten::ne"):
            yield use.user


def _bound(
    script: torch.jit.ScriptModule, kept: Sequence[inspect.Parameter], values: dict[str, Any]
) -> torch.jit.ScriptModule:
    """A script that calls ``script`` with the numbers filled in; written in TorchScript, as the source may be gone."""
    import torch

    graph = torch.fx.Graph()
    given: dict[str, Any] = {p.name: graph.placeholder(p.name, _type(p), _default(p)) for p in kept}
    order = [a.name for a in arguments_of(script)[1:]]
    named = {n: v for n, v in {**given, **values}.items() if n in order}
    graph.output(graph.call_module("model", (), named))
    root = torch.nn.Module()
    root.add_module("model", script)
    with quiet():
        outer: torch.jit.ScriptModule = torch.jit.script(torch.fx.GraphModule(root, graph))
    return outer.eval()


def _type(p: inspect.Parameter) -> Any:
    import torch

    known = {
        "Optional[Tensor]": torch.Tensor | None, "Dict[str, Tensor]": dict[str, torch.Tensor],
        "Tuple[Tensor, Tensor]": tuple[torch.Tensor, torch.Tensor],
    }  # fmt: skip
    return list[torch.Tensor] if p.annotation is list else known.get(str(p.annotation), torch.Tensor)


def _default(p: inspect.Parameter) -> Any:
    return p.default


def recorded_inputs(script: torch.jit.ScriptModule, parameters: Sequence[inspect.Parameter]) -> tuple[TensorSpec, ...]:
    """Specs of the tensors that ``torch.jit.trace`` was given, which it stores in the module; empty without them."""
    import torch

    traced = script._c._retrieve_traced_inputs()
    stored = dict(traced.items()).get("forward", ())
    if len(stored) > len(parameters) or not all(isinstance(v, torch.Tensor) for v in stored):
        return ()
    pairs = zip(parameters, stored, strict=False)
    return tuple(TensorSpec(p.name, dtype_name(v.dtype), tuple(v.shape)) for p, v in pairs)
