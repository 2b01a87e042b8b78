from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edgesdk.artifacts import Lowered, Model
from edgesdk.runtimes._base import LowerConfig


def write(proto: Any, model: Model, config: LowerConfig, out: Path) -> Lowered:
    data = proto.SerializeToString(deterministic=True)
    temporary = out.with_name(out.name + ".part")
    temporary.write_bytes(data)
    os.replace(temporary, out)
    return Lowered("onnx", None, config.quantization, out, "full")
