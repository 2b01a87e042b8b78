"""``edgesdk compress``: documented, and not in this version."""

from __future__ import annotations

from edgesdk.cli._later import later

COMMAND = later(
    "compress",
    "Prune or distil a model.",
    "Package the model as it is, or with --quantize fp16, which halves the file.",
)
