"""The schemes for ExecuTorch, through torchao's quantization of exported programs ("PT2E")."""

from edgesdk.quantize._pt2e._apply import SCHEMES, Quantized, as_xnnpack_takes_it, quantize
from edgesdk.quantize._pt2e._errors import layer_errors

__all__ = ["SCHEMES", "Quantized", "as_xnnpack_takes_it", "layer_errors", "quantize"]
