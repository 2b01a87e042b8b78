"""Which operators ExecuTorch can run, from the library's own tables, without lowering anything."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# Operators as exported that XNNPACK takes after ExecuTorch's decompositions: the targets of ALL_PARTITIONER_CONFIGS
# (executorch/backends/xnnpack/partition/config, 1.5.1) and what decomposes or fuses into them.
# tests/inspection/test_kernels.py holds the first part against the installed library.
XNNPACK: Final = frozenset({
    "_native_batch_norm_legit_no_training", "max", "_softmax", "abs", "add", "addmm", "avg_pool2d", "bmm", "cat", "ceil", "clamp", "constant_pad_nd", "convolution", "cos",
    "div", "exp", "floor", "gelu", "hardswish", "hardtanh", "leaky_relu", "linear", "log", "maximum", "max_pool2d", "mean",
    "minimum", "mm", "mul", "neg", "permute_copy", "pow", "prelu", "relu", "rsqrt", "sigmoid", "sin", "slice_copy", "sqrt",
    "sub", "tanh", "unsqueeze_copy", "upsample_bilinear2d", "view_copy", "clone",
})  # fmt: skip
# Operators with multiply-accumulates that XNNPACK runs; the others (conv3d, lstm…) stay on portable kernels or unroll.
XNNPACK_WORK: Final = frozenset({
    "conv1d", "conv2d", "convolution", "conv_transpose2d", "linear", "addmm", "mm", "bmm", "matmul",
    "scaled_dot_product_attention",
})  # fmt: skip
# Checks and hints for the compiler, which lowering drops.
_DROPPED: Final = frozenset({
    "_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range", "sym_constrain_range_for_size",
    "sym_size", "sym_numel", "sym_stride", "sym_storage_offset",
})  # fmt: skip
_OPERATOR: Final = re.compile(r"^- (?:op|func):\s*(?:\w+::)?(\w+)", re.MULTILINE)


@functools.cache
def portable_kernels() -> frozenset[str] | None:
    """Base names of the portable kernels (``convolution``, ``permute_copy``); None when executorch isn't installed."""
    found = find_spec("executorch")
    for folder in (found.submodule_search_locations or ()) if found else ():
        table = Path(folder) / "kernels" / "portable" / "functions.yaml"
        if table.is_file():
            return frozenset(_OPERATOR.findall(table.read_text(encoding="utf-8")))
    return None


def without_kernel(operators: Iterable[str]) -> list[str]:
    """Those of ``aten.sort`` … that neither have a kernel nor are taken apart into others on the way.

    An operator that is taken apart may still end in one without a kernel: only lowering shows that.
    """
    known = portable_kernels()
    if known is None:
        return []
    return sorted(name for name in operators if not _runs(name, known))


def tensor_operators(operators: Iterable[str]) -> list[str]:
    """Without those of the TorchScript language itself (``aten.len``, ``aten.Bool``, ``prim.If``)."""
    import torch

    known = {n.partition(".")[0].replace("::", ".", 1) for n in torch._C._dispatch_get_all_op_names()}
    return [name for name in operators if name in known]


def _runs(name: str, known: frozenset[str]) -> bool:
    from edgesdk.runtimes._et_kernels import REPLACEMENTS  # those end in an operator without a kernel

    space, _, base = name.rpartition(".")
    if space in ("", "quantized_decomposed", "torchao", "dim_order_ops", "et_copy"):
        return True  # control flow and quantization have their own passes
    if space != "aten":
        return False
    plain = base.removesuffix("_") or base
    if base in _DROPPED or {plain, f"{plain}_copy"} & (known | XNNPACK):
        return True
    return plain not in REPLACEMENTS and bool({base, plain} & _composites())


@functools.cache
def _composites() -> frozenset[str]:
    """Base names of operators that torch replaces by others: composites, and its table of decompositions."""
    import torch

    names = {str(op).split(".")[1] for op in torch.export.default_decompositions() if str(op).startswith("aten.")}
    implicit: list[str] = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    return frozenset(names | {n.removeprefix("aten::").partition(".")[0] for n in implicit if n.startswith("aten::")})
