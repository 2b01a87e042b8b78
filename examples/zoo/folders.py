"""Writes Hugging Face folders with small seeded models: ``python folders.py DIR``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    bert = BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512, vocab_size=5000
    )
    BertForSequenceClassification(bert).eval().save_pretrained(folder / "bert-tiny")
    vit = ViTConfig(
        hidden_size=96, num_hidden_layers=3, num_attention_heads=3, intermediate_size=192, image_size=96, patch_size=16,
        num_labels=12,
    )  # fmt: skip
    ViTForImageClassification(vit).eval().save_pretrained(folder / "vit")
    ViTImageProcessor(size={"height": 96, "width": 96}).save_pretrained(folder / "vit")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
