"""The schemes for ExecuTorch, through torchao's quantization of exported programs ("PT2E")."""

from edgesdk.quantize._pt2e._apply import SCHEMES, Quantized, quantize

__all__ = ["SCHEMES", "Quantized", "quantize"]
