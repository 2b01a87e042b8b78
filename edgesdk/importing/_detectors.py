"""torchvision's one-stage detectors as one graph: picture in, all decoded boxes and scores out.

The libraries' own ``forward()`` takes a list of pictures of any size and ends in non-maximum suppression, whose number of
results depends on the data. What is kept is everything up to there; the app (or the bundle's postprocessing) suppresses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import TensorSpec, Warn
from edgesdk.errors import UnsupportedError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from edgesdk.importing._export import ModelHint


def wrap(name: str, module: nn.Module, hint: ModelHint) -> tuple[nn.Module, ModelHint]:
    """The body of an SSD or RetinaNet; its inputs are pictures in 0…1 at the size of its configuration.

    Outputs: ``boxes`` float32 [N, A, 4] as x1, y1, x2, y2 in pixels of the input, ``scores`` float32 [N, A, classes].

    Raises:
        UnsupportedError: a two-stage detector, whose second stage depends on the data.
    """
    from torchvision.models.detection.retinanet import RetinaNet
    from torchvision.models.detection.ssd import SSD

    if not isinstance(module, (SSD, RetinaNet)):
        raise UnsupportedError(
            "detector_unsupported", f"torchvision:{name} is a {type(module).__name__}, which can't become one graph.",
            why="Its second stage works on as many regions as the first one finds, so sizes depend on the picture.",
            fix="Use a one-stage detector: torchvision:ssdlite320_mobilenet_v3_large.",
        )  # fmt: skip
    height, width = _size(module)
    body = _body(module, (height, width))
    warn = Warn(
        "nms_left_out",
        f"torchvision:{name}: non-maximum suppression and score thresholds are left to the app; "
        f"the graph gives all decoded boxes and scores for pictures of {height}x{width}.",
    )
    spec = TensorSpec("image", "float32", (1, 3, height, width))
    return body, replace(hint, inputs=(spec,), task="object-detection", warnings=(*hint.warnings, warn))


def _size(module: Any) -> tuple[int, int]:
    transform = module.transform
    if transform.fixed_size is not None:
        return int(transform.fixed_size[1]), int(transform.fixed_size[0])
    side = int(transform.min_size[0])
    return side, side


def _body(module: Any, size: tuple[int, int]) -> nn.Module:
    import torch
    from torchvision.models.detection.ssd import SSD

    softmax = isinstance(module, SSD)  # RetinaNet scores classes independently

    class DetectorBody(torch.nn.Module):
        """Normalise → backbone → head → decoded boxes; anchors are constants of the input's size."""

        anchors: torch.Tensor
        mean: torch.Tensor
        std: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head, self.coder = module.backbone, module.head, module.box_coder
            shape = (-1, 1, 1)
            self.register_buffer("mean", torch.tensor(module.transform.image_mean).reshape(shape), persistent=False)
            self.register_buffer("std", torch.tensor(module.transform.image_std).reshape(shape), persistent=False)
            self.register_buffer("anchors", _anchors(module, size), persistent=False)

        def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
            features = list(self.backbone((image - self.mean) / self.std).values())
            found = self.head(features)
            boxes = _decode(self.coder, found["bbox_regression"], self.anchors)
            logits = found["cls_logits"]
            return {"boxes": boxes, "scores": logits.softmax(-1) if softmax else logits.sigmoid()}

    return DetectorBody().eval()


def _anchors(module: Any, size: tuple[int, int]) -> torch.Tensor:
    import torch
    from torchvision.models.detection.image_list import ImageList

    picture = torch.zeros(1, 3, *size)
    with torch.no_grad():
        training = module.training
        module.eval()
        features = list(module.backbone(picture).values())
        module.train(training)
        found: torch.Tensor = module.anchor_generator(ImageList(picture, [size]), features)[0]
    return found


def _decode(coder: Any, codes: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """``BoxCoder.decode_single`` for a batch: (dx, dy, dw, dh) relative to anchors → corners in pixels."""
    import torch

    wx, wy, ww, wh = coder.weights
    size = anchors[:, 2:] - anchors[:, :2]
    centre = anchors[:, :2] + 0.5 * size
    shift = torch.stack([codes[..., 0] / wx, codes[..., 1] / wy], -1)
    scale = torch.stack([codes[..., 2] / ww, codes[..., 3] / wh], -1).clamp(max=coder.bbox_xform_clip)
    middle, half = shift * size + centre, 0.5 * scale.exp() * size
    return torch.cat([middle - half, middle + half], -1)
