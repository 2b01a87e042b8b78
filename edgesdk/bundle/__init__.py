"""The bundle ``.edge``."""

from __future__ import annotations

from edgesdk.bundle.archive import EdgeBundle, write
from edgesdk.bundle.manifest import Manifest

__all__ = ["EdgeBundle", "Manifest", "write"]
