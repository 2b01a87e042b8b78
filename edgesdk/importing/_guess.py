"""The likeliest ``--input`` of a model whose file doesn't say: read off the first layer with weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgesdk.artifacts import TensorSpec
from edgesdk.errors import InputError

if TYPE_CHECKING:
    from torch import nn


def propose_inputs(module: nn.Module, names: Sequence[str]) -> InputError:
    """The error of a model without known shapes; its fix is a command line to try."""
    guess = guess_first(module)
    known = names or ["input"]
    options = " ".join(
        f"--input '{name}={guess if i == 0 and guess else _by_name(name)}'" for i, name in enumerate(known)
    )
    layer = f" (a guess from its first layer, {guess_layer(module)})" if guess else ""
    return InputError(
        "unknown_input_shape",
        f"The size of the model's input {_list(known)} isn't known.",
        why="Neither the file nor the architecture says it, and a graph is made for stated sizes.",
        fix=f"Try {options}{layer}; a range such as 1..8 makes a dimension dynamic.",
        details={"inputs": list(known), "guess": guess},
    )


def picture_input(module: nn.Module, names: Sequence[str], sides: tuple[int, int] | None) -> tuple[TensorSpec, ...]:
    """The input of a network that begins with a convolution over pictures whose height and width ``--image`` told."""
    found = _first(module)
    if sides is None or len(names) != 1 or found is None or not found[0].startswith("Conv2d "):
        return ()
    channels = int(found[1].split(",")[1])
    return (TensorSpec(names[0], "float32", (1, channels, *sides)),)


def _by_name(name: str) -> str:
    """What a further input usually is: masks, positions and token numbers are integers as long as the sentence."""
    integer = any(word in name for word in ("mask", "ids", "token", "pos"))
    return "int64[1,128]" if integer else "float32[SIZES]"


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"'{n}'" for n in names)


def guess_first(module: nn.Module) -> str | None:
    """``float32[1,3,224,224]`` for a network that begins with ``Conv2d(3, …)``; None when nothing fits."""
    found = _first(module)
    return found[1] if found else None


def guess_layer(module: nn.Module) -> str:
    found = _first(module)
    return found[0] if found else ""


def _first(module: nn.Module) -> tuple[str, str] | None:
    for name, layer in module.named_modules():
        kind = str(getattr(layer, "original_name", type(layer).__name__))
        text = _of(kind, layer)
        if text:
            return f"{kind} '{name or 'model'}'", text
    return None


def _of(kind: str, layer: nn.Module) -> str | None:
    """Sizes one layer accepts. 224 is ImageNet's usual crop; 128 tokens, 16000 samples a second, 32 steps."""
    sides = {"Conv2d": "224,224", "Conv1d": "16000", "Conv3d": "16,112,112"}
    if kind in sides:
        channels = _width(layer, "in_channels", "weight")
        side = sides[kind] if channels is None or channels <= 4 or kind == "Conv1d" else "28,28"
        return f"float32[1,{channels},{side}]" if channels else None
    if kind == "Linear":
        width = _width(layer, "in_features", "weight")
        return f"float32[1,{width}]" if width else None
    if kind in ("Embedding", "EmbeddingBag"):
        return "int64[1,128]"
    if kind in ("LSTM", "GRU", "RNN"):
        width = _width(layer, "input_size", "weight_ih_l0")
        return f"float32[{'1,32' if getattr(layer, 'batch_first', True) else '32,1'},{width}]" if width else None
    if kind in ("LSTMCell", "GRUCell", "RNNCell"):
        width = _width(layer, "input_size", "weight_ih")
        return f"float32[1,{width}]" if width else None
    if kind == "MultiheadAttention":
        width = _width(layer, "embed_dim", "in_proj_weight")
        return f"float32[1,32,{width}]" if width else None
    return None


def _width(layer: nn.Module, attribute: str, weight: str) -> int | None:
    """The layer's own word, or, where a trace dropped it, the second size of its weight."""
    said = getattr(layer, attribute, None)
    if isinstance(said, int):
        return said
    tensor = dict(layer.named_parameters(recurse=False)).get(weight)
    return int(tensor.shape[1]) if tensor is not None and tensor.dim() > 1 else None
