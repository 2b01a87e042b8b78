"""Linear layers with float inputs and int8 or int4 weights, in XNNPACK.

XNNPACK has the kernels (``f32-qc8w``, ``f32-qc4w``) and executorch's serializer writes what they need, but its partitioner
(1.5.1) hands over a layer with quantized weights only when the input is quantized too. The bias must not be part of the
layer: the kernels multiply it by the weight's scale. ``edgesdk.quantize._pt2e._weights`` adds it afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def has_small_weights(program: ExportedProgram) -> bool:
    """Whether any linear layer has a dequantized weight and an input that isn't."""
    return any(
        node.op == "call_function"
        and str(node.target) == "aten.linear.default"
        and "dequantize_" in str(node.args[1].target)
        and "dequantize_" not in str(node.args[0].target)
        for node in program.graph.nodes
    )


def linear_config() -> Any:
    """The partitioner's configuration of linear layers that takes them."""
    from executorch.backends.xnnpack.partition.config.gemm_configs import LinearConfig
    from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
    from executorch.backends.xnnpack.utils.quant_utils import is_dequant
    from executorch.backends.xnnpack.utils.utils import get_input_node

    base: Any = LinearConfig

    class SmallWeights(base):  # type: ignore[misc]
        def _get_act_deps(self, node: Any, ep: Any, precision: Any) -> Any:
            if _applies(node, precision):
                return True, []
            return super()._get_act_deps(node, ep, precision)

        def _get_output_deps(self, node: Any, ep: Any, precision: Any) -> Any:
            float_like = ConfigPrecisionType.FP32 if _applies(node, precision) else precision
            return super()._get_output_deps(node, ep, float_like)

    def _applies(node: Any, precision: Any) -> bool:
        without_bias = len(node.args) < 3 or node.args[2] is None
        statically = precision == ConfigPrecisionType.STATIC_QUANT
        return bool(statically and without_bias and not is_dequant(get_input_node(node, 0)))

    return SmallWeights
