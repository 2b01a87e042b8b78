"""Reparametrized weights (weight norm, spectral norm, orthogonal, masks of pruning) written out as plain ones.

Left in, they are computed at every call on the phone, where ExecuTorch lacks kernels for some of them, and a mask is
stored beside its weight (C-01).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgesdk.artifacts import Warn

if TYPE_CHECKING:
    import torch
    from torch import nn


def fold(module: nn.Module) -> list[Warn]:
    """Fold in place. The module is in eval mode and shares its parameters with the caller's, which stay as they are.

    Returns:
        one warning that names what was folded, or none.
    """
    import torch

    folded: list[str] = []
    with torch.no_grad():
        for path, layer in list(module.named_modules()):
            folded += [f"{path}.{name}" if path else name for name in (*_parametrized(layer), *_hooked(layer))]
    if not folded:
        return []
    named = ", ".join(folded[:5]) + (f" and {len(folded) - 5} more" if len(folded) > 5 else "")
    return [Warn("reparametrization_folded", f"Computed weights were written out as plain ones: {named}.")]


def _parametrized(layer: nn.Module) -> list[str]:
    """``torch.nn.utils.parametrizations``: the module was given a class of its own, with a property for the weight.

    The copy shares that class with the caller's module, so it is left alone: torch's own removal would edit it.
    """
    from torch.nn.utils import parametrize

    if not parametrize.is_parametrized(layer):
        return []
    weights = {name: getattr(layer, name) for name in layer._modules["parametrizations"]._modules}  # type: ignore[union-attr]
    layer.__class__ = type(layer).__bases__[0]
    del layer._modules["parametrizations"]
    for name, weight in weights.items():
        _store(layer, name, weight)
    return list(weights)


def _hooked(layer: nn.Module) -> list[str]:
    """The older way: a hook that computes the weight before each call, from ``weight_orig`` or ``weight_g``."""
    from torch.nn.utils.prune import BasePruningMethod
    from torch.nn.utils.spectral_norm import SpectralNorm
    from torch.nn.utils.weight_norm import WeightNorm

    names = []
    for key, hook in list(layer._forward_pre_hooks.items()):
        if not isinstance(hook, (BasePruningMethod, SpectralNorm, WeightNorm)):
            continue
        name = str(getattr(hook, "_tensor_name", None) or getattr(hook, "name", "weight"))
        hook(layer, ())
        weight = getattr(layer, name)
        for suffix in ("_orig", "_mask", "_g", "_v", "_u"):
            layer._parameters.pop(name + suffix, None)
            layer._buffers.pop(name + suffix, None)
        _store(layer, name, weight)
        del layer._forward_pre_hooks[key]
        names.append(name)
    return names


def _store(layer: nn.Module, name: str, weight: torch.Tensor) -> None:
    import torch

    vars(layer).pop(name, None)
    layer.register_parameter(name, torch.nn.Parameter(weight.detach().clone(), requires_grad=False))
