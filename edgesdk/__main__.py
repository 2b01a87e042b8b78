"""``edgesdk`` and ``python -m edgesdk``."""

from __future__ import annotations

import sys

from edgesdk.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
