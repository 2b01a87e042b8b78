"""The schemes for ExecuTorch, through torchao's quantization of exported programs ("PT2E")."""

from edgesdk.quantize._pt2e._apply import SCHEMES, Quantized, quantize, with_own_biases
from edgesdk.quantize._pt2e._errors import layer_errors

__all__ = ["SCHEMES", "Quantized", "layer_errors", "quantize", "with_own_biases"]
