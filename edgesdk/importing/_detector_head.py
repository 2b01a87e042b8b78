"""A torchvision SSD that comes as a module (named ones: ``_detectors``), cut at its decoded head (E-15).

Non-maximum suppression keeps as many boxes as a picture holds, which no fixed graph can express. What comes before it
is kept: resizing, network, decoding of boxes, scores. The app, or the bundle's post-processing, suppresses.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Warn

if TYPE_CHECKING:
    from torch import nn


def at_head(module: nn.Module) -> tuple[nn.Module, list[Warn]]:
    """An SSD behind ``forward(images)`` that returns ``boxes [N,A,4]`` and ``scores [N,A,C]``; others as they are.

    Boxes are x1, y1, x2, y2 in pixels of the input, scores the softmax over classes, background first.
    """
    ssd: Any = sys.modules.get("torchvision.models.detection.ssd")
    if ssd is None or not isinstance(module, ssd.SSD):
        return module, []
    model: Any = module
    text = (
        f"The detector was cut before non-maximum suppression: it returns all boxes and scores. In the app keep scores "
        f"above {model.score_thresh:g}, suppress per class at IoU {model.nms_thresh:g}, keep {model.detections_per_img}."
    )
    head: nn.Module = _head_class()(module).eval()
    return head, [Warn("nms_left_out", text)]


@functools.cache
def _head_class() -> Any:
    import torch
    from torchvision.ops import clip_boxes_to_image

    class DetectorHead(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, images: Any) -> Any:
            height, width = images.shape[-2:]
            batch, _ = self.model.transform(list(images.unbind(0)), None)
            features = list(self.model.backbone(batch.tensors).values())
            raw = self.model.head(features)
            anchors = self.model.anchor_generator(batch, features)
            decoded = [
                clip_boxes_to_image(self.model.box_coder.decode_single(boxes, a), size)
                for boxes, a, size in zip(raw["bbox_regression"], anchors, batch.image_sizes, strict=True)
            ]
            scales = [[width / w, height / h, width / w, height / h] for h, w in batch.image_sizes]
            boxes = torch.stack([b * b.new_tensor(s) for b, s in zip(decoded, scales, strict=True)])
            return {"boxes": boxes, "scores": torch.softmax(raw["cls_logits"], -1)}

    return DetectorHead
