"""Preprocessing taken over from the training libraries equals their own transform on a real picture (N-04)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgesdk.artifacts import TensorSpec
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.preprocess import ImageSpec, PreprocessSpec


@pytest.fixture(scope="module", params=["landscape", "portrait", "small"])
def photo(request: pytest.FixtureRequest) -> Image.Image:
    """A photograph of a temple, 427 × 640, that comes with scikit-learn; also turned, and smaller than the input."""
    from sklearn.datasets import load_sample_image

    image = Image.fromarray(load_sample_image("china.jpg"))
    return {"landscape": image, "portrait": image.rotate(90, expand=True), "small": image.resize((151, 97))}[
        request.param
    ]


def within_one_level(spec: ImageSpec, image: Image.Image, wanted: Any) -> None:
    """1/255 before normalisation is ``scale / std`` after it; 1e-5 for sums in single precision."""
    given, other = spec.apply(image), np.asarray(wanted, np.float32)
    assert given.shape == other.reshape(-1, *other.shape[-3:]).shape
    off = np.abs(given - other).max(axis=(0, 2, 3))
    assert (off <= spec.scale / np.array(spec.std) * 1.0001 + 1e-5).all(), off
    assert given.std() > 0.1


def nearly_within_one_level(spec: ImageSpec, image: Image.Image, wanted: Any) -> None:
    """For torchvision's resize of tensors, which is what transformers runs by default.

    It keeps 16-bit weights and always goes horizontally first, so it leaves Pillow (which torchvision, timm and
    transformers' own Pillow classes run) by a few levels at sharp edges: 0.06 % of samples for a tall picture.
    """
    level = np.abs(spec.apply(image) - np.asarray(wanted)) / (spec.scale / np.array(spec.std))[None, :, None, None]
    assert np.mean(level > 1.001) < 0.001 and level.max() < 8 and level.mean() < 0.3


def test_pitfall_n_04_torchvision_presets(photo: Image.Image) -> None:
    from torchvision.models import (
        EfficientNet_B0_Weights,
        MobileNet_V2_Weights,
        Swin_V2_T_Weights,
        ViT_B_16_Weights,
        ViT_H_14_Weights,
    )

    for weights in (
        MobileNet_V2_Weights.IMAGENET1K_V1,
        MobileNet_V2_Weights.IMAGENET1K_V2,
        EfficientNet_B0_Weights.IMAGENET1K_V1,
        ViT_B_16_Weights.IMAGENET1K_V1,
        ViT_H_14_Weights.IMAGENET1K_SWAG_E2E_V1,
        Swin_V2_T_Weights.IMAGENET1K_V1,
    ):
        preset = weights.transforms()
        within_one_level(PreprocessSpec.from_torchvision(preset), photo, preset(photo))


def test_pitfall_n_04_torchvision_segmentation_and_detection(photo: Image.Image) -> None:
    from torchvision.models.detection import SSDLite320_MobileNet_V3_Large_Weights
    from torchvision.models.segmentation import LRASPP_MobileNet_V3_Large_Weights

    for preset in (LRASPP_MobileNet_V3_Large_Weights.DEFAULT.transforms(), SSDLite320_MobileNet_V3_Large_Weights.DEFAULT.transforms()):  # fmt: skip
        within_one_level(PreprocessSpec.from_torchvision(preset), photo, preset(photo))


def test_a_compose_of_torchvision_transforms(photo: Image.Image) -> None:
    from torchvision import transforms as t

    normal = t.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    for steps in (
        [t.Resize(100), t.CenterCrop(91), t.ToTensor(), normal],
        [t.Resize((60, 90), t.InterpolationMode.BICUBIC), t.ToTensor()],
        [t.Resize((60, 90), t.InterpolationMode.NEAREST), t.ToTensor()],
        [t.CenterCrop(700), t.ToTensor(), normal],
        [t.Grayscale(), t.Resize((28, 28)), t.ToTensor(), t.Normalize((0.13,), (0.3,))],
    ):
        within_one_level(PreprocessSpec.from_torchvision(t.Compose(steps)), photo, t.Compose(steps)(photo))


def test_transforms_that_cannot_be_expressed_are_refused_by_name() -> None:
    from torchvision import transforms as t
    from torchvision.models.video import R3D_18_Weights

    for transform, word in (
        (t.Compose([t.RandomHorizontalFlip(), t.ToTensor()]), "RandomHorizontalFlip"),
        (t.Compose([t.ToTensor(), t.Resize(8)]), "Resize"),
        (t.Compose([t.CenterCrop(8), t.Resize(8)]), "Resize"),
        (t.Compose([t.Resize(8, max_size=9)]), "Resize"),
        (R3D_18_Weights.DEFAULT.transforms(), "VideoClassification"),
        (t.Lambda(np.asarray), "Lambda"),
    ):
        with pytest.raises(UnsupportedError, match=word) as caught:
            PreprocessSpec.from_torchvision(transform)
        assert caught.value.code == "preprocess_unsupported"
        assert "--image" in caught.value.fix


TIMM = ["mobilenetv4_conv_small", "vit_tiny_patch16_224", "convnext_tiny", "efficientnet_b0", "resnet18", "mobilevit_xxs",
        "levit_128s", "swinv2_tiny_window8_256", "vit_base_patch16_clip_quickgelu_224"]  # fmt: skip


@pytest.mark.parametrize("name", TIMM)
def test_pitfall_n_04_timm_configurations(photo: Image.Image, name: str) -> None:
    from timm.data import create_transform, resolve_data_config
    from timm.models import get_pretrained_cfg

    pretrained = get_pretrained_cfg(name)
    assert pretrained is not None
    config = resolve_data_config(pretrained_cfg=pretrained.to_dict())
    wanted = create_transform(**config)(photo)
    within_one_level(PreprocessSpec.from_timm(config), photo, wanted)
    assert PreprocessSpec.from_timm(pretrained) == PreprocessSpec.from_timm(config)


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize("size", [(3, 96, 96), (3, 64, 96), (1, 33, 33)])
def test_timm_crop_modes(photo: Image.Image, mode: str, size: tuple[int, int, int]) -> None:
    from timm.data import create_transform

    config: dict[str, Any] = {
        "input_size": size, "crop_mode": mode, "crop_pct": 1.0 if mode == "border" else 0.9, "interpolation": "bicubic",
        "mean": (0.4,) * size[0], "std": (0.3,) * size[0],
    }  # fmt: skip
    image = photo.convert("L") if size[0] == 1 else photo
    if size[0] == 1 and mode == "border":
        return  # timm itself fails: it fills grey with a list
    within_one_level(PreprocessSpec.from_timm(config), photo, create_transform(**config)(image))


def test_timm_sequences_of_patches_are_refused() -> None:
    for config in ({"input_size": (3, 224, 224), "naflex": True}, {"input_size": (4, 32, 32)}):
        with pytest.raises(UnsupportedError):
            PreprocessSpec.from_timm(config)


CHANGED: dict[str, dict[str, Any]] = {
    "BeitImageProcessor": {"do_center_crop": True, "crop_size": 200},
    "BitImageProcessor": {"size": {"shortest_edge": 256}},
    "CLIPImageProcessor": {"size": {"shortest_edge": 225}, "crop_size": {"height": 222, "width": 221}},
    "ConvNextImageProcessor": {"size": {"shortest_edge": 224}},
    "EfficientNetImageProcessor": {"rescale_factor": 1 / 127.5, "rescale_offset": True},
    "LevitImageProcessor": {"resample": 2},
    "SegformerImageProcessor": {"do_reduce_labels": True, "size": {"height": 130, "width": 140}},
    "ViTImageProcessor": {"do_normalize": False, "resample": 3},
}


@pytest.mark.parametrize("changed", [False, True])
def test_pitfall_n_04_transformers_processors(photo: Image.Image, changed: bool) -> None:
    import transformers

    from edgesdk.preprocess._processors import DEFAULTS

    for name in sorted(DEFAULTS):
        kind = f"{name}ImageProcessor"
        if changed and kind not in CHANGED:
            continue
        fields = CHANGED[kind] if changed else {}
        pillow = getattr(transformers, f"{kind}Pil", None)
        for cls in (getattr(transformers, kind), *([pillow] if pillow else [])):
            fields = {k: v for k, v in fields.items() if k != "do_reduce_labels"}  # only labels have it
            processor = cls(**fields)
            spec = PreprocessSpec.from_transformers(processor.to_dict())
            wanted = processor(photo, return_tensors="np")["pixel_values"]
            if cls.__name__.endswith("Pil"):
                within_one_level(spec, photo, wanted)
            else:
                nearly_within_one_level(spec, photo, wanted)
            assert PreprocessSpec.from_transformers({"image_processor_type": kind, **fields}) == spec  # keys left out


def test_old_forms_of_transformers_files() -> None:
    vit = {"feature_extractor_type": "ViTFeatureExtractor", "size": 224, "resample": 2, "image_mean": [0.5] * 3,
           "image_std": [0.5] * 3, "do_normalize": True, "do_resize": True}  # fmt: skip
    assert PreprocessSpec.from_transformers(vit).size == (224, 224)
    clip = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224, "do_center_crop": True}
    spec = PreprocessSpec.from_transformers(clip)
    assert spec.resize is not None and spec.resize.mode == "shorter"
    nested = PreprocessSpec.from_transformers({"image_processor": clip, "processor_class": "CLIPProcessor"})
    assert nested == spec


@pytest.mark.parametrize(
    "config",
    [
        {"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 800, "longest_edge": 1333}},
        {"image_processor_type": "ViTImageProcessor", "size": {"longest_edge": 100}},
        {"image_processor_type": "ViTImageProcessor", "resample": 5},
        {"image_processor_type": "ViTImageProcessor", "do_pad": True},
        {},
    ],
)
def test_other_processors_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        PreprocessSpec.from_transformers(config)
    assert caught.value.exit == 4


def test_adapted_follows_another_input_size() -> None:
    from torchvision.models import MobileNet_V2_Weights
    from torchvision.models.segmentation import LRASPP_MobileNet_V3_Large_Weights

    classify = PreprocessSpec.from_torchvision(MobileNet_V2_Weights.IMAGENET1K_V1.transforms())
    smaller = classify.adapted(TensorSpec("x", "float32", (1, 3, 112, 112)))
    assert smaller.size == (112, 112) and smaller.resize is not None and smaller.resize.size == (128, 128)
    segment = PreprocessSpec.from_torchvision(LRASPP_MobileNet_V3_Large_Weights.DEFAULT.transforms())
    tensor = TensorSpec("x", "float32", (1, 3, 320, 480))
    assert segment.fits(tensor) is not None
    assert segment.adapted(tensor).fits(tensor) is None


def test_bind_adapts_what_was_taken_over_and_never_what_the_user_said() -> None:
    from torchvision.models import MobileNet_V2_Weights
    from torchvision.models.detection import SSDLite320_MobileNet_V3_Large_Weights
    from torchvision.models.segmentation import LRASPP_MobileNet_V3_Large_Weights

    tensor = TensorSpec("x", "float32", (1, 3, 320, 320))
    presets = (MobileNet_V2_Weights, LRASPP_MobileNet_V3_Large_Weights, SSDLite320_MobileNet_V3_Large_Weights)
    for preset in (weights.DEFAULT.transforms() for weights in presets):
        spec = PreprocessSpec.from_torchvision(preset)
        with pytest.raises(InputError):
            spec.bind([tensor])
        bound = spec.bind([tensor], adapt=True)
        assert bound.input == "x" and bound.apply(np.zeros((50, 70, 3), np.uint8)).shape == (1, 3, 320, 320)
    grey = PreprocessSpec.from_options(320, channels=1)
    with pytest.raises(InputError, match="channel count"):
        grey.bind([tensor], adapt=True)
