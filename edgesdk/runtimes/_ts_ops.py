"""What the last published PyTorch Mobile library can run: ``org.pytorch:pytorch_android_lite:2.1.0``.

The Lite build holds every operator of its torch release. The lists are the difference between the operators that
torch 2.1.2 and torch 2.15.0 register (``torch._C._jit_get_all_schemas()`` in each), without training, CUDA and
out-variants, which no file of ours can name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgesdk.errors import UnsupportedError

LIBRARY = "org.pytorch:pytorch_android_lite:2.1.0"

_NEWER = frozenset({
    "aten::_assert_scalar", "aten::_batch_norm_no_update", "aten::_batch_norm_with_update",
    "aten::_batch_norm_with_update_functional", "aten::_chunk_cat", "aten::_convert_weight_to_int4pack",
    "aten::_convert_weight_to_int4pack_for_cpu", "aten::_dyn_quant_matmul_4bit",
    "aten::_dyn_quant_pack_4bit_weight", "aten::_functional_assert_scalar", "aten::_fused_rms_norm",
    "aten::_linalg_eigvals", "aten::_mixed_dtypes_linear", "aten::_print", "aten::_safe_softmax",
    "aten::_scaled_addmm", "aten::_scaled_addmm_", "aten::_scaled_dot_product_fused_attention_overrideable",
    "aten::_scaled_mm_v2", "aten::_spsolve", "aten::_unsafe_masked_index",
    "aten::_unsafe_masked_index_put_accumulate", "aten::_upsample_lanczos2d_aa",
    "aten::_upsample_lanczos2d_aa.vec", "aten::_weight_int4pack_mm", "aten::_weight_int4pack_mm_for_cpu",
    "aten::_weight_int4pack_mm_with_scales_and_zeros", "aten::_weight_int8pack_mm",
    "aten::_wrapped_linear_prepack", "aten::_wrapped_quantized_linear_prepacked", "aten::addmm.dtype",
    "aten::all.dims", "aten::any.dims", "aten::baddbmm.dtype", "aten::bmm.dtype", "aten::broadcast_shapes",
    "aten::get_autocast_dtype", "aten::hash_tensor", "aten::linalg__powsum", "aten::linalg_matrix_sqrth",
    "aten::linalg_polar", "aten::linspace.Scalar_Tensor", "aten::linspace.Tensor_Scalar",
    "aten::linspace.Tensor_Tensor", "aten::logspace.Scalar_Tensor", "aten::logspace.Tensor_Scalar",
    "aten::logspace.Tensor_Tensor", "aten::mm.dtype", "aten::rand_like.generator", "aten::randint_like.Tensor",
    "aten::randint_like.Tensor_generator", "aten::randint_like.generator",
    "aten::randint_like.low_generator_dtype", "aten::randn_like.generator", "aten::rms_norm",
    "aten::rrelu_with_noise_functional", "aten::shallow_copy_data_", "aten::slice_inverse",
    "aten::sym_is_contiguous",
})  # fmt: skip
"""``aten`` operators that came after 2.1, as name.overload."""

_ARGUMENTS: Mapping[str, int] = {"aten::pad_sequence": 3, "aten::stft": 8, "aten::stft.center": 10,
                                 "aten::scaled_dot_product_attention": 7}  # fmt: skip
"""Operators that gained arguments since, and how many they had in 2.1."""

_NAMESPACES = frozenset({"aten", "prim", "quantized", "_quantized", "sparse", "profiler"})
"""What the library registers; everything else comes from another library."""

_ELSEWHERE: Mapping[str, str] = {
    "torchvision": "Add org.pytorch:torchvision_ops to the app and load the file there yourself, or cut the model in "
                   "front of this operator (return raw boxes and scores, do the rest in the app).",
    "torchaudio": "Do this step in the app and give the model its result.",
    "quantized_decomposed": "The graph is quantized in ExecuTorch's form: package the float model with --runtime torchscript "
                            "--quantize static-int8.",
}  # fmt: skip


def is_newer(operator: str) -> bool:
    """Whether ``aten::name.overload`` came after 2.1."""
    return operator in _NEWER


def check(operators: Mapping[str, int]) -> None:
    """Refuse operators that the library lacks.

    Args:
        operators: number of arguments given, by ``namespace::name.overload``.

    Raises:
        UnsupportedError: at least one isn't there.
    """
    for name, arguments in operators.items():
        namespace = name.partition("::")[0]
        if namespace not in _NAMESPACES:
            raise _absent([name], _ELSEWHERE.get(namespace, "Rewrite that step with PyTorch's own operators."))
        if arguments > _ARGUMENTS.get(name, arguments):
            raise _absent([name], "Leave the arguments that torch 2.1 doesn't know at their defaults.")
    newer = sorted(filter(is_newer, operators))
    if newer:
        raise _absent(newer, "Rewrite that step with older operators, or use --runtime executorch.")


def _absent(names: Iterable[str], fix: str) -> UnsupportedError:
    listed = ", ".join(names)
    return UnsupportedError(
        "unsupported_op", f"PyTorch Mobile has no operator {listed}.",
        why=f"The last published library, {LIBRARY}, doesn't contain it, so the file would load here and fail there.",
        fix=fix, details={"operators": listed.split(", "), "library": LIBRARY},
    )  # fmt: skip
