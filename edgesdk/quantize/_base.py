"""The seam of quantization: a scheme is a frozen class of its settings, one file each; the runtimes carry it out.

``edgesdk/quantize/NAME.py`` ends with ``SCHEME = ItsClass()`` and is found by scanning. The arithmetic lives in the
packages ``_pt2e`` (ExecuTorch), ``_onnx`` (ONNX Runtime) and ``_fx`` (TorchScript Lite).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Scheme:
    """How numbers are stored and computed. Subclasses add their settings as fields with defaults.

    Attributes:
        name: word of ``--quantize``.
        title: one line for people.
        calibrated: reads sample inputs to find the ranges of activations.
        labelled: the samples must carry labels.
        weight_bits: bits that a quantized weight takes in the file.
        cost: order in which ``--quantize auto`` tries; less work for the user and the machine first.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    calibrated: ClassVar[bool] = False
    labelled: ClassVar[bool] = False
    weight_bits: ClassVar[int] = 8
    cost: ClassVar[int] = 0
