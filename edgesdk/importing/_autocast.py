"""``torch.autocast`` inside ``forward()``: a model is captured in the precision of its weights, and says so.

On the CPU, where models are lowered and phones compute, ``autocast("cuda")`` does nothing, while ``autocast("cpu")``
computes linear layers and convolutions in bfloat16, for which the runtimes have no kernels. So it is held off while the
model is tried and captured, as half-precision weights are widened; what torch.export notes of it is then taken out.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Warn
from edgesdk.errors import UnsupportedError
from edgesdk.importing._inference_form import graphs, place, rename_outputs
from edgesdk.importing._translate import show_line

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

_WIDE = ("float32", "float64")


@dataclass
class Held:
    """What was held off. ``places`` are the user's lines, with the precision that was asked for there."""

    places: dict[str, str] = field(default_factory=dict)
    _off: bool = True

    @contextlib.contextmanager
    def as_written(self) -> Iterator[None]:
        """Let autocast work again, to see whether the model needs it."""
        self._off = False
        try:
            yield
        finally:
            self._off = True

    def holds(self, context: Any) -> bool:
        """Whether this ``torch.autocast`` would change the arithmetic on the CPU; remembers where it stands."""
        if not self._off or not context._enabled or context.device != "cpu":
            return False
        dtype = str(context.fast_dtype).removeprefix("torch.")
        if dtype in _WIDE:
            return False
        self.places.setdefault(_caller() or "forward()", dtype)
        return True

    def told(self) -> list[Warn]:
        """One warning that names the places; none when nothing was held off."""
        if not self.places:
            return []
        dtypes = " and ".join(dict.fromkeys(self.places.values()))
        return [Warn(
            "autocast_to_float32", f"forward() computes in {dtypes} under torch.autocast ({self.where}). The file computes in "
            "float32 there, which is more exact, and is compared with the model in float32; --quantize fp16 computes in half "
            "precision.",
        )]  # fmt: skip

    @property
    def where(self) -> str:
        return "; ".join(place.removesuffix(":") for place in self.places)


@contextlib.contextmanager
def full_precision() -> Iterator[Held]:
    """Hold ``torch.autocast`` for the CPU off in this block, whatever the model's code says."""
    from torch.amp.autocast_mode import autocast

    held = Held()
    enter: Any = autocast.__enter__

    def entered(self: Any) -> Any:
        if not held.holds(self):
            return enter(self)
        self._enabled = False
        try:
            return enter(self)
        finally:
            self._enabled = True

    autocast.__enter__ = entered  # type: ignore[method-assign]
    try:
        yield held
    finally:
        autocast.__enter__ = enter  # type: ignore[method-assign]


def _caller() -> str | None:
    """The user's line that entered the block."""
    frames: list[tuple[str, int]] = []
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        frames.append((frame.f_code.co_filename, frame.f_lineno))
    # Innermost first: the first one of the user's own; callers further out may be a script that uses edgesdk.
    return next((line for one in frames if (line := show_line([one])) and "site-packages" not in line), None)


def needs_autocast(held: Held, why: str) -> UnsupportedError:
    """The model works with autocast only: its own casts count on it."""
    return UnsupportedError(
        "autocast_needed", f"forward() works only inside torch.autocast ({held.where}): without it, it fails.",
        why=f"No runtime computes in bfloat16 as autocast does, and in float32 it says: {why}",
        fix="Write the casts for float32 (.float() in place of .bfloat16()), or take them out together with torch.autocast.",
    )  # fmt: skip


def inline_modes(program: ExportedProgram) -> None:
    """Put the sub-graphs of ``torch.autocast`` and ``torch.no_grad`` back into the graph, where they change nothing.

    Quantizers and lowerings look at the graph itself and would miss every layer inside.

    Raises:
        UnsupportedError: an autocast block of a saved program computes in a lower precision; names the line.
    """
    found = False
    for _ in range(100):  # blocks inside of blocks come up one by one
        blocks = [(gm, node) for gm in graphs(program.graph_module) for node in gm.graph.nodes if _operands(node)]
        if not blocks:
            break
        found = True
        for graph_module, node in blocks:
            _inline(graph_module, node)
    if found:
        rename_outputs(program)
        program.graph_module.graph.eliminate_dead_code()
        program.graph_module.recompile()
        program._validate()  # type: ignore[no-untyped-call]


def _operands(node: Node) -> int:
    """Index of the first operand of a block's node, right behind its sub-graph; 0 for other nodes."""
    if node.op != "call_function" or not type(node.target).__module__.startswith("torch._higher_order_ops"):
        return 0
    target: Any = node.target
    return {"wrap_with_autocast": 5, "wrap_with_set_grad_enabled": 2}.get(str(target.name()), 0)


def _inline(graph_module: GraphModule, node: Node) -> None:
    first = _operands(node)
    source: Any = node.args[first - 1]
    inner: GraphModule = getattr(graph_module, source.target)
    if first == 5:
        _check_precision(node, inner)
    places = [n for n in inner.graph.nodes if n.op == "placeholder"]
    values: dict[Any, Any] = dict(zip(places, node.args[first:], strict=True))
    with graph_module.graph.inserting_before(node):
        for attribute in [n for n in inner.graph.nodes if n.op == "get_attr"]:
            values[attribute] = graph_module.graph.get_attr(_moved(graph_module, inner, attribute.target))
            values[attribute].meta = dict(attribute.meta)
        found: Any = graph_module.graph.graph_copy(inner.graph, values)
    if not isinstance(found, (list, tuple)):
        found = [found]
    for user in list(node.users):
        index: Any = user.args[1]
        user.replace_all_uses_with(found[index])
        graph_module.graph.erase_node(user)
    graph_module.graph.erase_node(node)
    if not source.users:
        graph_module.graph.erase_node(source)
        delattr(graph_module, source.target)
    graph_module.recompile()


def _moved(to: GraphModule, inner: GraphModule, name: str) -> str:
    """A constant or sub-graph of the block under a free name of the graph around it."""
    fresh, count = name, 0
    while hasattr(to, fresh):
        count += 1
        fresh = f"{name}_{count}"
    setattr(to, fresh, getattr(inner, name))
    return fresh


def _check_precision(node: Node, inner: GraphModule) -> None:
    """Refuse a block in which torch noted narrower numbers than it has in float32."""
    import torch

    arguments: Any = node.args
    device, enabled = arguments[0], arguments[2]
    if not enabled:
        return
    for one in inner.graph.nodes:
        value = one.meta.get("val")
        narrow = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        if narrow and value.device.type == device:
            raise UnsupportedError(
                "autocast", f"The program computes in {str(value.dtype).removeprefix('torch.')} under torch.autocast: {place(one)}.",
                why="It was exported with torch.autocast at work, and no runtime has its arithmetic.",
                fix="Export it again without (torch.autocast(…, enabled=False)), or give edgesdk the code, file.py:factory: it "
                "then captures the model in float32 itself.",
            )  # fmt: skip
