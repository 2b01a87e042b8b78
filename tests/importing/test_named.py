"""Architectures by name: sizes, preprocessing and labels of the library, the same weights every time, clear offline."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import torch

from edgesdk.artifacts import Model
from edgesdk.errors import InputError, UnsupportedError, UsageError
from edgesdk.importing import import_model, locate


def load(text: str) -> Model:
    return import_model(locate(text))


def run(model: Model, image: torch.Tensor) -> list[torch.Tensor]:
    assert model.program is not None
    return [leaf.detach() for leaf in torch.utils._pytree.tree_leaves(model.program.module()(image))]


@pytest.mark.parametrize(
    ("name", "size", "task"),
    [
        ("torchvision:squeezenet1_1", (1, 3, 224, 224), "image-classification"),
        ("timm:test_vit", (1, 3, 160, 160), "image-classification"),
    ],
)
def test_sizes_preprocessing_and_labels_come_from_the_library(name: str, size: tuple[int, ...], task: str) -> None:
    model = load(name)
    (image,) = model.signature.inputs
    assert (image.dtype, image.shape) == ("float32", size)
    assert model.preprocess is not None and model.preprocess.fits(image) is None
    assert model.labels is not None and len(model.labels) == 1000 and model.labels[1].lower().startswith("goldfish")
    assert model.task == task
    assert any(warn.code == "random_weights" and "DEFAULT" in warn.message for warn in model.warnings)
    same = load(name)
    picture = torch.rand(size)
    first, second = run(model, picture), run(same, picture)
    assert torch.equal(first[0], second[0])
    assert not torch.allclose(first[0], run(model, torch.rand(size))[0], atol=1e-6)


def test_a_wrong_name_is_answered_with_near_ones() -> None:
    with pytest.raises(UsageError, match="no model 'mobilnet_v2'") as caught:
        load("torchvision:mobilnet_v2")
    assert "mobilenet_v2" in caught.value.why
    with pytest.raises(UsageError, match="no weights 'IMAGENET_V1'") as caught:
        load("torchvision:mobilenet_v2@IMAGENET_V1")
    assert "IMAGENET1K_V1" in caught.value.why


@pytest.mark.parametrize(
    "text", ["torchvision:squeezenet1_1@DEFAULT", "timm:resnet18@DEFAULT", "hf:nobody/nothing-here"]
)
def test_offline_a_download_is_refused_clearly(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Nothing resolves, and the libraries' caches are empty folders."""

    def no_network(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    import huggingface_hub.constants as hub

    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(InputError) as caught:
        load(text)
    error = caught.value
    assert (error.code, error.exit) == ("download_failed", 3)
    assert "online" in error.fix and error.why.endswith(".")


@pytest.mark.slow
def test_a_detector_gives_the_boxes_of_torchvisions_own_decoder() -> None:
    """The body's boxes equal those of SSD.forward before suppression: compared through torchvision's own decoding."""
    import torchvision

    model = load("torchvision:ssdlite320_mobilenet_v3_large")
    assert [spec.name for spec in model.signature.outputs] == ["boxes", "scores"]
    assert any(warn.code == "nms_left_out" for warn in model.warnings)
    assert model.module is not None
    image = torch.rand(1, 3, 320, 320)
    boxes, scores = run(model, image)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        detector = torchvision.models.get_model(
            "ssdlite320_mobilenet_v3_large", weights=None, weights_backbone=None
        ).eval()
    with torch.no_grad():
        pictures, _ = detector.transform([image[0]])
        features = list(detector.backbone(pictures.tensors).values())
        found = detector.head(features)
        anchors = detector.anchor_generator(pictures, features)
        wanted = detector.box_coder.decode_single(found["bbox_regression"][0], anchors[0])
    torch.testing.assert_close(boxes[0], wanted, rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(scores[0], found["cls_logits"][0].softmax(-1), rtol=1e-3, atol=1e-4)


def test_a_two_stage_detector_is_refused_with_another() -> None:
    with pytest.raises(UnsupportedError, match="second stage|can't become one graph") as caught:
        load("torchvision:fasterrcnn_mobilenet_v3_large_320_fpn")
    assert "ssdlite320" in caught.value.fix
