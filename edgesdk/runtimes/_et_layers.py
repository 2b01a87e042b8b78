"""One int8 layer that XNNPACK doesn't take must not cost the others their delegate (pitfall Q-15).

Each quantized layer's node is marked with the layer's name, which survives down to the delegate's own code. A layer that
the compiler chokes on or leaves behind is found by its mark; one that makes the file fail at load by bisection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Layer
from edgesdk.quantize._pt2e._marks import layer_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_WORK = frozenset({"convolution", "linear", "addmm", "mm", "bmm"})
_STATUS = re.compile(r"xnn_status_(\w+)")
_MOST_TRIALS = 8
"""Lowerings that one search may cost: enough for 256 layers."""


def quantized(layers: Iterable[Layer]) -> list[str]:
    """Names of the layers that don't compute in float, in the order of the graph."""
    return [layer.name for layer in layers if layer.precision != "float32" and layer.op not in _ELSEWHERE]


_ELSEWHERE = frozenset({"embedding", "embedding_bag"})
"""Looked up by ExecuTorch's own kernels."""


def left_behind(edge: ExportedProgram, layers: Iterable[Layer]) -> dict[str, str]:
    """Quantized layers with weights that no delegate took: they compute in float between conversions, slower than float."""
    weighted = [layer for layer in layers if layer.bytes]
    names = set(quantized(weighted))
    found: dict[str, str] = {}
    for node in edge.graph.nodes:
        name = layer_of(node)
        if node.op == "call_function" and name in names and _word(node) in _WORK:
            found[name] = f"XNNPACK doesn't take this {_word(node)} in int8"
    return found


def _word(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target)).removeprefix("aten.").partition(".")[0]


def blamed(failure: BaseException, layers: Iterable[Layer]) -> dict[str, str]:
    """The quantized layer that XNNPACK's code was looking at when it failed."""
    from edgesdk.runtimes._et_backends import suspects

    names = set(quantized(layers))
    marks = [layer_of(node) for node in suspects(failure)]
    return {mark: f"XNNPACK's compiler failed on it: {_line(failure)}" for mark in marks if mark in names}


def _line(failure: BaseException) -> str:
    lines = str(failure).strip().splitlines()
    return lines[0][:160] if lines else "it gave no reason"


def search(
    layers: Sequence[Layer], works: Callable[[Mapping[str, str]], bool], failure: BaseException
) -> dict[str, str]:
    """The first layer without which those before it work.

    Args:
        works: lowers with the given layers in float and tells whether the file runs.
    """
    names = quantized(layers)
    code = _STATUS.search(str(failure))
    reason = f"XNNPACK refused it when the file was loaded ({code[1] if code else _line(failure)})"
    low, high = 0, len(names)  # with the first ``low`` layers it works, with ``high`` it doesn't
    for _ in range(_MOST_TRIALS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        if works(dict.fromkeys(names[middle:], reason)):
            low = middle
        else:
            high = middle
    return {names[high - 1]: reason} if names and high - low <= 1 else {}
