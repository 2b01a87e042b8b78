"""Devices as adb lists them; a stand-in ``adb`` on the PATH says what the real one does (adb 34)."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from edgesdk.devices import find_device, list_devices
from edgesdk.devices._listing import parse_adb
from edgesdk.errors import DeviceError, MissingToolError

LISTING = """\
* daemon not running; starting now at tcp:5037
* daemon started successfully
List of devices attached
8A1X0ABCD              device usb:1-4 product:redfin model:Pixel_5 device:redfin transport_id:1
R58M123                unauthorized usb:1-2 transport_id:2
emulator-5554          offline transport_id:3
192.168.1.20:5555      device product:a52q model:SM_A525F device:a52q transport_id:4
0123456789ABCDEF       no permissions (user in plugdev group; are your udev rules wrong?); see [http://developer.android.com/tools/device.html] usb:1-3 transport_id:5
FA7                    recovery transport_id:6
FA8                    a state of tomorrow

"""


def test_pitfall_b_05_states_are_told_apart() -> None:
    found = parse_adb(LISTING)
    assert [(d.id, d.state) for d in found] == [
        ("adb:8A1X0ABCD", "ready"), ("adb:R58M123", "unauthorized"), ("adb:emulator-5554", "offline"),
        ("adb:192.168.1.20:5555", "ready"), ("adb:0123456789ABCDEF", "no_permission"), ("adb:FA7", "not_booted"),
        ("adb:FA8", "unknown"),
    ]  # fmt: skip
    assert [d.details["connection"] for d in found] == ["usb", "usb", "emulator", "network", "usb", "usb", "usb"]
    assert (found[0].name, found[0].details["model"]) == ("Pixel 5", "Pixel_5")


def test_pitfall_b_05_whoever_is_not_ready_gets_a_remedy() -> None:
    for device in parse_adb(LISTING):
        assert bool(device.why and device.fix) is (device.state != "ready"), device.id
    assert "Allow USB debugging" in parse_adb(LISTING)[1].fix


def test_tabs_of_the_short_listing_are_read_too() -> None:
    (device,) = parse_adb("List of devices attached\nR58M123\tunauthorized\n")
    assert (device.id, device.state) == ("adb:R58M123", "unauthorized")


def stand_in(folder: Path, script: str) -> None:
    adb = folder / "adb"
    adb.write_text(f"#!/bin/sh\n{script}\n")
    adb.chmod(adb.stat().st_mode | stat.S_IXUSR)


def test_the_host_comes_first_then_the_phones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "listing").write_text(LISTING)
    stand_in(tmp_path, f'[ "$*" = "devices -l" ] && cat {tmp_path}/listing')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    listing = list_devices()
    assert listing.devices[0].id == "host"
    assert listing.devices[0].state == "ready"
    assert len(listing.devices) == 8
    assert listing.notes == ()


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("echo 'error: cannot connect to daemon' >&2; exit 1", "adb failed: error: cannot connect to daemon"),
        ("exec sleep 60", "adb did not answer within"),
    ],
)
def test_an_adb_that_fails_or_hangs_is_a_note(
    script: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("edgesdk.devices._listing._TIMEOUT_S", 1.0)
    listing = list_devices()
    assert [device.id for device in listing.devices] == ["host"]
    assert note in listing.notes[0]


def test_without_adb_the_command_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install adb" in list_devices().notes[0]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("adb:R58M123", "device_unauthorized"),
        ("adb:emulator-5554", "device_offline"),
        ("adb:0123456789ABCDEF", "device_no_permission"),
        ("adb:FA7", "device_not_booted"),
        ("adb:nobody", "no_device"),
        ("adb", "several_devices"),
    ],
)
def test_pitfall_b_05_a_device_that_can_not_be_used_leaves_with_7(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str
) -> None:
    (tmp_path / "listing").write_text(LISTING)
    stand_in(tmp_path, f"cat {tmp_path}/listing")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(DeviceError) as caught:
        find_device(name)
    assert (caught.value.code, caught.value.exit) == (code, 7)
    assert caught.value.why and caught.value.fix


def test_a_ready_device_is_found_and_adb_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "listing").write_text(LISTING)
    stand_in(tmp_path, f"cat {tmp_path}/listing")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_device("adb:8A1X0ABCD").name == "Pixel 5"
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert find_device("host").state == "ready"
    with pytest.raises(MissingToolError, match="adb is not installed"):
        find_device("adb")
