"""What static int8 can do with each operator: a unit of its own, a step that keeps the scale, or an island in float."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.quantize._fx._graph import Work, is_float, module_path, op_name
from edgesdk.quantize._fx._normal import Constants
from edgesdk.quantize._fx._pack import Geometry, geometry
from edgesdk.quantize._fx._report import KEPT
from edgesdk.runtimes._ts_alias import is_state

if TYPE_CHECKING:
    from torch.fx import Node

CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
# Answer in range [0, 1) or [-1, 1) whatever comes in; QNNPACK knows only these parameters (scale, zero point).
FIXED = {"sigmoid": (1 / 256, 0), "hardsigmoid": (1 / 256, 0), "tanh": (1 / 128, 128)}
_PAIRS = frozenset({"add", "mul"})
_SINGLE = frozenset({"hardswish", "leaky_relu", "silu", *FIXED})
# Quantized tensors go through these as they are: results are among the inputs, or between two of them.
_KEEPS = frozenset({
    "relu", "clamp_min", "max_pool1d", "max_pool2d", "flatten", "reshape", "permute",
    "transpose", "squeeze", "unsqueeze", "slice", "select", "split", "split_with_sizes", "chunk", "unbind", "getitem",
    "contiguous", "clone", "pixel_shuffle", "upsample_nearest2d", "upsample_nearest1d",
})  # fmt: skip
_SIZES = frozenset({
    "sym_size", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
})  # fmt: skip
AVERAGES = frozenset({"avg_pool2d", "adaptive_avg_pool2d", "mean", "upsample_bilinear2d"})
"""Keep the scale as well, but what they answer may be much smaller than what comes in."""

# Below these inputs the operator answers 0, above 1 (sigmoid: the same as they do, to 8 bits).
SATURATES = {"hardswish": (-3.0, float("inf")), "hardsigmoid": (-3.0, 3.0), "relu": (0.0, float("inf"))}


@dataclass(frozen=True)
class Unit:
    """An operator that is to be int8, with the activation behind it.

    Attributes:
        node: the operator.
        tail: whose value the unit makes: ``node`` or the activation fused into it.
        inputs: values that must be quantized.
        shape: of a convolution or linear layer.
    """

    name: str
    op: str
    node: Node
    tail: Node
    inputs: tuple[Node, ...]
    shape: Geometry | None = None
    bytes: int = 0

    @property
    def relu(self) -> bool:
        return self.tail is not self.node


@dataclass(frozen=True)
class Plan:
    """What is to become int8.

    Attributes:
        units: by their operator's node.
        candidates: the same and those that must stay float.
        why: for each layer that stays float, the reason.
    """

    units: Mapping[Node, Unit]
    candidates: Mapping[Node, Unit]
    why: Mapping[str, str]


def name_of(node: Node) -> str:
    """The layer's name; for an operator without weights its node's, behind its module's path."""
    if "layer" in node.meta:
        return str(node.meta["layer"])
    path = module_path(node)
    return f"{path}.{node.name}" if path else node.name


def plan(work: Work, keep: Collection[str] = (), refused: Collection[str] = ()) -> Plan:
    """Find the units.

    Args:
        keep: names of layers that are to stay float.
        refused: nodes that the engine turned out not to run.
    """
    values = Constants(work)
    varied = _varied(work)
    units: dict[Node, Unit] = {}
    candidates: dict[Node, Unit] = {}
    why: dict[str, str] = {}
    for node in work.graph.nodes:
        if node.op != "call_function":
            continue
        found = _unit(node, values)
        if isinstance(found, Unit) and found.shape is not None and found.inputs[0] not in varied:
            found = "its input is the same for all data"
        if found is None:
            continue
        name = name_of(node)
        blank = Unit(name, op_name(node.target), node, node, (), None, node.meta.get("bytes", 0))
        candidates[node] = blank if isinstance(found, str) else found
        if name in keep:
            why[name] = KEPT
        elif node.name in refused:
            why[name] = "QNNPACK can't run it on this input"
        elif isinstance(found, str):
            why[name] = found
        else:
            units[node] = found
    return Plan(units, candidates, why)


def _varied(work: Work) -> set[Node]:
    """Nodes that depend on the numbers that come in or on state that changes, not on sizes and constants alone."""
    fixed = {n for n, spec in work.placeholders() if is_state(spec)} - work.changing()
    found: set[Node] = set()
    for node in work.graph.nodes:
        if node.op == "placeholder":
            found |= {node} - fixed
        elif op_name(node.target) not in _SIZES and not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _unit(node: Node, values: Constants) -> Unit | str | None:
    name = op_name(node.target)
    if name in CONVOLUTIONS or name == "linear":
        return _weighted(node, name, values)
    if name == "batch_norm":
        return _norm(node, values)
    inputs = _operands(node, name)
    if not inputs or not is_float(node) or not all(map(is_float, inputs)):
        return None
    if any(values.get(i) is not None for i in inputs):
        return None
    return Unit(name_of(node), name, node, _tail(node) if name == "add" else node, inputs)


def _weighted(node: Node, name: str, values: Constants) -> Unit | str | None:
    arguments: Any = node.args
    if "layer" not in node.meta:
        return None
    if values.get(arguments[1]) is None:
        return "its weights are computed while the model runs"
    if len(arguments) > 2 and arguments[2] is not None and values.get(arguments[2]) is None:
        return "its bias is computed while the model runs"
    if not is_float(node) or not is_float(arguments[0]) or values.get(arguments[0]) is not None:
        return "its input isn't float32 data"
    shape = geometry(node)
    if isinstance(shape, str):
        return shape
    if not shape.spatial and arguments[0].meta["val"].dim() < 2:
        return "its input has no batch dimension"
    tail = node if shape.transposed else _tail(node)
    return Unit(name_of(node), name, node, tail, (arguments[0],), shape, node.meta["bytes"])


def _norm(node: Node, values: Constants) -> Unit | None:
    """A batch norm that no convolution stands before."""
    x, *tensors, training = node.args[:6]
    constant = all(t is None or values.get(t) is not None for t in tensors) and tensors[2] is not None
    if "layer" not in node.meta or training or not constant or not is_float(x) or values.get(x) is not None:
        return None
    if x.meta["val"].dim() != 4:  # type: ignore[union-attr]
        return None
    return Unit(name_of(node), "batch_norm", node, _tail(node), (x,), None, node.meta["bytes"])  # type: ignore[arg-type]


def _operands(node: Node, name: str) -> tuple[Node, ...]:
    """The tensors that go in, when there is an int8 kernel for them; else nothing."""
    import torch

    arguments: Any = node.args
    if name in _SINGLE:
        return (arguments[0],) if not node.kwargs else ()
    if name == "cat":
        return tuple(arguments[0])
    if name not in _PAIRS or len(arguments) != 2 or node.kwargs:
        return ()
    if not all(isinstance(a, torch.fx.Node) for a in arguments):
        return ()
    shapes = [a.meta["val"].shape for a in arguments if isinstance(a.meta.get("val"), torch.Tensor)]
    # quantized::add of PyTorch Mobile takes equal shapes; quantized::mul broadcasts (squeeze and excitation).
    if len(shapes) < 2 or (name == "add" and [str(s) for s in shapes[0]] != [str(s) for s in shapes[1]]):
        return ()
    return tuple(arguments)


def _tail(node: Node) -> Node:
    """The activation that can be fused: its least answer is 0, its greatest at most where int8 saturates anyway."""
    if len(node.users) != 1:
        return node
    user = next(iter(node.users))
    return user if is_relu(user) else node


def is_relu(node: Node) -> bool:
    """relu, or a clamp that begins at 0."""
    name = op_name(node.target)
    if name in ("relu", "relu6"):
        return True
    if name not in ("hardtanh", "clamp", "clamp_min"):
        return False
    low: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("min", node.kwargs.get("min_val"))
    return isinstance(low, (int, float)) and low == 0


def passes(node: Node) -> bool:
    """Whether a quantized tensor can go through with its scale."""
    name = op_name(node.target)
    if node.op != "call_function":
        return False
    if name in ("pad", "constant_pad_nd"):
        return is_float(node) and _pads_zeros(node, name)
    if name in AVERAGES:
        return is_float(node) and "dtype" not in node.kwargs and not (name == "avg_pool2d" and _counts_otherwise(node))
    if name in ("max_pool1d", "max_pool2d") and _spread(node):
        return False
    if name in ("relu", "clamp_min"):  # QNNPACK's clamp writes channels-last data into a contiguous result (torch 2.15)
        return is_relu(node) and is_float(node)
    return name in _KEEPS


def _argument(node: Node, place: int, name: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _counts_otherwise(node: Node) -> bool:
    """An average pool whose divisor isn't the window's size: QNNPACK divides by that nevertheless (torch 2.15)."""
    without_border = not _argument(node, 5, "count_include_pad", True) and _any(_argument(node, 3, "padding", 0))
    return without_border or _argument(node, 6, "divisor_override", None) is not None


def _spread(node: Node) -> bool:
    """A dilated window over the border: QNNPACK takes the pixels next to the border for those beyond (torch 2.15)."""
    dilation = _argument(node, 4, "dilation", 1)
    return dilation not in (1, [1], (1,), [1, 1], (1, 1)) and _any(_argument(node, 3, "padding", 0))


def _any(sizes: Any) -> bool:
    return any(sizes) if isinstance(sizes, (list, tuple)) else bool(sizes)


def _pads_zeros(node: Node, name: str) -> bool:
    rest: Any = list(node.args[2:])
    mode = rest.pop(0) if name == "pad" and rest else "constant"
    value = rest[0] if rest else node.kwargs.get("value")
    return mode == "constant" and not value and set(node.kwargs) <= {"value"}


def settle(work: Work, units: Mapping[Node, Unit]) -> tuple[Mapping[Node, Unit], set[Node]]:
    """The units that will really be int8, and the values that int8 layers then read.

    An operator without weights is int8 only where all its inputs are and something behind it is; each that drops out may
    take others with it.
    """
    while True:
        wants = _wanted(work, units)
        int8: set[Node] = set()
        left: dict[Node, Unit] = {}
        for node in work.graph.nodes:
            unit = units.get(node)
            if unit is not None and (unit.shape or (unit.tail in wants and all(i in int8 for i in unit.inputs))):
                left[node] = unit
                int8.add(unit.tail)
            elif passes(node) and node.args[0] in int8:
                int8.add(node)
        if len(left) == len(units):
            return units, wants
        units = left


def _wanted(work: Work, units: Mapping[Node, Unit]) -> set[Node]:
    """Values that some int8 layer with weights reads, perhaps through operators that int8 goes through."""
    wants: set[Node] = set()
    fused = {u.tail: u for u in units.values()}
    for node in reversed(list(work.graph.nodes)):
        for user in node.users:
            unit = units.get(user)
            if unit is not None and node in unit.inputs:
                reads = unit.shape is not None or unit.tail in wants
            else:
                reads = (
                    passes(user) and user in wants and user not in fused and bool(user.args) and user.args[0] is node
                )
            if reads:
                wants.add(node)
    return wants
