"""``edgesdk compare``: documented, and not in this version."""

from __future__ import annotations

from edgesdk.cli._later import later

COMMAND = later(
    "compare",
    "Compare two measurements and gate on the ratio.",
    "Compare sizes and fidelity with 'edgesdk report A B -o report.html'.",
)
