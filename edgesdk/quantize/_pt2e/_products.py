"""Products with a constant matrix become linear layers, which is what the quantizers look for.

ONNX's ``MatMul``, ``x @ self.weight`` and GPT-2's ``addmm`` compute what ``aten.linear`` computes, from a weight that lies the
other way round. Left as they are, the largest weights of such nets would stay float.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


@dataclass(frozen=True)
class Product:
    """``source @ matrix + bias``.

    Attributes:
        matrix: reads the constant: ``[inputs, outputs]``, or ``[outputs, inputs]`` when it is ``turned`` already.
        last: the node that holds the result, the addition of the bias included.
    """

    node: Node
    source: Node
    matrix: Node
    turned: bool
    bias: Node | None
    last: Node


def to_linear(module: GraphModule, state: frozenset[str]) -> None:
    """Rewrite in place. ``state`` names what a call writes to: no constants."""
    _Rewriter(module, state).run()


class _Rewriter:
    def __init__(self, module: GraphModule, state: frozenset[str]) -> None:
        self._module, self._state = module, state
        self._turned: dict[str, str] = {}

    def run(self) -> None:
        import torch

        found = [product for node in self._module.graph.nodes if (product := self._product(node))]
        done: dict[Node, Node] = {}
        for product in found:
            graph = self._module.graph
            with graph.inserting_before(
                product.node
            ):  # not later: a write to the source may stand before the bias is added
                weight = product.matrix if product.turned else self._weight(product.matrix, found)
                bias = (graph.get_attr(str(product.bias.target)),) if product.bias else ()
                linear = graph.call_function(
                    torch.ops.aten.linear.default, (done.get(product.source, product.source), weight, *bias)
                )
            linear.meta = dict(product.last.meta)
            product.last.replace_all_uses_with(linear)
            done[product.last] = linear
        if found:
            self._module.graph.eliminate_dead_code()
            self._module.recompile()

    def _product(self, node: Node) -> Product | None:
        kind = _kind(node)
        if node.kwargs or kind not in ("matmul.default", "mm.default", "addmm.default"):
            return None
        bias, source, matrix = node.args[:3] if kind == "addmm.default" else (None, *node.args[:2])
        turned = _is_transpose(matrix)
        read: Any = matrix.args[0] if turned else matrix  # type: ignore[union-attr]
        held = self._held(read)
        if held is None or held.dim() != 2 or not self._is_input(source):
            return None
        outputs = held.shape[0 if turned else 1]
        last = node
        if kind == "addmm.default":
            if len(node.args) > 3 or not self._is_bias(bias, outputs):
                return None
        elif added := self._addition(node, outputs):
            last, bias = added
        return Product(node, source, read, turned, bias, last)  # type: ignore[arg-type]

    def _addition(self, node: Node, outputs: int) -> tuple[Node, Node] | None:
        """The sum of the product and a bias, when that is all the product is for; and the bias."""
        users = list(node.users)
        if len(users) != 1 or _kind(users[0]) != "add.Tensor" or users[0].kwargs:
            return None
        other: Any = next((arg for arg in users[0].args if arg is not node), None)
        return (users[0], other) if self._is_bias(other, outputs) else None

    def _held(self, node: Any) -> Any:
        """The float32 constant that a node reads; None for anything else."""
        import torch

        if getattr(node, "op", "") != "get_attr" or str(node.target) in self._state:
            return None
        value = _attribute(self._module, str(node.target))
        return value if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else None

    def _is_input(self, node: Any) -> bool:
        import torch

        value = getattr(node, "meta", {}).get("val")
        return (
            isinstance(value, torch.Tensor)
            and value.dim() > 1
            and value.dtype == torch.float32
            and node.op != "get_attr"
        )

    def _is_bias(self, node: Any, outputs: int) -> bool:
        held = self._held(node)
        return held is not None and tuple(held.shape) == (outputs,)

    def _weight(self, matrix: Node, found: list[Product]) -> Node:
        """A node that reads the matrix the other way round.

        Its name stays when nothing but such products reads it: layers are known by the names of their weights.
        """
        target = str(matrix.target)
        if target not in self._turned:
            same = [node for node in self._module.graph.find_nodes(op="get_attr") if node.target == target]
            ours = {p.node for p in found if not p.turned}
            alone = all(user in ours for node in same for user in node.users)
            self._turned[target] = self._store(target, target if alone else self._free(f"{target}_turned"))
        return self._module.graph.get_attr(self._turned[target])

    def _free(self, name: str) -> str:
        owner, _, leaf = name.rpartition(".")
        place = self._module.get_submodule(owner)
        while hasattr(place, leaf):
            leaf += "_"
        return f"{owner}.{leaf}" if owner else leaf

    def _store(self, target: str, name: str) -> str:
        import torch

        owner, _, leaf = name.rpartition(".")
        place, value = self._module.get_submodule(owner), _attribute(self._module, target)
        other = value.detach().t().contiguous()
        if isinstance(value, torch.nn.Parameter):
            setattr(place, leaf, torch.nn.Parameter(other, value.requires_grad))
        else:
            if name == target:
                delattr(place, leaf)  # a constant may be a plain attribute
            place.register_buffer(leaf, other)
        return name


def _is_transpose(node: Any) -> bool:
    """Whether the node swaps the two dimensions of a matrix."""
    kind, args = _kind(node), tuple(getattr(node, "args", ()))
    if kind == "transpose.int":
        return {dim % 2 for dim in args[1:3]} == {0, 1}
    if kind == "permute.default":
        return [dim % 2 for dim in args[1]] == [1, 0]
    return kind in ("t.default", "numpy_T.default", "mT.default")


def _kind(node: Any) -> str:
    return str(getattr(node.target, "__name__", "")) if getattr(node, "op", "") == "call_function" else ""


def _attribute(module: Any, target: str) -> Any:
    found = module
    for part in target.split("."):
        found = getattr(found, part)
    return found
