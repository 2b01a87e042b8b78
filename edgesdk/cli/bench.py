"""``edgesdk bench``: documented, and not in this version."""

from __future__ import annotations

from edgesdk.cli._later import later

COMMAND = later(
    "bench",
    "Measure a bundle on a device.",
    "'edgesdk verify BUNDLE' runs the bundle on this machine; measure on the phone with the engine's own benchmark.",
)
