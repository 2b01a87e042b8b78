"""Bring an exported graph into the form that quantization reads: no in-place operators, batch norms folded, layers named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._fx._graph import Work, copy_of, is_float, op_name
from edgesdk.runtimes._ts_alias import aliases, is_state, reads_between_writes

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

_WEIGHT = re.compile(r"weight(_(ih|hh|hr)_l\d+(_reverse)?)?")
_GONE = frozenset({"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "alias", "detach"})
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "prelu"})
WEIGHTED = frozenset({*_CONVOLUTIONS, "linear", "lstm", "gru", "rnn_tanh", "rnn_relu", "embedding"})


def normalize(program: ExportedProgram) -> Work:
    """An editable copy of ``program`` that computes the same."""
    work = copy_of(program)
    # a view made before an in-place write is read after it
    if reads_between_writes(work.graph) or not _functional(work):
        work = copy_of(program.run_decompositions({}))
        _functional(work)
    _plain(work)
    values = Constants(work)
    _layers(work, values)
    _name(work)
    _fold(work, values)
    work.clean()
    return work


class Constants:
    """Tensors that are known before the model runs: weights, and what the graph computes from nothing else."""

    def __init__(self, work: Work) -> None:
        self._work = work
        changing = work.changing()
        self._targets = {n: s.target for n, s in work.placeholders() if is_state(s) and n not in changing}
        self._known: dict[Node, torch.Tensor | None] = {}
        self._computed = self._from_constants()

    def _from_constants(self) -> set[Node]:
        """Calls that read nothing but constants, found in the order of the graph: recursion would be as deep as the net."""
        import torch

        known: set[Node] = set(self._targets)
        for node in self._work.graph.nodes:
            if node.op == "get_attr" and isinstance(node.meta.get("constant"), torch.Tensor):
                known.add(node)
            elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                random = torch.Tag.nondeterministic_seeded in node.target.tags or node.target._schema.is_mutable
                if node.all_input_nodes and not random and known.issuperset(node.all_input_nodes):
                    known.add(node)
        return known

    def get(self, node: Any) -> torch.Tensor | None:
        import torch

        if not isinstance(node, torch.fx.Node):
            return None
        if node not in self._known:
            self._known[node] = self._find(node)
        return self._known[node]

    def target(self, node: Any) -> str | None:
        """Name of the first parameter or buffer that ``node`` is made of."""
        import torch

        if not isinstance(node, torch.fx.Node) or node in self._targets:
            return self._targets.get(node)
        return next((t for t in map(self.target, node.all_input_nodes) if t), None)

    def _find(self, node: Node) -> torch.Tensor | None:
        import torch

        if node in self._targets:
            return self._work.tensor(self._targets[node])
        if node.op == "get_attr":
            value = node.meta.get("constant")
            return value if isinstance(value, torch.Tensor) else None
        if node.op != "call_function" or node not in self._computed:
            return None
        sources = {n: self.get(n) for n in node.all_input_nodes}
        if any(v is None for v in sources.values()):
            return None
        target: Any = node.target
        with torch.no_grad():
            found = target(*torch.fx.map_arg(node.args, sources.get), **torch.fx.map_arg(node.kwargs, sources.get))
        return found if isinstance(found, torch.Tensor) else None


# -- in-place operators -----------------------------------------------------------------------------------------------


def _functional(work: Work) -> bool:
    """Replace in-place operators by those that return a new tensor; False when memory is shared in a way that matters."""
    import torch

    order = {n: i for i, n in enumerate(work.graph.nodes)}
    for node in list(work.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        other = _out_of_place(node.target)
        written = node.args[0] if node.args else None
        if other is None or not isinstance(written, torch.fx.Node):
            continue
        if aliases(written) & {n for n in work.graph.nodes if n.op == "placeholder"}:
            continue  # state, which the writer and the interpreter keep
        if _shared(written, order, order[node]):
            return False
        node.target = other
        written.replace_all_uses_with(node, delete_user_cb=lambda u, at=order[node]: order[u] > at)  # type: ignore[misc]
    return True


def _out_of_place(target: torch._ops.OpOverload) -> Any:
    import torch

    name, overload = target._schema.name.partition("::")[2], target._overloadname
    if not name.endswith("_") or name.endswith("__") or target.namespace != "aten":
        return None
    packet = getattr(torch.ops.aten, name.rstrip("_"), None)
    return getattr(packet, overload, None) if packet is not None else None


def _shared(written: Node, order: dict[Node, int], at: int) -> bool:
    """Whether another value shows the memory of ``written`` and is read after position ``at``."""
    target: Any = written.target
    schema = getattr(target, "_schema", None)
    views = [n for n in written.users if _is_view(n) and order[n] < at]
    made = schema is not None and all(r.alias_info is None for r in schema.returns)
    return bool(views) or not made


def _is_view(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


# -- spelling ---------------------------------------------------------------------------------------------------------


def _plain(work: Work) -> None:
    """Operators that do nothing go; views become reshapes, since quantized convolutions answer in channels-last order."""
    import torch

    aten = torch.ops.aten
    for node in list(work.graph.nodes):
        if node.op != "call_function":
            continue
        if op_name(node.target) in _GONE and is_float(node.args[0]):
            node.replace_all_uses_with(node.args[0])
            work.graph.erase_node(node)
        elif node.target in (aten.view.default, aten._unsafe_view.default):
            node.target = aten.reshape.default


def _layers(work: Work, values: Constants) -> None:
    """Matrix products with a constant and the general convolution, as the layers they are."""
    import torch

    for node in list(work.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        name = op_name(node.target)
        if name in ("addmm", "mm", "matmul"):
            _as_linear(work, node, name, values)
        elif name == "convolution":
            _as_convolution(node)


def _as_linear(work: Work, node: Node, name: str, values: Constants) -> None:
    import torch

    bias, x, weight = node.args[:3] if name == "addmm" else (None, *node.args[:2])
    matrix, shift = values.get(weight), values.get(bias)
    if matrix is None or matrix.dim() != 2 or not is_float(x) or values.get(x) is not None or node.kwargs:
        return
    if bias is not None and (shift is None or shift.dim() != 1):
        return
    if x.meta["val"].dim() < 2:  # type: ignore[union-attr]
        return
    stored = work.add(matrix.t().contiguous())
    stored.meta["target"] = values.target(weight)
    node.target, node.args = torch.ops.aten.linear.default, (x, stored, bias)


def _as_convolution(node: Node) -> None:
    import torch

    x, weight, bias, stride, padding, dilation, transposed, out_padding, groups = node.args
    value: Any = x
    n = value.meta["val"].dim() - 2
    aten = torch.ops.aten
    if transposed:
        overload = "input" if n > 1 else "default"
        node.target = getattr(getattr(aten, f"conv_transpose{n}d"), overload)
        node.args = (x, weight, bias, stride, padding, out_padding, groups, dilation)
    else:
        node.target = getattr(aten, f"conv{n}d").default
        node.args = (x, weight, bias, stride, padding, dilation, groups)


# -- names ------------------------------------------------------------------------------------------------------------


def layer_name(target: str) -> str:
    """``features.0.0`` for ``features.0.0.weight``; a parameter of another name keeps it."""
    path, _, last = target.rpartition(".")
    return (path or last) if _WEIGHT.fullmatch(last) else target


def weight_nodes(node: Node) -> list[Node]:
    """The nodes of a layer's weights, without biases."""
    name: str = op_name(node.target)
    arguments: Any = node.args
    if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        packed = isinstance(arguments[1], (list, tuple)) and name != "lstm"
        given = arguments[3] if packed or not isinstance(arguments[2], (list, tuple)) else arguments[2]
        return [n for n in given if n.meta["val"].dim() == 2]
    return [arguments[0] if name == "embedding" else arguments[1]]


def _name(work: Work) -> None:
    """Note each layer's name and the bytes of its weights before folding hides where they came from."""
    targets = {n: s.target for n, s in work.placeholders() if is_state(s)}
    values = Constants(work)
    for node in work.graph.nodes:
        name = op_name(node.target) if node.op == "call_function" else ""
        if name in NORMS:
            _name_norm(node, targets, values)
        if name not in WEIGHTED:
            continue
        found = [(w, targets.get(w) or w.meta.get("target") or values.target(w)) for w in weight_nodes(node)]
        named = [t for _, t in found if t]
        if not named:
            continue
        node.meta["layer"] = layer_name(named[0])
        sizes = [values.get(w) for w, _ in found]
        node.meta["bytes"] = sum(4 * s.numel() for s in sizes if s is not None)


def _name_norm(node: Node, targets: dict[Node, str], values: Constants) -> None:
    """A norm's name is its module's path; its bytes those of all its tensors."""
    own = [n for n in node.all_input_nodes if n in targets]
    tensors = [values.get(n) for n in own]
    if own and targets[own[0]].rpartition(".")[0]:
        node.meta["layer"] = targets[own[0]].rpartition(".")[0]
        node.meta["bytes"] = sum(4 * t.numel() for t in tensors if t is not None)


# -- batch norm -------------------------------------------------------------------------------------------------------


def _fold(work: Work, values: Constants) -> None:
    """Fold each batch norm that follows a convolution or linear layer into its weights."""
    for node in list(work.graph.nodes):
        if node.op != "call_function" or op_name(node.target) not in (
            "batch_norm", "_native_batch_norm_legit_no_training",
        ):  # fmt: skip
            continue
        layer: Any = node.args[0]
        name = op_name(getattr(layer, "target", None))
        if name in (*_CONVOLUTIONS, "linear") and len(layer.users) == 1 and "layer" in layer.meta:
            _fold_one(work, values, layer, node, name)


def _fold_one(work: Work, values: Constants, layer: Node, norm: Node, name: str) -> None:
    import torch

    x, weight, bias, *rest = (*layer.args, None)[: max(len(layer.args), 3)]
    gamma, beta, mean, var = (values.get(a) for a in norm.args[1:5])
    matrix, shift = values.get(weight), values.get(bias)
    if matrix is None or mean is None or var is None or (bias is not None and shift is None):
        return
    if (norm.args[1] is not None and gamma is None) or (norm.args[2] is not None and beta is None):
        return
    channels = norm.args[0].meta["val"].dim() - 1 if name == "linear" else 1  # type: ignore[union-attr]
    if channels != 1:  # batch norm counts channels along dimension 1, a linear layer along the last
        return
    eps: Any = norm.args[7] if op_name(norm.target) == "batch_norm" else norm.args[6]
    factor = (1.0 if gamma is None else gamma.double()) / (var.double() + eps).sqrt()
    new_shift = (0.0 if beta is None else beta.double()) + ((0.0 if shift is None else shift.double()) - mean) * factor
    folded = _scaled(matrix, factor, name, rest)
    like: Any = weight
    with torch.no_grad():
        args = (x, work.add(folded, like), work.add(new_shift.float().contiguous()), *rest)
    layer.args = args
    if op_name(norm.target) == "batch_norm":
        norm.replace_all_uses_with(layer)
    else:
        for user in [u for u in norm.users if u.args[1] == 0]:
            user.replace_all_uses_with(layer)


def _scaled(weight: torch.Tensor, factor: torch.Tensor, name: str, rest: list[Any]) -> torch.Tensor:
    """Each output channel's weights times its factor; transposed convolutions have them in dimension 1, by groups."""
    wide = weight.double()
    if not name.startswith("conv_transpose"):
        return (wide * factor.reshape(-1, *[1] * (wide.dim() - 1))).float().contiguous()
    groups = rest[3] if len(rest) > 3 else 1
    split = wide.reshape(groups, wide.shape[0] // groups, *wide.shape[1:])
    by = factor.reshape(groups, 1, -1, *[1] * (wide.dim() - 2))
    return (split * by).reshape(wide.shape).float().contiguous()
