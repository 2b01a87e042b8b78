"""The likeliest ``--input`` of a model whose file doesn't say: read off the first layer with weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
        text = _of(layer)
        if text:
            return f"{type(layer).__name__} '{name or 'model'}'", text
    return None


def _of(layer: nn.Module) -> str | None:
    """Sizes one layer accepts. 224 is ImageNet's usual crop; 128 tokens, 16000 samples a second, 32 steps."""
    kind = getattr(layer, "original_name", type(layer).__name__)
    channels = getattr(layer, "in_channels", None)
    side = {"Conv2d": "224,224", "Conv1d": "16000", "Conv3d": "16,112,112"}.get(kind)
    if side and channels is not None:
        return f"float32[1,{channels},{side if channels <= 4 or kind == 'Conv1d' else '28,28'}]"
    if kind == "Linear" and hasattr(layer, "in_features"):
        return f"float32[1,{layer.in_features}]"
    if kind in ("Embedding", "EmbeddingBag"):
        return "int64[1,128]"
    if kind in ("LSTM", "GRU", "RNN") and hasattr(layer, "input_size"):
        return f"float32[{'1,32' if layer.batch_first else '32,1'},{layer.input_size}]"
    if kind in ("LSTMCell", "GRUCell", "RNNCell") and hasattr(layer, "input_size"):
        return f"float32[1,{layer.input_size}]"
    if kind in ("MultiheadAttention", "TransformerEncoderLayer"):
        return f"float32[1,32,{getattr(layer, 'embed_dim', None) or layer.self_attn.embed_dim}]"
    return None
