"""``edgesdk devices``: what could run a bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from edgesdk.cli._app import Common, verb

if TYPE_CHECKING:
    from rich.console import Console

    from edgesdk.cli._output import Output
    from edgesdk.devices import Listing


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """List this machine and the phones that adb sees, with their state and what to do when one is not ready.

    With DEVICE, check that one: leaves with 7 when it is not there or not ready.
    """

    device: Annotated[
        str | None, typer.Argument(metavar="[DEVICE]", help="host, adb, or adb:SERIAL.", show_default=False)
    ] = None


def run(options: Options, out: Output) -> int:
    from edgesdk.devices import Listing, find_device, list_devices

    found = Listing((find_device(options.device),)) if options.device else list_devices()
    document = {
        "schema": "edgesdk.devices/1",
        "devices": [device.to_json() for device in found.devices],
        "notes": list(found.notes),
    }
    brief = "\n".join(device.id for device in found.devices if device.state == "ready")
    out.answer(document, lambda console: _show(console, found), brief)
    return 0


def _show(console: Console, found: Listing) -> None:
    from edgesdk.cli._output import table

    rows = [(d.id, d.state.replace("_", " "), d.name, f"{d.why} {d.fix}".strip()) for d in found.devices]
    console.print(table(("device", "state", "name", "what to do"), rows))
    for note in found.notes:
        console.print(f"\n{note}", markup=False)


COMMAND = verb(Options, run, "devices")
