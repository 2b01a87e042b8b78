"""Bytes of a ``.ptl``: save for the Lite interpreter, choose the bytecode version, leave out what isn't the model."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.runtimes._base import LowerConfig

if TYPE_CHECKING:
    import torch


def lower(model: Model, config: LowerConfig) -> bytes:
    from edgesdk.runtimes import _ts_build

    if model.program is not None:
        built = _ts_build.build(model.program)
        module = built.module
    else:
        module = model.script._c
    return save(module)


def save(module: Any) -> bytes:
    data: bytes = module._save_to_buffer_for_mobile({})
    return data


def write(data: bytes, out: Path) -> None:
    temporary = out.with_name(out.name + ".part")
    temporary.write_bytes(data)
    os.replace(temporary, out)


def open_lite(data: bytes, path: Path) -> Any:
    import torch

    return torch._C._load_for_lite_interpreter_from_buffer(data, None)
