"""What XNNPACK's pass for channels-last data must know, and doesn't: a softmax goes along the last size.

The pass (executorch 1.5.1, ``channels_last_tagged_reshape_pass.py``) keeps data in channels-last order behind a convolution
until an operator needs another one. It doesn't count softmax among these, whose kernel goes along the last size in memory:
``conv(x).softmax(-1)`` is then taken over the channels, without a word.
"""

from __future__ import annotations

from edgesdk.runtimes._et_patch import Swap


def swaps() -> list[Swap]:
    """What to set for the length of a lowering."""
    from executorch.backends.xnnpack._passes.channels_last_tagged_reshape_pass import ChannelsLastTaggedReshapePass
    from executorch.exir.dialects._ops import ops

    name = "memory_sensitive_ops_nchw"
    known = getattr(ChannelsLastTaggedReshapePass, name, None)
    if not isinstance(known, set):  # another version, which verification judges
        return []
    return [Swap(ChannelsLastTaggedReshapePass, name, {*known, ops.edge.aten._softmax.default})]
