"""A module made ready for export: on the CPU, in float32, contiguous, in eval mode. The caller's own stays as it is."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Warn
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.importing._fold import fold

if TYPE_CHECKING:
    import torch
    from torch import nn

_LOG = logging.getLogger(__name__)


def prepare(module: nn.Module) -> tuple[nn.Module, list[Warn]]:
    """A copy that shares the weights wherever they needn't change, and what had to be changed.

    Raises:
        InputError: weights have no values (they lie on the ``meta`` device).
    """
    warnings: list[Warn] = []
    module = _unwrap(module)
    mine = _shared_copy(module, warnings)
    warnings += _to_cpu_float(mine)
    warnings += _to_eval(mine)
    warnings += fold(mine)
    return mine, warnings


def _unwrap(module: nn.Module) -> nn.Module:
    """Wrappers of training (data parallel, compiled) are no part of the network."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(inner, torch.nn.Module):
            module = inner
        elif isinstance(module, (torch.nn.DataParallel, DistributedDataParallel)):
            module = module.module
        else:
            return module


def _shared_copy(module: nn.Module, warnings: list[Warn]) -> nn.Module:
    """Copy the objects, share the parameters: as light as the object tree, and the caller's module isn't touched."""
    memo: dict[int, Any] = {id(p): p for p in module.parameters()}
    for tensor in _plain_tensors(module):
        if tensor.requires_grad and not tensor.is_leaf:  # deepcopy refuses these
            memo[id(tensor)] = tensor.detach().clone()
    try:
        return copy.deepcopy(module, memo)
    except Exception as exc:  # any object of the user's may refuse to be copied, in its own way
        _LOG.debug("deepcopy refused", exc_info=exc)
        warnings.append(
            Warn("module_changed", f"The module can't be copied ({exc}), so its own mode and device were changed.")
        )
        return module


def _plain_tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    import torch

    for layer in module.modules():
        for value in vars(layer).values():
            if isinstance(value, torch.Tensor):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from (v for v in value if isinstance(v, torch.Tensor))


def _to_cpu_float(module: nn.Module) -> list[Warn]:
    import torch

    devices: set[str] = set()
    halves: set[str] = set()
    done: dict[int, torch.Tensor] = {}

    def fix(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in done:
            return done[id(tensor)]
        if tensor.device.type == "meta" or torch.nn.parameter.is_lazy(tensor):
            raise _no_values(tensor.device.type != "meta")
        new = tensor.detach()
        if new.device.type != "cpu":
            devices.add(str(new.device))
            new = new.cpu()
        if new.dtype in (torch.float16, torch.bfloat16):
            halves.add(str(new.dtype).removeprefix("torch."))
            new = new.float()
        if new.layout is not torch.strided:
            raise _sparse(new)
        if not new.is_quantized and not new.is_contiguous():
            new = new.contiguous()
        if new.data_ptr() == tensor.data_ptr() and new.dtype is tensor.dtype:
            new = tensor
        done[id(tensor)] = new
        return new

    for layer in module.modules():
        _fix_layer(layer, fix)
    warnings = []
    if devices:
        warnings.append(
            Warn("moved_to_cpu", f"The model was on {', '.join(sorted(devices))} and was moved to the CPU.")
        )
    if halves:
        kinds = ", ".join(sorted(halves))
        text = f"The model's {kinds} weights were widened to float32; --quantize fp16 stores them in half precision."
        warnings.append(Warn("half_to_float32", text))
    return warnings


def _sparse(tensor: torch.Tensor) -> UnsupportedError:
    kind = str(tensor.layout).removeprefix("torch.")
    return UnsupportedError(
        "sparse_tensor", f"The model holds a tensor of size {list(tensor.shape)} in the layout {kind}.",
        why="Files on a phone hold dense tensors only.", fix="Make it dense before packaging: tensor.to_dense().",
    )  # fmt: skip


def _no_values(lazy: bool) -> InputError:
    if lazy:
        return InputError(
            "weights_missing", "The model has lazy layers whose weights don't exist yet.",
            why="nn.LazyLinear and its like get their size from the first call, and random values with it.",
            fix="Call the model once and load its weights before handing it over, or say the sizes (nn.Linear).",
        )  # fmt: skip
    return InputError(
        "weights_missing",
        "The model's weights have no values.",
        why="They lie on torch's 'meta' device, which keeps shapes only.",
        fix="Load the weights first (model.to_empty(device='cpu'), then load_state_dict).",
    )


def _fix_layer(layer: nn.Module, fix: Callable[[torch.Tensor], torch.Tensor]) -> None:
    import torch

    for name, parameter in layer._parameters.items():
        if parameter is None:
            continue
        fixed = fix(parameter)
        if fixed is not parameter and not isinstance(fixed, torch.nn.Parameter):
            fixed = torch.nn.Parameter(fixed, requires_grad=False)
        layer._parameters[name] = fixed
    for name, buffer in layer._buffers.items():
        if buffer is not None:
            layer._buffers[name] = fix(buffer)
    for name, value in list(vars(layer).items()):
        if isinstance(value, torch.Tensor):
            vars(layer)[name] = fix(value)
        elif isinstance(value, list) and any(isinstance(v, torch.Tensor) for v in value):
            vars(layer)[name] = [fix(v) if isinstance(v, torch.Tensor) else v for v in value]
        elif isinstance(value, dict) and name not in ("_parameters", "_buffers", "_modules"):
            value.update({k: fix(v) for k, v in value.items() if isinstance(v, torch.Tensor)})


def _to_eval(module: nn.Module) -> list[Warn]:
    """``eval()``, and where a subclass overrides it, the flag itself (E-03)."""
    try:
        module.eval()
    except (NotImplementedError, TypeError) as exc:  # exported graphs, and overrides with other arguments
        _LOG.debug("eval() refused", exc_info=exc)
    stubborn = [name or type(module).__name__ for name, layer in module.named_modules() if layer.training]
    for layer in module.modules():
        layer.training = False
    if not stubborn:
        return []
    named = ", ".join(stubborn[:5]) + (f" and {len(stubborn) - 5} more" if len(stubborn) > 5 else "")
    return [Warn("eval_overridden", f"eval() left these modules training, so they were set by force: {named}.")]
