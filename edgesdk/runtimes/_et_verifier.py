"""Upstream's check of dtypes, without its fault: it pins dynamic sizes of models that split a tensor.

For an operator that returns a list (``split``, ``chunk``, ``unbind``), ``EdgeOpArgValidator`` takes the length of the list's
first tensor for that of the list. Asking a tensor for its length decides its first size: a dynamic batch becomes
the example's, without a word, and the file fails at every other (executorch 1.5.1, ``exir/verification/arg_validator.py``).
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from edgesdk.runtimes._et_patch import Swap


def swaps() -> list[Swap]:
    """What to set for the length of a lowering."""
    from executorch.exir.verification import verifier

    return [Swap(verifier, "EdgeOpArgValidator", _class())]


@functools.cache
def _class() -> Any:
    import torch
    from executorch.exir.verification.arg_validator import EdgeOpArgValidator

    base: Any = EdgeOpArgValidator

    class ListsAsOne(base):  # type: ignore[misc]
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            returns: Any = getattr(getattr(target, "_schema", None), "returns", ())
            if len(returns) == 1 and returns[0].type == torch.ListType.ofTensors():
                node: Any = self.node
                meta = {**node.meta, "val": [list(node.meta["val"])]}
                self.node: Any = SimpleNamespace(meta=meta, stack_trace=node.stack_trace)
            return super().call_function(target, args, kwargs)

    return ListsAsOne
