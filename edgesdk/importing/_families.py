"""Guess a library's architecture from the names and sizes of its weights, for an error message that helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgesdk.importing._match import Shape

# (names that must all be there, candidates of the library): few candidates, each built without memory and compared.
_FAMILIES: Final[tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...]] = (
    (("conv1.weight", "layer1.0.conv1.weight", "fc.weight"), "torchvision",
     ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d")),
    (("features.1.conv.0.0.weight", "features.18.0.weight"), "torchvision", ("mobilenet_v2",)),
    (("features.0.0.weight", "classifier.3.weight", "features.1.block.0.0.weight"), "torchvision",
     ("mobilenet_v3_small", "mobilenet_v3_large")),
    (("features.0.0.weight", "features.1.0.block.0.0.weight", "classifier.1.weight"), "torchvision",
     ("efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4",
      "efficientnet_v2_s", "efficientnet_v2_m")),
    (("layers.0.weight", "layers.8.0.layers.0.weight"), "torchvision",
     ("mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3")),
    (("conv1.0.weight", "stage2.0.branch1.0.weight"), "torchvision",
     ("shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0")),
    (("features.3.squeeze.weight",), "torchvision", ("squeezenet1_0", "squeezenet1_1")),
    (("features.conv0.weight", "features.denseblock1.denselayer1.norm1.weight"), "torchvision",
     ("densenet121", "densenet169", "densenet201")),
    (("features.0.weight", "classifier.6.weight"), "torchvision",
     ("alexnet", "vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg16_bn")),
    (("conv_proj.weight", "class_token"), "torchvision", ("vit_b_16", "vit_b_32", "vit_l_16")),
    (("features.0.0.weight", "features.1.0.layer_scale"), "torchvision",
     ("convnext_tiny", "convnext_small", "convnext_base")),
    (("features.0.0.weight", "features.1.0.attn.qkv.weight"), "torchvision", ("swin_t", "swin_s", "swin_b")),
    (("backbone.0.0.weight", "classifier.cbr.0.weight"), "torchvision", ("lraspp_mobilenet_v3_large",)),
    (("patch_embed.proj.weight", "blocks.0.attn.qkv.weight"), "timm",
     ("vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224", "deit_tiny_patch16_224")),
    (("conv_stem.weight", "blocks.0.0.conv_dw.weight"), "timm",
     ("mobilenetv3_small_050", "mobilenetv3_small_100", "mobilenetv3_large_100", "efficientnet_b0",
      "efficientnet_lite0")),
    (("conv_stem.weight", "blocks.0.0.conv.weight"), "timm",
     ("mobilenetv4_conv_small", "mobilenetv4_conv_medium", "mobilenetv4_conv_large")),
    (("stem.0.weight", "stages.0.blocks.0.conv_dw.weight"), "timm",
     ("convnext_atto", "convnext_femto", "convnext_pico", "convnext_nano", "convnext_tiny")),
)  # fmt: skip
_PREFIXES: Final = ("module.", "_orig_mod.", "model.", "net.", "backbone.")


def guess(shapes: Mapping[str, Shape]) -> str | None:
    """``torchvision:NAME`` or ``timm:NAME`` whose names and sizes (but the last layer's) are the file's; else None.

    A family whose library isn't installed is named by its first member.
    """
    names = _stripped(shapes)
    for needed, library, candidates in _FAMILIES:
        if all(name in names for name in needed):
            found = _closest(library, candidates, names)
            if found:
                return f"{library}:{found}"
    if "embeddings.word_embeddings.weight" in names or "bert.embeddings.word_embeddings.weight" in names:
        return "transformers:FOLDER"
    return None


def _stripped(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    names = dict(shapes)
    for _ in range(len(_PREFIXES)):
        for prefix in _PREFIXES:
            if names and all(name.startswith(prefix) for name in names):
                names = {name.removeprefix(prefix): shape for name, shape in names.items()}
    return names


def _closest(library: str, candidates: tuple[str, ...], names: Mapping[str, Shape]) -> str | None:
    import torch

    for candidate in candidates:
        try:
            with torch.device("meta"):
                state = _meta(library, candidate)
        except ImportError:
            return candidates[0]
        differing = sum(names.get(name) != shape for name, shape in state.items())
        if differing <= 2 and not names.keys() - state.keys():  # the last layer's weight and bias
            return candidate
    return None


def _meta(library: str, name: str) -> dict[str, Shape]:
    """Names and sizes of an architecture, made on the meta device: no memory, no initialisation."""
    if library == "torchvision":
        from torchvision import models

        parameters = models.get_model_builder(name).__annotations__
        extra = {"weights_backbone": None} if "weights_backbone" in parameters else {}
        module = models.get_model(name, weights=None, **extra)
    else:
        import timm

        module = timm.create_model(name, pretrained=False)
    return {key: tuple(value.shape) for key, value in module.state_dict().items()}
