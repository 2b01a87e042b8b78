"""What training works towards: a loss and a metric, chosen from an output of the net and a label that fits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from edgesdk.data._check_labels import IGNORED
from edgesdk.errors import InputError

if TYPE_CHECKING:
    import torch

Scale = Literal["logits", "probabilities", "log-probabilities"]
Kind = Literal["classes", "shares", "binary", "values"]


@dataclass(frozen=True)
class Goal:
    """A loss on one output.

    Attributes:
        index: which output.
        kind: ``classes`` (scores [N, K] or [N, K, …] and integers), ``shares`` (scores [N, K] and a probability for each:
            one-hot rows, smoothed labels), ``binary`` (one score for each integer 0 or 1), ``values`` (numbers of the
            output's shape).
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
        if self.kind == "shares":
            return -(label.to(output.dtype) * _logs(scores, self.scale)).sum(1).mean()
        label = _numbers(label, output, self.axis)
        counted = _counted(label, scores.shape[1])
        wanted = label.long().masked_fill(~counted, _NO_CLASS)
        total = functional.nll_loss(_logs(scores, self.scale), wanted, ignore_index=_NO_CLASS, reduction="sum")
        return total / counted.sum().clamp_min(1)

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
        """Of one batch: share of right classes where there is one, or the mean squared error."""
        if self.kind == "values":
            return float(self.loss(outputs, label))
        output = outputs[self.index]
        if self.kind == "binary":
            edge = 0.5 if self.scale == "probabilities" else 0.0
            return float(((output > edge).long() == label.long().reshape(output.shape)).double().mean())
        found = output.argmax(self.axis)
        if self.kind == "shares":
            return float((found == label.to(output.dtype).argmax(self.axis)).double().mean())
        label = _numbers(label, output, self.axis)
        return float((found == label.long())[_counted(label, output.shape[self.axis])].double().mean())

    def counts(self, outputs: Sequence[torch.Tensor], label: torch.Tensor) -> bool:
        """Whether :meth:`score` has something to count: a map can be without any class."""
        return self.kind != "classes" or bool(_counted(label, outputs[self.index].shape[self.axis]).any())

    def refuses(self, outputs: Sequence[torch.Tensor], label: torch.Tensor) -> str | None:
        """What number in the label of another sample can't be learnt from; None when all can."""
        if self.kind in ("values", "shares"):
            return None
        if self.kind == "binary":
            bad = label[(label != 0) & (label != 1)]
            return f"{bad.flatten()[0].item()}, where others are 0 or 1" if bad.numel() else None
        classes = outputs[self.index].shape[self.axis]
        bad = label[_counted(label, classes) & ((label < 0) | (label >= classes))]
        return f"{int(bad[0])}, and there are {classes} classes (0…{classes - 1})" if bad.numel() else None


_NO_CLASS = -100


def _counted(label: torch.Tensor, classes: int) -> torch.Tensor:
    """Where a label is a class, and not one of the numbers that stand for none."""
    import torch

    ignored = [value for value in IGNORED if not 0 <= value < classes]
    return ~torch.isin(label.long(), torch.tensor(ignored, device=label.device))


def _numbers(label: torch.Tensor, output: torch.Tensor, axis: int) -> torch.Tensor:
    """Class numbers without the axis of the classes, where the label has one of size 1: [N, 1], [N, 1, H, W]."""
    return label.squeeze(axis) if label.dim() == output.dim() else label


_LEAST = 1e-7
"""Probabilities below are taken for this: the logarithm of zero would end the training."""


def _logs(scores: torch.Tensor, scale: Scale) -> torch.Tensor:
    """Logarithms of the probabilities of classes, along axis 1."""
    if scale == "logits":
        return scores.log_softmax(1)
    return scores if scale == "log-probabilities" else scores.clamp_min(_LEAST).log()


_SUM = 1e-3
"""How far probabilities may be from adding up to one."""


def _two_sides(scores: torch.Tensor, scale: Scale) -> torch.Tensor:
    """One score for each sample as logarithms of the probabilities of no and yes, ``[N, 2]``."""
    import torch
    from torch.nn import functional

    flat = scores.reshape(-1, 1)
    if scale == "logits":
        return torch.cat([functional.logsigmoid(-flat), functional.logsigmoid(flat)], 1)
    inside = flat.clamp(_LEAST, 1 - _LEAST)
    return torch.cat([1 - inside, inside], 1).log()


def choose_goal(outputs: Sequence[Sequence[Any]], labels: Sequence[torch.Tensor], names: Sequence[str]) -> Goal:
    """The first output that the labels fit.

    Args:
        outputs: of the float net, for some samples: one alone can hold a score that looks like a probability.
        labels: of the same samples.

    Raises:
        InputError: the labels fit none.
    """
    import torch

    for index, output in enumerate(outputs[0]):
        if isinstance(output, torch.Tensor) and output.is_floating_point():
            goal = _fitting(index, [one[index] for one in outputs], labels)
            if goal is not None:
                return goal
    shapes = ", ".join(f"{n} {list(getattr(o, 'shape', ()))}" for n, o in zip(names, outputs[0], strict=False))
    kind = str(labels[0].dtype).removeprefix("torch.")
    low, high = min(float(label.min()) for label in labels), max(float(label.max()) for label in labels)
    raise InputError(
        "label_mismatch", f"Labels of {kind}{list(labels[0].shape)} from {low:g} to {high:g} fit no output of the model ({shapes}).",
        why="Whole numbers are classes counted from 0: one for each row of scores, 0 or 1 for a single score. Other numbers must "
        "have the shape of an output.",
        fix="Give labels that fit (quantities as float32), or use static-int8, which needs none.",
    )  # fmt: skip


def _fitting(index: int, outputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor]) -> Goal | None:
    pairs = list(zip(outputs, labels, strict=True))
    each = all(output.numel() == label.numel() for output, label in pairs)
    scale = _shares(outputs, labels)
    if scale is not None:
        return Goal(index, "shares", scale)
    if labels[0].is_floating_point():
        rows = all(output.shape == label.shape or label.dim() == 1 for output, label in pairs)
        return Goal(index, "values") if each and rows else None
    if each and all(int(label.min()) >= 0 and int(label.max()) <= 1 for label in labels):
        inside = all(float(output.min()) >= 0 and float(output.max()) <= 1 for output in _sound(outputs))
        return Goal(index, "binary", "probabilities" if inside else "logits")
    if outputs[0].dim() < 2:
        return None
    for axis in (1, outputs[0].dim() - 1):
        if all(_numbered(label, o, axis) and _below(label, o.shape[axis]) for o, label in pairs):
            return Goal(index, "classes", _scale(outputs, axis), axis)
    return None


def _numbered(label: torch.Tensor, output: torch.Tensor, axis: int) -> bool:
    """Whether a label has the shape of class numbers for scores of that axis."""
    shape = list(output.shape)
    size = shape.pop(axis)
    return list(label.shape) == shape or (size > 1 and list(label.shape) == [*shape[:axis], 1, *shape[axis:]])


def _shares(outputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor]) -> Scale | None:
    """The scale of an output ``[N, K]`` whose labels are probabilities of classes; None where they are something else."""
    import torch
    from torch.nn import functional

    pairs = list(zip(outputs, labels, strict=True))
    if not all(o.dim() == 2 and o.shape[1] > 1 and o.shape == label.shape for o, label in pairs):
        return None
    wanted = torch.cat(list(labels)).to(outputs[0].dtype)
    if float(wanted.min()) < 0 or not bool(((wanted.sum(1) - 1).abs() < _SUM).all()):
        return None
    scale, given = _scale(outputs, 1), torch.cat(list(outputs))
    if scale != "logits":
        return scale
    # A net that was trained to answer these numbers themselves, by their squared error, is no classifier.
    likely = functional.mse_loss(given.softmax(1), wanted) < functional.mse_loss(given, wanted)
    return "logits" if bool(likely) else None


def _below(label: torch.Tensor, classes: int) -> bool:
    named = label[_counted(label, classes)]
    return not named.numel() or (int(named.min()) >= 0 and int(named.max()) < classes)


def _sound(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Those without NaN, which training will name."""
    return [output for output in outputs if bool(output.isfinite().all())]


def _scale(outputs: Sequence[torch.Tensor], axis: int) -> Scale:
    """Told by the numbers: a softmax sums to one, however it was written."""
    import torch

    ones, sound = torch.ones(()), _sound(outputs)
    if all(float(o.min()) >= 0 and torch.allclose(o.sum(axis).cpu(), ones, atol=_SUM) for o in sound):
        return "probabilities"
    if all(float(o.max()) <= 0 and torch.allclose(o.exp().sum(axis).cpu(), ones, atol=_SUM) for o in sound):
        return "log-probabilities"
    return "logits"
