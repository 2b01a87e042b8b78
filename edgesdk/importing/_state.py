"""State that a call leaves behind, and answers that chance decides: found by calling the model a few times.

A tensor kept in a plain attribute (``self.hidden``) would be baked into the graph as a constant; a registered buffer
is exported as state. Both are told apart by whether an earlier call changes a later answer.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk.errors import UnsupportedError
from edgesdk.importing._names import name_outputs

if TYPE_CHECKING:
    import torch
    from torch import nn

Run = Callable[[Sequence[Any]], Any]
_PLAIN = (int, float, bool, str, type(None))


def reassigned(before: dict[str, torch.Tensor], module: nn.Module) -> list[str]:
    """Buffers that a call replaced by another tensor (``self.h = new``) instead of writing into them."""
    now = dict(module.named_buffers())
    return [name for name, tensor in before.items() if now.get(name) is not tensor]


def write_in_place(module: nn.Module, names: Sequence[str]) -> None:
    """Let ``forward()`` end by writing replaced buffers into the old ones: torch.export loses the replacement else.

    (torch 2.15 keeps ``self.h = new`` at the top level only, and drops it in submodules without a word.)

    Raises:
        UnsupportedError: at the call, when the new value has another shape.
    """
    layers = dict(module.named_modules())
    places = [(layers[n.rpartition(".")[0]], n.rpartition(".")[2], n) for n in names]
    inner = module.forward

    @functools.wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        old = [layer._buffers[key] for layer, key, _ in places]
        found = inner(*args, **kwargs)
        new = [layer._buffers[key] for layer, key, _ in places]
        values = [b.clone() if b is not a and b is not None else None for a, b in zip(old, new, strict=True)]
        for (layer, key, name), before, after in zip(places, old, values, strict=True):
            if after is None or before is None:
                continue
            if after.shape != before.shape:
                raise state_resized(name)
            before.copy_(after)
            layer._buffers[key] = before
        return found

    vars(forward)["__signature__"] = inspect.signature(inner)
    vars(module)["forward"] = forward


def state_resized(name: str) -> UnsupportedError:
    return UnsupportedError(
        "hidden_state",
        f"The buffer self.{name} changes its size from call to call.",
        why="State in an exported graph has one fixed shape.",
        fix="Give the buffer its full size in __init__(), or make the state an input and an output of forward().",
        details={"attributes": [name]},
    )


class Snapshot:
    """Everything a call may change in a module: buffers, attributes that hold tensors or plain values, and hooks.

    (transformers installs hooks in the first call and keeps a mark that it did.)
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.objects = dict(module.named_buffers())
        self.buffers = {n: b.detach().clone() for n, b in self.objects.items()}
        self.attributes = {n: _attributes(layer) for n, layer in module.named_modules()}
        self.hooks = {n: [set(hooks) for hooks in _hooks(layer)] for n, layer in module.named_modules()}

    def restore(self) -> None:
        layers = dict(self.module.named_modules())
        for name, before in self.hooks.items():
            for hooks, kept_keys in zip(_hooks(layers[name]), before, strict=True):
                for number in [k for k in hooks if k not in kept_keys]:
                    del hooks[number]
        for name, kept in self.attributes.items():
            held = layers[name].__dict__
            for key in _attributes(layers[name]):
                if key not in kept:
                    del held[key]
            held.update({key: _copied(value) for key, value in kept.items()})
        self.restore_buffers()

    def restore_buffers(self) -> None:
        import torch

        layers = dict(self.module.named_modules())
        with torch.no_grad():
            for name, value in self.buffers.items():
                path, _, key = name.rpartition(".")
                held = layers[path]._buffers
                current = dict(held).get(key)  # a script's own mapping has no get()
                if current is not None and current.shape == value.shape and current.dtype == value.dtype:
                    current.copy_(value)
                else:
                    held[key] = value.clone()

    def changed_attributes(self) -> list[str]:
        """Dotted names of attributes that are new or differ now."""
        found = []
        for name, layer in self.module.named_modules():
            before = self.attributes.get(name, {})
            for key, value in _attributes(layer).items():
                if key not in before or not _same(before[key], value):
                    found.append(f"{name}.{key}" if name else key)
        return found

    def buffers_changed(self) -> bool:
        return any(n not in self.buffers or not _same(self.buffers[n], b) for n, b in self.module.named_buffers())


def _hooks(layer: Any) -> tuple[dict[int, Any], ...]:
    return layer._forward_hooks, layer._forward_pre_hooks


def _attributes(layer: nn.Module) -> dict[str, Any]:
    inner = ("_parameters", "_buffers", "_modules", "training")
    return {k: _copied(v) for k, v in vars(layer).items() if k not in inner and not k.endswith("_hooks") and _holds(v)}


def _holds(value: Any) -> bool:
    import torch

    if isinstance(value, (torch.Tensor, *_PLAIN)):
        return not isinstance(value, torch.nn.Parameter)
    if isinstance(value, (list, tuple, deque)):
        return all(_holds(v) for v in value)
    if isinstance(value, dict):
        return all(_holds(v) for v in value.values())
    return False


def _copied(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return copy.deepcopy(value) if not isinstance(value, _PLAIN) and not _has_tensor(value) else _rebuilt(value)


def _has_tensor(value: Any) -> bool:
    import torch

    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, deque)) else ()
    return isinstance(value, torch.Tensor) or any(_has_tensor(v) for v in items)


def _rebuilt(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value)((k, _copied(v)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_copied, value))
    if isinstance(value, (list, tuple, deque)):
        return type(value)(_copied(v) for v in value)
    return value


def _same(one: Any, other: Any) -> bool:
    import torch

    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and bool(torch.equal(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple, deque)) and isinstance(other, type(one)):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and not isinstance(one, torch.Tensor) and bool(one == other)


def seeded(run: Run, flat: Sequence[Any], seed: int = 0) -> list[torch.Tensor]:
    """The tensors that :func:`call_seeded` gave, as detached copies."""
    import torch

    found = call_seeded(run, flat, seed)
    return [t.detach().clone() for _, t in name_outputs(found) if isinstance(t, torch.Tensor)]


def call_seeded(run: Run, flat: Sequence[Any], seed: int = 0) -> Any:
    """Call with all random generators at a known place, and put them back; what the model returned."""
    import numpy as np
    import torch

    kept = random.getstate(), np.random.get_state()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(sys.stderr):
            _seed_torch(seed)
            np.random.seed(seed)
            random.seed(seed)
            return run([v.clone() if isinstance(v, torch.Tensor) else v for v in flat])
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def _seed_torch(seed: int) -> None:
    """``torch.manual_seed`` without its queue for devices that nobody uses: it grows by three formatted stacks a call."""
    import torch

    torch.default_generator.manual_seed(seed)
    cuda: Any = torch.cuda
    if cuda.is_initialized():
        cuda.manual_seed_all(seed)


def alike(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor], tolerance: float = 1e-5) -> bool:
    """Equal shapes, and values equal up to rounding relative to the largest one; NaN equals NaN.

    A tolerance above zero allows 1e-6 at least: probabilities near 0 carry the rounding of numbers near 1.
    """
    import torch

    def close(one: torch.Tensor, other: torch.Tensor) -> bool:
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if not (one.dtype.is_floating_point or one.dtype.is_complex) or one.numel() == 0:
            return bool(torch.equal(one, other))
        finite = one[torch.isfinite(one)].abs()
        scale = float(finite.max()) if finite.numel() else 1.0
        return bool(
            torch.allclose(
                one, other, rtol=tolerance, atol=max(tolerance * scale, 1e-6 if tolerance else 0.0), equal_nan=True
            )
        )

    return len(ones) == len(others) and all(map(close, ones, others))


def refuse_hidden_state(start: Snapshot, flat: nn.Module, first: Sequence[Any], second: Sequence[Any]) -> bool:
    """After a first call, see whether it shows in the answer to a second. The module is left as at ``start``.

    Args:
        start: taken before the first call.
        flat: the module behind a flat face.

    Returns:
        whether registered buffers carry state from call to call.

    Raises:
        UnsupportedError: plain attributes do.
    """
    changed = start.changed_attributes()
    buffers = start.buffers_changed()
    if not changed and not buffers:
        return False

    def run(values: Sequence[Any]) -> Any:
        return flat(*values)

    try:
        after = seeded(run, second)
        start.restore()
        alone = seeded(run, second)
        if alike(after, alone, 0.0):
            return False
        if not changed:
            return True
        if buffers:
            start.restore()
            seeded(run, first)
            start.restore_buffers()
            if alike(seeded(run, second), alone, 0.0):
                return True
    except Exception as exc:  # the first call left something that the second can't work with
        raise hidden_state(changed) from exc
    finally:
        start.restore()
    raise hidden_state(changed)


def hidden_state(names: Sequence[str]) -> UnsupportedError:
    named = ", ".join(f"self.{n}" for n in names[:5])
    return UnsupportedError(
        "hidden_state",
        f"The model keeps state in Python attributes between calls: {named}.",
        why="An exported graph can't see such attributes, so the first call's value would be frozen in.",
        fix="Make the state an input and an output of forward(), or register it with self.register_buffer().",
        details={"attributes": list(names)},
    )
