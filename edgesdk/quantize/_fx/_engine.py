"""QNNPACK while something is quantized or run: the engine of the phone, whatever this machine would choose (Q-03)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

ENGINE = "qnnpack"


@contextmanager
def engine() -> Iterator[None]:
    """Make QNNPACK the engine of quantized operators; afterwards, also after an error, the one before is back.

    Raises:
        UnsupportedError: this build of PyTorch lacks it.
    """
    import torch

    from edgesdk.errors import UnsupportedError

    _hush()
    before = torch.backends.quantized.engine
    if before == ENGINE:
        yield
        return
    try:
        torch.backends.quantized.engine = ENGINE
    except RuntimeError as exc:
        raise UnsupportedError(
            "no_qnnpack", "This build of PyTorch has no QNNPACK, the engine of PyTorch Mobile's int8 operators.",
            why="It was compiled without it.", fix="Install PyTorch from PyPI, or use --runtime executorch or onnx.",
        ) from exc  # fmt: skip
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


@contextmanager
def packing() -> Iterator[None]:
    """While scripts are read or copied, which packs int8 weights for an engine: they shall answer as on a phone."""
    import torch

    if ENGINE not in torch.backends.quantized.supported_engines:
        yield
        return
    with engine():
        yield


@cache
def _hush() -> None:
    """torch warns once per process that quantized tensors will go; our own warning on TorchScript says so already."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)
