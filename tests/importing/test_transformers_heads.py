"""Hugging Face folders whose class isn't one of the usual tasks: its own head, its own inputs and outputs, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from edgesdk.errors import InputError
from tests.importing.test_transformers import TINY, bert, load, run, saved

VISION = {**TINY, "image_size": 16, "patch_size": 8}


@pytest.mark.slow
def test_a_head_outside_the_usual_tasks_is_kept(tmp_path: Path) -> None:
    config = transformers.CLIPVisionConfig(**VISION, projection_dim=8)
    module = saved(tmp_path / "m", transformers.CLIPVisionModelWithProjection, config)
    model, picture = load(tmp_path / "m"), torch.rand(1, 3, 16, 16)
    with torch.no_grad():
        wanted = module(picture).image_embeds
    torch.testing.assert_close(run(model, picture)["image_embeds"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_clip_takes_words_and_a_picture(tmp_path: Path) -> None:
    text = {**TINY, "vocab_size": 99, "max_position_embeddings": 12, "eos_token_id": 2}
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=8)
    module = saved(tmp_path / "m", transformers.CLIPModel, config)
    model = load(tmp_path / "m")
    assert [spec.name for spec in model.signature.inputs] == ["input_ids", "attention_mask", "pixel_values"]
    words = torch.tensor([[5, 7, 9, 2]])
    given = (words, torch.ones_like(words), torch.rand(1, 3, 16, 16))
    with torch.no_grad():
        wanted = module(input_ids=given[0], attention_mask=given[1], pixel_values=given[2])
    found = run(model, *given)
    for name in ("logits_per_image", "text_embeds", "image_embeds"):
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_detector_with_queries_of_its_own_is_one_graph(tmp_path: Path) -> None:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], out_features=["stage2"], layer_type="basic"
    )
    sides = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in
             (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
    config = transformers.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=16,
        num_queries=3, num_labels=2, **sides,
    )  # fmt: skip
    saved(tmp_path / "m", transformers.DetrForObjectDetection, config)
    model = load(tmp_path / "m")
    assert [spec.name for spec in model.signature.inputs] == ["pixel_values"]
    assert {"logits", "pred_boxes"} <= {spec.name for spec in model.signature.outputs}


def test_a_spectrogram_has_its_configurations_size(tmp_path: Path) -> None:
    config = transformers.ASTConfig(**TINY, max_length=32, num_mel_bins=16, num_labels=3)
    saved(tmp_path / "m", transformers.ASTForAudioClassification, config)
    assert load(tmp_path / "m").signature.inputs[0].shape == (1, 32, 16)


def test_a_class_that_is_not_there_is_not_taken_for_the_model_inside(tmp_path: Path) -> None:
    class BertForRegression(transformers.BertPreTrainedModel):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.bert, self.head = transformers.BertModel(config), torch.nn.Linear(config.hidden_size, 1)
            self.post_init()

    saved(tmp_path / "m", BertForRegression, bert())
    with pytest.raises(InputError, match=r"BertForRegression.*BertModel.*head\.") as caught:
        load(tmp_path / "m")
    assert caught.value.code == "unknown_architecture"
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["BertModel"]}))
    assert "last_hidden_state" in [spec.name for spec in load(tmp_path / "m").signature.outputs]
