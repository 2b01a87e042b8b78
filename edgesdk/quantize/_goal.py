"""What training works towards: a loss and a metric, chosen from an output of the net and a label that fits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from edgesdk.errors import InputError

if TYPE_CHECKING:
    import torch

Scale = Literal["logits", "probabilities", "log-probabilities"]
Kind = Literal["classes", "binary", "values"]


@dataclass(frozen=True)
class Goal:
    """A loss on one output.

    Attributes:
        index: which output.
        kind: ``classes`` (scores [N, K] or [N, K, …] and integers), ``binary`` (one score for each integer 0 or 1),
            ``values`` (numbers of the output's shape).
        axis: of the classes.
    """

    index: int
    kind: Kind
    scale: Scale = "logits"
    axis: int = 1

    @property
    def name(self) -> str:
        """Of the loss."""
        return "mean squared error" if self.kind == "values" else "cross entropy"

    @property
    def metric(self) -> str:
        return "mean squared error" if self.kind == "values" else "top-1"

    def loss(self, outputs: Sequence[torch.Tensor], label: torch.Tensor) -> torch.Tensor:
        """A scalar."""
        from torch.nn import functional

        output = outputs[self.index]
        if self.kind == "values":
            return functional.mse_loss(output, label.to(output.dtype).reshape(output.shape))
        if self.kind == "binary":
            wanted = label.to(output.dtype).reshape(output.shape)
            if self.scale == "probabilities":
                return functional.binary_cross_entropy(output.clamp(_LEAST, 1 - _LEAST), wanted)
            return functional.binary_cross_entropy_with_logits(output, wanted)
        scores = output.movedim(self.axis, 1)
        return functional.nll_loss(_logs(scores, self.scale), label.long())

    def distance(self, outputs: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> torch.Tensor:
        """How far outputs are from those of another net: a scalar of the same scale as the loss, zero when they agree."""
        from torch.nn import functional

        output, other = outputs[self.index], wanted[self.index]
        if self.kind == "values":
            return functional.mse_loss(output, other)
        if self.kind == "binary":
            output, other = _two_sides(output, self.scale), _two_sides(other, self.scale)
        else:
            output, other = (_logs(one.movedim(self.axis, 1), self.scale) for one in (output, other))
        return functional.kl_div(output, other, log_target=True, reduction="none").sum(1).mean()

    def score(self, outputs: Sequence[torch.Tensor], label: torch.Tensor) -> float:
        """Of one batch: share of right classes, or the mean squared error."""
        if self.kind == "values":
            return float(self.loss(outputs, label))
        output = outputs[self.index]
        if self.kind == "binary":
            edge = 0.5 if self.scale == "probabilities" else 0.0
            return float(((output > edge).long() == label.long().reshape(output.shape)).double().mean())
        return float((output.argmax(self.axis) == label.long()).double().mean())


_LEAST = 1e-7
"""Probabilities below are taken for this: the logarithm of zero would end the training."""


def _logs(scores: torch.Tensor, scale: Scale) -> torch.Tensor:
    """Logarithms of the probabilities of classes, along axis 1."""
    if scale == "logits":
        return scores.log_softmax(1)
    return scores if scale == "log-probabilities" else scores.clamp_min(_LEAST).log()


def _two_sides(scores: torch.Tensor, scale: Scale) -> torch.Tensor:
    """One score for each sample as logarithms of the probabilities of no and yes, ``[N, 2]``."""
    import torch
    from torch.nn import functional

    flat = scores.reshape(-1, 1)
    if scale == "logits":
        return torch.cat([functional.logsigmoid(-flat), functional.logsigmoid(flat)], 1)
    inside = flat.clamp(_LEAST, 1 - _LEAST)
    return torch.cat([1 - inside, inside], 1).log()


def choose_goal(outputs: Sequence[Any], label: torch.Tensor, names: Sequence[str]) -> Goal:
    """The first output that the label fits.

    Args:
        outputs: of the float net, for the sample whose label is given.

    Raises:
        InputError: the label fits none.
    """
    import torch

    for index, output in enumerate(outputs):
        if isinstance(output, torch.Tensor) and output.is_floating_point():
            goal = _fitting(index, output, label)
            if goal is not None:
                return goal
    shapes = ", ".join(f"{n} {list(getattr(o, 'shape', ()))}" for n, o in zip(names, outputs, strict=False))
    kind = str(label.dtype).removeprefix("torch.")
    raise InputError(
        "label_mismatch", f"Labels of {kind}{list(label.shape)} fit no output of the model ({shapes}).",
        why="Whole numbers are classes, one for each row of scores; other numbers must have the shape of an output.",
        fix="Give labels that fit, or use static-int8, which needs none.",
    )  # fmt: skip


def _fitting(index: int, output: torch.Tensor, label: torch.Tensor) -> Goal | None:
    if label.is_floating_point():
        return Goal(index, "values") if output.shape == label.shape else None
    if output.numel() == label.numel() and int(label.min()) >= 0 and int(label.max()) <= 1:
        inside = float(output.min()) >= 0 and float(output.max()) <= 1
        return Goal(index, "binary", "probabilities" if inside else "logits")
    if output.dim() < 2:
        return None
    rest = (output.shape[0], *output.shape[2:])
    if tuple(label.shape) == rest and int(label.max()) < output.shape[1]:
        return Goal(index, "classes", _scale(output, 1), 1)
    if tuple(label.shape) == tuple(output.shape[:-1]) and int(label.max()) < output.shape[-1]:
        return Goal(index, "classes", _scale(output, -1), output.dim() - 1)
    return None


def _scale(output: torch.Tensor, axis: int) -> Scale:
    """Told by the numbers: a softmax sums to one, however it was written."""
    import torch

    ones = torch.ones(())
    if float(output.min()) >= 0 and torch.allclose(output.sum(axis).cpu(), ones, atol=1e-3):
        return "probabilities"
    if float(output.max()) <= 0 and torch.allclose(output.exp().sum(axis).cpu(), ones, atol=1e-3):
        return "log-probabilities"
    return "logits"
