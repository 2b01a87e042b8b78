"""How far the answers of a model that comes quantized move when its values fall to the other side of a step.

Two engines add up floats in different orders; where a sum lies about halfway between two integers, they round it to
different ones, and a deep net carries such a difference on. How much of it the answers show depends on the model: 38 dB
is what a MobileNetV2 keeps, nothing is lost behind a single rounding of the input. So it is measured, on the original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk.fidelity import ROUNDED, Outputs, Tolerance, fidelity_of

if TYPE_CHECKING:
    import torch

    from edgesdk.artifacts import Model
    from edgesdk.samples import Case

_DRAWS = 4
"""Runs of the original; the worst counts."""
_SLACK_DB = 3.0
"""Below the measured signal-to-noise ratio: an engine's own grid of steps, as in dynamic quantization, adds twice the error."""
_SLACK = 2.0
"""Times the measured largest error, which few draws of few values don't reach."""


def roundings(model: Model, cases: Sequence[Case], reference: Sequence[Sequence[Outputs]]) -> dict[str, Tolerance]:
    """What roundings to the other neighbour explain, by output; empty when the program rounds no value.

    Args:
        model: the original.
        cases: inputs, a few steps each.
        reference: the original's outputs on them.
    """
    if (
        model.program is None or model.onnx is not None
    ):  # ONNX Runtime takes a file that arrives as it is: it must agree
        return {}
    module = _unsettled(model.program)
    if module is None:
        return {}
    from edgesdk.importing._reference import steps_through

    worst: dict[str, Tolerance] = {}
    for _ in range(_DRAWS):
        moved = [steps_through(module, model.signature, case.feeds) for case in cases]
        for spec in model.signature.outputs:
            found = _explained(spec.name, reference, moved)
            worst[spec.name] = found.looser(worst.get(spec.name))
    return {name: tolerance.stricter(ROUNDED) for name, tolerance in worst.items()}


def _explained(name: str, reference: Sequence[Sequence[Outputs]], moved: Sequence[Sequence[Outputs]]) -> Tolerance:
    import numpy as np

    wanted = [step[name] for case in reference for step in case]
    given = [step[name] for case in moved for step in case]
    if wanted[0].dtype.kind not in "fc":
        total = sum(one.size for one in wanted)
        flips = sum(int(np.count_nonzero(one != other)) for one, other in zip(wanted, given, strict=True))
        return Tolerance(flips=_SLACK * flips / max(total, 1))
    found = fidelity_of(name, wanted, given)
    relative = found.max_abs_error / found.max_abs_reference if found.max_abs_reference else 0.0
    snr = Tolerance().snr_db if found.snr_db is None else found.snr_db - _SLACK_DB
    return Tolerance(relative=_SLACK * relative, snr_db=snr)


def _unsettled(program: Any) -> Any:
    """The program behind a flat face, with every value that it rounds moved by up to half a step; None if it rounds none."""
    from edgesdk.importing._flat import flat_program

    if not any(_kind(node) in _STEPS for node in program.graph.nodes):  # nearly all models; a module takes time to make
        return None
    flat = flat_program(program)
    graph_module: Any = flat.model
    fed = _fed(graph_module.graph)
    nodes = [n for n in graph_module.graph.nodes if n in fed and _kind(n) in _STEPS]
    if not nodes:
        return None
    graph_module.add_submodule("_unsettled", _noise())
    for node in nodes:
        with graph_module.graph.inserting_before(node):
            step = graph_module.graph.call_function(_STEPS[_kind(node)], tuple(node.args))
            moved = graph_module.graph.call_module("_unsettled", (node.args[0], step))
        node.args = (moved, *node.args[1:])
    graph_module.recompile()
    return flat


def _fed(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Nodes that depend on an input: a weight is rounded once, ahead, and to the same integers everywhere."""
    found: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" or any(source in found for source in node.all_input_nodes):
            found.add(node)
    return found


def _kind(node: torch.fx.Node) -> str:
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    return str(schema.name) if schema is not None else ""


def _noise() -> Any:
    import torch

    class Unsettled(torch.nn.Module):
        """Moves each value by less than half a step, by a generator of its own: the caller seeds torch's for each call."""

        def __init__(self) -> None:
            super().__init__()
            self.generator = torch.Generator().manual_seed(0)

        def forward(self, x: torch.Tensor, step: Any) -> torch.Tensor:
            moved: torch.Tensor = x + (torch.rand(x.shape, generator=self.generator) - 0.5) * step
            return moved.to(x.dtype)

    return Unsettled()


def _by_tensor(x: Any, scale: Any, *_: Any) -> Any:
    """Per tensor, or per token with a scale of shape ``[..., 1]``."""
    return scale


def _by_channel(x: torch.Tensor, scales: torch.Tensor, zero_points: Any, axis: int, *_: Any) -> torch.Tensor:
    return scales.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])


def _by_block(x: torch.Tensor, block: Sequence[int], scale: torch.Tensor, *_: Any) -> torch.Tensor:
    """A scale for each block of the tensor; a block of −1 spans its dimension."""
    spans = [size if b == -1 else b for size, b in zip(x.shape, block, strict=True)]
    step = scale.reshape([size // span for size, span in zip(x.shape, spans, strict=True)])
    for axis, span in enumerate(spans):
        step = step.repeat_interleave(span, axis)
    return step


_STEPS: Mapping[str, Any] = {
    "quantized_decomposed::quantize_per_tensor": _by_tensor,
    "quantized_decomposed::quantize_per_token": _by_tensor,
    "quantized_decomposed::quantize_per_channel": _by_channel,
    "torchao::quantize_affine": _by_block,
    "aten::fake_quantize_per_tensor_affine": _by_tensor,
    "aten::fake_quantize_per_channel_affine": _by_channel,
}
"""The size of a step, by the operator that rounds; its arguments are the operator's."""
