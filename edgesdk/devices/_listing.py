"""Which devices are there, and in what state: a phone that is plugged in is not yet a phone that answers."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edgesdk.errors import DeviceError, MissingToolError

_TIMEOUT_S = 20.0  # starting adb's server takes some seconds; a dead network device hangs it for longer

# adb's words (adb.cpp, connection_state_name) → what they mean and what to do.
_STATES: Mapping[str, tuple[str, str, str]] = {
    "device": ("ready", "", ""),
    "unauthorized": (
        "unauthorized",
        "The phone has not allowed this computer to debug it.",
        "Unlock the phone and accept 'Allow USB debugging'; if nothing is asked, replug it or run 'adb kill-server'.",
    ),
    "authorizing": (
        "unauthorized",
        "The phone is being asked for permission.",
        "Wait, and run 'edgesdk devices' again.",
    ),
    "offline": (
        "offline",
        "adb sees the phone, but it does not answer.",
        "Replug the cable, or run 'adb reconnect'; for a network device 'adb connect HOST:PORT'.",
    ),
    "connecting": ("offline", "The connection is being made.", "Wait, and run 'edgesdk devices' again."),
    "no permissions": (
        "no_permission",
        "This user may not open the USB device.",
        "Install the udev rules (Debian: apt-get install android-sdk-platform-tools-common), join the group plugdev, replug.",
    ),
    "recovery": ("not_booted", "The phone is in recovery mode.", "Reboot it: adb reboot."),
    "sideload": ("not_booted", "The phone is in sideload mode.", "Reboot it: adb reboot."),
    "rescue": ("not_booted", "The phone is in rescue mode.", "Reboot it: adb reboot."),
    "bootloader": ("not_booted", "The phone is in its boot loader.", "Reboot it: fastboot reboot."),
}


@dataclass(frozen=True)
class Listed:
    """One device.

    Attributes:
        id: what ``--device`` takes: ``host``, ``adb:SERIAL``.
        state: ``ready``, ``unauthorized``, ``offline``, ``no_permission``, ``not_booted`` or ``unknown``.
        why, fix: empty when ready.
    """

    id: str
    kind: str
    state: str
    name: str
    details: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "details": dict(self.details)}


@dataclass(frozen=True)
class Listing:
    """All devices, and why some kinds could not be looked for."""

    devices: tuple[Listed, ...]
    notes: tuple[str, ...] = ()


def list_devices() -> Listing:
    """This machine first, then what adb knows."""
    adb = shutil.which("adb")
    if adb is None:
        return Listing((host(),), ("Phones are not looked for: adb is not installed (Debian: apt-get install adb).",))
    phones, note = _phones(adb)
    return Listing((host(), *phones), (note,) if note else ())


def find_device(name: str) -> Listed:
    """The one device that ``name`` means, ready to be used: ``host``, ``adb`` (when there is one phone), ``adb:SERIAL``.

    Raises:
        MissingToolError: a phone is asked for, and adb is not installed.
        DeviceError: there is no such device, there are several, or it is not ready; the message tells the cases apart.
    """
    if name != "host" and shutil.which("adb") is None:
        raise MissingToolError(
            "adb_missing", "adb is not installed.", why="Phones are reached through Android's debug bridge.",
            fix="Install it (Debian: apt-get install adb), then run 'edgesdk devices'.",
        )  # fmt: skip
    listing = list_devices()
    phones = [d for d in listing.devices if d.kind == "adb"]
    fitting = phones if name == "adb" else [d for d in listing.devices if d.id == name]
    if not fitting:
        known = ", ".join(d.id for d in listing.devices)
        raise DeviceError(
            "no_device", f"There is no device '{name}'.", why=f"{' '.join(listing.notes)} Seen are: {known}.".strip(),
            fix="Plug the phone in with USB debugging on, and run 'edgesdk devices'.",
        )  # fmt: skip
    if len(fitting) > 1:
        raise DeviceError(
            "several_devices", f"'{name}' could be {len(fitting)} devices.", why="One must be chosen by its serial.",
            fix=f"Name one of {', '.join(d.id for d in fitting)}.",
        )  # fmt: skip
    if fitting[0].state != "ready":
        raise DeviceError(f"device_{fitting[0].state}", f"{name} is not ready.", why=fitting[0].why, fix=fitting[0].fix)
    return fitting[0]


def host() -> Listed:
    """This machine."""
    import psutil

    details = {
        "os": f"{platform.system()} {platform.release()}",
        "abi": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }
    return Listed("host", "host", "ready", platform.node() or "this machine", details)


def _phones(adb: str) -> tuple[tuple[Listed, ...], str]:
    try:
        done = subprocess.run(
            [adb, "devices", "-l"], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return (), f"adb did not answer within {_TIMEOUT_S:.0f} s: run 'adb kill-server' and try again."
    except OSError as exc:
        return (), f"adb can't be started: {exc.strerror or exc}."
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1]
        return (), f"adb failed: {last}"
    return parse_adb(done.stdout), ""


def parse_adb(text: str) -> tuple[Listed, ...]:
    """Read ``adb devices -l``: banner lines of a starting server come first, then a heading, then a device a line."""
    _, _, listed = text.partition("List of devices attached")
    return tuple(_phone(line) for line in listed.splitlines() if line.strip() and not line.startswith("*"))


def _phone(line: str) -> Listed:
    serial, _, rest = line.strip().partition(" ") if "\t" not in line else line.strip().partition("\t")
    rest = rest.strip()
    word = next((state for state in _STATES if rest == state or rest.startswith((state + " ", state + ";"))), "")
    facts = dict(part.split(":", 1) for part in rest.split() if ":" in part and not part.startswith("http"))
    state, why, fix = _STATES.get(
        word, ("unknown", f"adb calls its state '{rest}'.", "Look it up with 'adb devices -l'.")
    )
    details: dict[str, Any] = {k: facts[k] for k in ("model", "product", "device", "transport_id") if k in facts}
    # A serial with a port is a network device; adb writes emulators as emulator-PORT.
    details["connection"] = "network" if ":" in serial else "emulator" if serial.startswith("emulator-") else "usb"
    return Listed(f"adb:{serial}", "adb", state, facts.get("model", serial).replace("_", " "), details, why, fix)
