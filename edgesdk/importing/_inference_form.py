"""The graph itself set to inference, whatever the modules' flags said (E-03), and in contiguous order (E-09)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Warn
from edgesdk.importing._translate import FRAME, show_line

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

_FLAGS = ("train", "training", "use_input_stats")
# Batch norms that return new running statistics beside the result: (name, whether the flag is in the arguments).
_UPDATING = ("_native_batch_norm_legit_functional", "_batch_norm_with_update_functional", "_batch_norm_with_update")


def to_inference(program: ExportedProgram) -> list[Warn]:
    """Edit the program in place: dropout off, batch norm on running statistics, no channels-last orders.

    Returns:
        one warning that names the places, or none when the graph was in inference form already.
    """
    changed: list[str] = []
    _leave_inputs_alone(program)
    _write_to_buffers(program.graph_module)
    for graph_module in graphs(program.graph_module):
        for node in list(graph_module.graph.nodes):
            if node.op == "call_function" and _set_inference(node):
                changed.append(place(node))
        _contiguous(graph_module)
    if changed:
        _drop_dead_state(program)
        program.graph_module.graph.eliminate_dead_code()
        for graph_module in graphs(program.graph_module):
            graph_module.recompile()
        program._validate()  # type: ignore[no-untyped-call]
    if not changed:
        return []
    places = list(dict.fromkeys(changed))
    named = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
    text = f"These were still training (random or batch-dependent) and were set to inference: {named}."
    return [Warn("set_to_inference", text)]


def graphs(root: GraphModule) -> Iterable[GraphModule]:
    """The graph and the sub-graphs of its conditionals."""
    import torch

    return [m for m in root.modules() if isinstance(m, torch.fx.GraphModule)]


def place(node: Node) -> str:
    """``layer 'blocks.3.drop'`` or ``net.py:25: x = F.dropout(x)``, and the operator."""
    import torch

    frames = [(m[1], int(m[2])) for m in FRAME.finditer(node.meta.get("stack_trace") or "")]
    line = show_line(frames)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0].removeprefix("L['self'].") if stack else ""
    target = node.target
    name = (
        str(target._schema.name).removesuffix(".default") if isinstance(target, torch._ops.OpOverload) else str(target)
    )
    if line and "site-packages" not in line:
        return f"{name} ({line})"
    return f"{name} (layer '{path}')" if path else f"{name} ({line})" if line else name


def _set_inference(node: Node) -> bool:
    import torch

    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    name = target._schema.name.removeprefix("aten::")
    if name in _UPDATING:
        return _replace_updating(node, name)
    changed = False
    for i, argument in enumerate(target._schema.arguments):
        value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
        if argument.name in _FLAGS and value is True and _has_statistics(node):
            _set(node, i, argument.name, False)
            changed = changed or _matters(node, name)
        if argument.name == "dropout_p" and isinstance(value, float) and value > 0:
            _set(node, i, argument.name, 0.0)
            changed = True
    if changed and name == "native_dropout":
        _replace_first(node, node.args[0])
    return changed


def _matters(node: Node, name: str) -> bool:
    """A recurrent layer without dropout trains and infers alike: nothing to report."""
    if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return any(isinstance(a, float) and a > 0 for a in node.args)
    return True


def _has_statistics(node: Node) -> bool:
    """A norm without running statistics uses those of its input by design, also in inference."""
    target: Any = node.target
    names = [a.name for a in target._schema.arguments]
    if "running_mean" not in names:
        return True
    i = names.index("running_mean")
    return (node.args[i] if i < len(node.args) else node.kwargs.get("running_mean")) is not None


def _set(node: Node, index: int, name: str, value: Any) -> None:
    if index < len(node.args):
        node.update_arg(index, value)
    else:
        node.update_kwarg(name, value)


def _replace_updating(node: Node, name: str) -> bool:
    """Batch norm that also returns new statistics: in inference they are the old ones."""
    import torch

    if name == "_native_batch_norm_legit_functional" and node.args[5] is not True:
        return False
    x, weight, bias, mean, var = node.args[:5]
    momentum, eps = node.args[-2:]
    aten = torch.ops.aten
    with node.graph.inserting_before(node):
        new = node.graph.call_function(
            aten._native_batch_norm_legit_no_training.default, (x, weight, bias, mean, var, momentum, eps)
        )
        new.meta = {**node.meta, "val": tuple(node.meta["val"][:3])}
    for user in list(node.users):
        i = user.args[1]
        if i in (3, 4) and name != "_batch_norm_with_update":
            user.replace_all_uses_with(mean if i == 3 else var)  # type: ignore[arg-type]
            node.graph.erase_node(user)
        else:
            user.update_arg(0, new)
    node.graph.erase_node(node)
    return True


def _replace_first(node: Node, value: Any) -> None:
    for user in list(node.users):
        if user.args[1] == 0:
            user.replace_all_uses_with(value)
            node.graph.erase_node(user)


def _contiguous(graph_module: GraphModule) -> None:
    """Forget requests for channels-last order; values don't depend on it, readers on the phone would (E-09)."""
    import torch

    touched = False
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and not value.is_contiguous():
            touched = True  # the example was a transposed or channels-last view; what is fed is contiguous
        if node.op != "call_function":
            continue
        if node.kwargs.get("memory_format") in (torch.channels_last, torch.channels_last_3d):
            node.update_kwarg("memory_format", torch.contiguous_format)
            touched = True
        elif any(
            a in (torch.channels_last, torch.channels_last_3d) for a in node.args if isinstance(a, torch.memory_format)
        ):
            node.args = tuple(torch.contiguous_format if isinstance(a, torch.memory_format) else a for a in node.args)
            touched = True
    if touched:
        refresh(graph_module)


def refresh(graph_module: GraphModule) -> None:
    """Derive shapes and strides of all values again from those of the placeholders."""
    import torch
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    values = [n.meta["val"] for n in graph_module.graph.nodes if n.op == "placeholder"]
    mode = next((v.fake_mode for v in values if isinstance(v, torch._subclasses.FakeTensor)), None)
    if mode is None:
        return
    with mode, torch.no_grad():
        fresh = [_dense(v) if isinstance(v, torch.Tensor) else v for v in values]
    FakeTensorProp(graph_module, mode).propagate_dont_convert_inputs(*fresh)
    graph_module.recompile()


def _dense(value: torch.Tensor) -> torch.Tensor:
    return value if value.is_contiguous() else value.contiguous()


def mutations(graph_module: GraphModule) -> list[tuple[Node, Node]]:
    """In-place operators and the placeholder (or attribute) whose memory they write, followed through views."""
    import torch

    found = []
    for node in graph_module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for i, argument in enumerate(node.target._schema.arguments):
            info = argument.alias_info
            if info is None or not info.is_write:
                continue
            value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(one, torch.fx.Node):
                    base = _base(one)
                    if base.op in ("placeholder", "get_attr"):
                        found.append((node, base))
    return found


def _leave_inputs_alone(program: ExportedProgram) -> None:
    """Let ``x.add_(1)`` write to a copy: the caller's memory stays as it is, and no runtime adds the changed input to
    the outputs (ExecuTorch does)."""
    import torch
    from torch.export.graph_signature import OutputKind

    graph, given = program.graph, set(program.graph_signature.user_inputs)
    written = {base: None for _, base in mutations(program.graph_module) if base.name in given}
    first = next(n for n in graph.nodes if n.op != "placeholder")
    for base in written:
        with graph.inserting_before(first):
            copied = graph.call_function(torch.ops.aten.clone.default, (base,))
        copied.meta = {"val": base.meta["val"]}
        for user in [u for u in base.users if u is not copied]:
            user.replace_input_with(base, copied)
    specs, output = program.graph_signature.output_specs, graph.output_node()
    given_back: Any = output.args[0]
    pairs = [(v, s) for v, s in zip(given_back, specs, strict=True) if s.kind is not OutputKind.USER_INPUT_MUTATION]
    if written or len(pairs) < len(specs):
        output.args = (tuple(v for v, _ in pairs),)
        specs[:] = [_renamed(v, s) for v, s in pairs]
        program.graph_module.recompile()


def _write_to_buffers(graph_module: GraphModule) -> None:
    """Let writes name the buffer itself: a cast that did nothing stands between them when the device was set again."""
    for node, base in mutations(graph_module):
        target: Any = node.args[0] if node.args else None
        if target is base or base.op != "placeholder" or getattr(target, "op", "") != "call_function":
            continue
        if str(target.target).startswith(("aten.to.", "aten.contiguous", "aten.alias", "aten.detach")):
            node.update_arg(0, base)


def _base(node: Node) -> Node:
    """Where the memory of a value comes from: views and in-place results share that of their first argument."""
    import torch

    while node.op == "call_function":
        target = node.target
        aliases = isinstance(target, torch._ops.OpOverload) and any(
            r.alias_info is not None for r in target._schema.returns
        )
        first = node.args[0] if node.args else None
        if not aliases or not isinstance(first, torch.fx.Node):
            return node
        node = first
    return node


def _drop_dead_state(program: ExportedProgram) -> None:
    """Counters of batches and old statistics: state that only training would have changed."""
    from torch.export.graph_signature import OutputKind

    graph = program.graph
    for node, base in mutations(program.graph_module):
        touched = [n for n in base.users if n is not node]
        if not node.users and not touched and base.op == "placeholder":
            graph.erase_node(node)
    specs = program.graph_signature.output_specs
    output = graph.output_node()
    given: Any = output.args[0]
    kept: Any = [
        (value, spec)
        for value, spec in zip(given, specs, strict=True)
        if spec.kind is not OutputKind.BUFFER_MUTATION or not _is_same(program, value, spec)
    ]
    output.args = (tuple(value for value, _ in kept),)
    program.graph_signature.output_specs[:] = [_renamed(value, spec) for value, spec in kept]


def rename_outputs(program: ExportedProgram) -> None:
    """Let the signature name the values that the graph returns now."""
    given: Any = program.graph.output_node().args[0]
    specs = program.graph_signature.output_specs
    specs[:] = [_renamed(value, spec) for value, spec in zip(given, specs, strict=True)]


def _renamed(value: Any, spec: Any) -> Any:
    """The signature's entry for an output that another operator makes now."""
    from torch.export.graph_signature import OutputSpec, TensorArgument

    if not isinstance(spec.arg, TensorArgument) or spec.arg.name == getattr(value, "name", spec.arg.name):
        return spec
    return OutputSpec(spec.kind, TensorArgument(value.name), spec.target)


def _is_same(program: ExportedProgram, value: Any, spec: Any) -> bool:
    """A mutation that writes the buffer's own value back, or a counter nobody reads."""
    buffers = {v: k for k, v in program.graph_signature.inputs_to_buffers.items()}
    name = buffers.get(spec.target)
    if getattr(value, "name", None) == name:
        return True
    source = next((n for n in program.graph.nodes if n.name == name), None)
    return source is not None and set(source.users) == {value} and len(value.users) == 1


def random_ops(program: ExportedProgram) -> list[Node]:
    """Operators that draw random numbers also in inference form."""
    import torch

    return [
        node
        for graph_module in graphs(program.graph_module)
        for node in graph_module.graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
        and not _quiet(node)
    ]


def _quiet(node: Node) -> bool:
    target: Any = node.target
    for i, argument in enumerate(target._schema.arguments):
        value = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        if argument.name in _FLAGS and value is False:
            return True
        if argument.name == "dropout_p":
            return bool(value == 0.0)
    return False
