"""``edgesdk doctor``: what is missing, and the command that installs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgesdk.cli import _options as opt
from edgesdk.cli._app import Common, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from edgesdk.cli._output import Output
    from edgesdk.doctor import Check

_MARKS = {"ok": ("ok", "green"), "missing": ("MISSING", "red"), "wrong": ("WRONG", "red"), "optional": ("not here", "")}


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Look at Python, libraries, helper programs, disk space and permissions, and name the command for what is missing.

    Leaves with 8 when something needed for the chosen targets (--target; all of them by default) is missing.
    """

    targets: opt.Target = None


def run(options: Options, out: Output) -> int:
    from edgesdk import doctor
    from edgesdk.errors import MissingToolError
    from edgesdk.targets import targets

    chosen = options.targets or list(targets())
    checks = doctor.examine(chosen, Path.cwd())
    failing = [check for check in checks if check.fails]
    document = {
        "schema": "edgesdk.doctor/1",
        "ok": not failing,
        "targets": chosen,
        "checks": [check.to_json() for check in checks],
    }
    brief = "\n".join(check.fix for check in failing) or "ok"
    out.answer(document, lambda console: _show(console, checks, chosen), brief)
    return MissingToolError.exit if failing else 0


def _show(console: Console, checks: Sequence[Check], chosen: Sequence[str]) -> None:
    from rich.text import Text

    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, colour = _MARKS[check.state]
        console.print(Text(f"{mark:<9}", style=colour), Text(f"{check.name:<{width}}  {check.found}"), sep="")
        if check.state != "ok":
            for text in (check.why, check.fix):
                console.print(Text(f"{'':<{width + 11}}{text}"))
    failing = [check.name for check in checks if check.fails]
    console.print()
    wanted = ", ".join(chosen)
    if failing:
        console.print(f"Not ready for {wanted}: {', '.join(failing)}.", style="bold red", markup=False)
    else:
        console.print(f"Ready for {wanted}.", style="bold green", markup=False)


COMMAND = verb(Options, run, "doctor")
