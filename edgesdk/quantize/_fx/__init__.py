"""Quantization of exported programs for TorchScript Lite, on the FX graph, with QNNPACK's operators.

``torch.ao``'s ``prepare_fx`` traces Python modules, which an exported program no longer has, stops at control flow and
decides by module type. Here the exported graph itself is rewritten, for every source alike; the operators and packed
weights in the file are the same.
"""

from __future__ import annotations

from edgesdk.quantize._fx._engine import engine
from edgesdk.quantize._fx._errors import layer_errors
from edgesdk.quantize._fx._quantize import Quantized, quantize

__all__ = ["Quantized", "engine", "layer_errors", "quantize"]
