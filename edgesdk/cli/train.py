"""``edgesdk train``: documented, and not in this version."""

from __future__ import annotations

from edgesdk.cli._later import later

COMMAND = later(
    "train",
    "Train a model as a recipe says.",
    "Train with PyTorch, save the result with torch.export.save, and give that file to 'edgesdk package'.",
)
