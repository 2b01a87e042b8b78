"""edgesdk: one command takes a PyTorch model to a phone.

    import edgesdk
    package = edgesdk.package("model.pt2", target="android")
    session = edgesdk.load(package.bundle)
    session.run({"input": array})

Nothing heavy is imported here: each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from edgesdk._version import __version__ as __version__

_PUBLIC = {
    "DeviceError": "edgesdk.errors",
    "Dim": "edgesdk.artifacts",
    "EdgeBundle": "edgesdk.bundle",
    "EdgeError": "edgesdk.errors",
    "GateError": "edgesdk.errors",
    "InputError": "edgesdk.errors",
    "IntegrityError": "edgesdk.errors",
    "Manifest": "edgesdk.bundle",
    "MissingToolError": "edgesdk.errors",
    "Package": "edgesdk.artifacts",
    "PreprocessSpec": "edgesdk.preprocess",
    "Session": "edgesdk.session",
    "Signature": "edgesdk.artifacts",
    "TensorSpec": "edgesdk.artifacts",
    "UnsupportedError": "edgesdk.errors",
    "UsageError": "edgesdk.errors",
    "inspect": "edgesdk.api",
    "load": "edgesdk.session",
    "package": "edgesdk.api",
    "verify": "edgesdk.api",
}

__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'edgesdk' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
