"""Where numbers that aren't numbers come from, and how far they reach."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgesdk.quantize._fx._graph import Work, op_name
from edgesdk.quantize._fx._normal import WEIGHTED, Constants
from edgesdk.quantize._fx._ranges import LARGEST

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

BEHIND = "a layer before it has weights that aren't numbers; ranges found on the fly would choke on what comes of them"
INFINITE = "some of its weights are infinite, not a number or beyond 1e30"
_HOLD = WEIGHTED | {"batch_norm", "layer_norm", "group_norm", "instance_norm", "lstm_cell", "gru_cell"}


def finite(tensor: torch.Tensor | None) -> bool:
    """Whether a constant holds numbers of a sane size only; True for what is computed."""
    if tensor is None or tensor.is_quantized or not tensor.is_floating_point() or not tensor.numel():
        return True
    low, high = (float(v) for v in tensor.detach().aminmax())
    return math.isfinite(low) and math.isfinite(high) and max(-low, high) <= LARGEST


def behind_broken(work: Work, values: Constants) -> set[Node]:
    """Nodes that NaN can reach from a layer whose weights, biases or statistics aren't all numbers."""
    reached: set[Node] = set()
    for node in work.graph.nodes:
        if node.op != "call_function":
            continue
        sources = node.all_input_nodes
        broken = op_name(node.target) in _HOLD and not all(finite(values.get(source)) for source in sources)
        if broken or not reached.isdisjoint(sources):
            reached.add(node)
    return reached
