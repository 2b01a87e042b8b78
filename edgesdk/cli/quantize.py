"""``edgesdk quantize``: documented, and not in this version."""

from __future__ import annotations

from edgesdk.cli._later import later

COMMAND = later(
    "quantize",
    "Make an int8 or int4 model.",
    "'edgesdk package MODEL --quantize fp16' halves the file; a file that you quantized yourself goes into 'edgesdk bundle FILE --against MODEL'.",
)
