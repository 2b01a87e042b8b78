"""What kind of answer an output holds, as far as shape and dtype tell."""

from __future__ import annotations

from edgesdk.artifacts import TensorSpec


def scores(output: TensorSpec, rank: int) -> bool:
    """Float scores of at least two classes in dimension 1: ``[N, K]`` for rank 2, ``[N, K, H, W]`` for rank 4."""
    return (
        output.shape is not None
        and len(output.shape) == rank
        and output.shape[1] != 1
        and output.dtype.startswith(("float", "bfloat"))
    )
