"""What runs in the accelerated back end and what beside it, in one sentence that agrees with the table below it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from edgesdk.report import _words

Json = Mapping[str, Any]

# Operators that compute nothing: they give values another shape, place, order or type. Names without namespace, overload
# and the ending "_copy", as ExecuTorch's edge dialect has them.
_MOVES = frozenset(
    re.findall(
        r"\w+",
        """alias arange as_strided cat chunk clone _clone_dim_order constant_pad_nd copy detach diagonal embedding empty expand flip full
        full_like gather index index_select lift_fresh narrow permute pixel_shuffle pixel_unshuffle repeat roll scalar_tensor select
        slice split split_with_sizes squeeze stack t _to _to_dim_order tile to transpose unbind unfold unsqueeze view
        quantize_per_tensor dequantize_per_tensor quantize_per_channel dequantize_per_channel""",
    )
)


def moves(name: str) -> bool:
    """Whether an operator (``aten::view_copy``) only reshapes, copies, fills or converts."""
    plain = name.rpartition("::")[2].partition(".")[0]
    return plain.removesuffix("_copy") in _MOVES or plain in _MOVES


def sentence(variant: Json) -> str:
    """``all of the matrix products and convolutions run in XNNPACK; 3 other operators run outside, …``.

    Empty for runtimes without delegates. The share counts multiply-accumulates, or operators in a model without any.
    """
    share = variant.get("delegated_fraction")
    if share is None:
        return ""
    backend = _words.backend(variant.get("backend"))
    if share == 0:
        none = variant.get("backend") == "portable"
        return "everything runs in portable kernels" if none else f"nothing runs in {backend}"
    inside = (
        "all of the matrix products and convolutions run" if share == 1 else f"{_words.percent(share)} of the work runs"
    )
    left: Mapping[str, int] = (variant.get("details") or {}).get("leftovers") or {}
    return f"{inside} in {backend}{_outside(left)}"


def _outside(left: Mapping[str, int]) -> str:
    total = sum(left.values())
    if not total:
        return ""
    moving = sum(times for name, times in left.items() if moves(name))
    if total == 1:
        return "; one other operator runs outside" + (", which computes nothing" if moving else "")
    which = "all of which" if moving == total else f"{moving} of which" if moving else "none of which"
    return f"; {total} other operators run outside" + (
        f", {which} compute nothing: they reshape, copy, fill or convert" if moving else ""
    )
