"""From the model's outputs to an answer: class names, boxes, a class map, a unit vector.

Definitions that Java and Swift share. Computed in double precision from float32 outputs unless said otherwise:

- **softmax** ``exp(x - max) / sum``; **sigmoid** ``1 / (1 + exp(-x))``, for x < 0 as ``exp(x) / (1 + exp(x))``.
- **top-k**: larger score first, on equal scores the smaller index.
- **boxes**: candidates are all (box, class) pairs with ``score > min_score``, in the order of scores (larger first, then
  the earlier box, then the smaller class). The next candidate is kept unless its IoU with a kept one of the same class
  (of any class when ``class_agnostic``) is above ``iou``. IoU = ``i / (a + b - i)`` in single precision, as
  torchvision.ops.nms; its comparison with ``iou`` in double precision. Boxes without area never overlap.
- **segment**: the largest of the channels, the smaller index on equal values; with a single channel, class 1 where the
  value (a logit) is above 0.
- **embed**: ``x / max(‖x‖₂, 1e-12)``, as torch.nn.functional.normalize.

JSON (``version`` 1)::

    {"kind": "classify", "version": 1, "output": "logits", "activation": "softmax", "top_k": 5}
    {"kind": "boxes", "version": 1, "boxes": "boxes", "scores": "scores", "classes": "labels", "box_format": "xyxy",
     "activation": "none", "min_score": 0.05, "iou": 0.5, "max_boxes": 100, "class_agnostic": false, "background": null}
    {"kind": "segment", "version": 1, "output": "out", "layout": "nchw"}
    {"kind": "embed", "version": 1, "output": "embedding"}
    {"kind": "raw", "version": 1}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from edgesdk.errors import InputError, nearest
from edgesdk.preprocess._image import one_of

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["raw", "classify", "boxes", "segment", "embed"]
Activation = Literal["softmax", "sigmoid", "none"]
BoxFormat = Literal["xyxy", "xywh", "cxcywh"]
Layout = Literal["nchw", "nhwc"]

_COMMON = ("kind",)
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "raw": (),
    "classify": ("output", "activation", "top_k"),
    "boxes": (
        "boxes", "scores", "classes", "box_format", "activation", "min_score", "iou", "max_boxes", "class_agnostic",
        "background",
    ),
    "segment": ("output", "layout"),
    "embed": ("output",),
}  # fmt: skip


@dataclass(frozen=True)
class Label:
    """One class of an answer; ``name`` is ``"class 7"`` where the model has no labels."""

    name: str
    score: float
    index: int


@dataclass(frozen=True)
class Box:
    """One found object; corners in the units of the model's output."""

    x0: float
    y0: float
    x1: float
    y1: float
    label: Label


@dataclass(frozen=True)
class Postprocess:
    """What to do with the outputs. Fields that don't belong to ``kind`` are ignored and not written.

    Attributes:
        output: name of the output that is read; None: the first.
        boxes, scores, classes: names of the outputs of a detector: boxes [N, 4]; scores [N, C], or [N] with the class
            numbers in ``classes`` [N]. All may have a leading dimension of 1.
        background: class number that is no object (torchvision: 0), or None.
    """

    kind: Kind = "raw"
    output: str | None = None
    activation: Activation = "softmax"
    top_k: int = 5
    boxes: str = "boxes"
    scores: str = "scores"
    classes: str | None = None
    box_format: BoxFormat = "xyxy"
    min_score: float = 0.05
    iou: float = 0.5
    max_boxes: int = 100
    class_agnostic: bool = False
    background: int | None = None
    layout: Layout = "nchw"

    def __post_init__(self) -> None:
        one_of("postprocess", self.kind, Kind)
        one_of("activation", self.activation, Activation)
        one_of("box_format", self.box_format, BoxFormat)
        one_of("layout", self.layout, Layout)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "version": 1, **{name: getattr(self, name) for name in _FIELDS[self.kind]}}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Postprocess:
        """Read the manifest's form.

        Raises:
            InputError: the kind, a field or the version is unknown.
        """
        known = {f.name for f in fields(Postprocess)}
        rest = {key: value for key, value in document.items() if key != "version"}
        strange = [key for key in rest if key not in known]
        kind = str(rest.get("kind"))
        if kind in _FIELDS and not strange and document.get("version") == 1:
            return Postprocess(**rest)
        why = nearest(strange[0], known) if strange else f"Kind {kind}, version {document.get('version')}."
        raise InputError(
            "postprocess_invalid", "The postprocessing of the manifest can't be read.", why=why,
            fix=f"Known kinds are {', '.join(_FIELDS)}, version 1; update edgesdk, or write the bundle again.",
        )  # fmt: skip

    def apply(self, outputs: Mapping[str, np.ndarray], labels: Sequence[str] | None = None) -> Any:
        """The answer for one sample.

        Returns:
            raw: the outputs; classify: list of :class:`Label`, best first; boxes: list of :class:`Box`, best first;
            segment: int32 [H, W]; embed: float32, the output's shape.

        Raises:
            InputError: an output is missing, has an unexpected shape, holds NaN, or more than one sample.
        """
        from edgesdk.preprocess import _answers

        return _answers.answer(self, outputs, labels)
