"""Architectures of torchvision, timm and transformers with seeded weights whose outputs vary with their inputs.

Fresh weights give nearly constant outputs (batch norm with its initial statistics shrinks everything), and agreement on
a constant proves nothing. So the statistics are taken from a few random pictures first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def _alive(net: nn.Module, *shape: int) -> nn.Module:
    """Give batch norms the statistics of random pictures, and the weights of the head some spread."""
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over the batches
    net.train()
    for module in net.modules():
        if isinstance(module, (nn.Dropout, nn.Dropout2d)):
            module.eval()
    with torch.no_grad():
        for _ in range(2):
            net(torch.randn(4, *shape) * torch.rand(4, 1, 1, 1) * 2)
    return net.eval()


def _torchvision(name: str, size: int = 224, **options: object) -> Callable[[], nn.Module]:
    def factory() -> nn.Module:
        from torchvision import models

        torch.manual_seed(0)
        return _alive(models.get_model(name, weights=None, **options), 3, size, size)

    return factory


mobilenet_v2 = _torchvision("mobilenet_v2")
mobilenet_v3_small = _torchvision("mobilenet_v3_small")
resnet18 = _torchvision("resnet18")
efficientnet_b0 = _torchvision("efficientnet_b0")
lraspp = _torchvision("lraspp_mobilenet_v3_large", weights_backbone=None)


class DetectorHead(nn.Module):
    """Body and heads of SSDlite: image [1,3,320,320] → class scores and box offsets per anchor; no NMS."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models.detection import ssdlite320_mobilenet_v3_large

        net = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
        self.backbone, self.head = net.backbone, net.head

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        found = self.head(list(self.backbone(image).values()))
        return {"scores": found["cls_logits"].softmax(-1), "offsets": found["bbox_regression"]}


def ssdlite_body() -> nn.Module:
    torch.manual_seed(0)
    return _alive(DetectorHead(), 3, 320, 320)


def ssdlite_whole() -> nn.Module:
    """With its NMS and list-of-dict outputs, as a user would hand it in."""
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    torch.manual_seed(0)
    return ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None).eval()


def _timm(name: str, size: int) -> Callable[[], nn.Module]:
    def factory() -> nn.Module:
        import timm

        torch.manual_seed(0)
        return _alive(timm.create_model(name, pretrained=False), 3, size, size)

    return factory


vit_tiny = _timm("vit_tiny_patch16_224", 224)
convnext_atto = _timm("convnext_atto", 224)
mobilenetv4 = _timm("mobilenetv4_conv_small", 224)
