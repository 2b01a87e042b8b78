"""Devices that could run a bundle: this machine, and phones that adb sees."""

from __future__ import annotations

from edgesdk.devices._listing import Listed, Listing, find_device, list_devices

__all__ = ["Listed", "Listing", "find_device", "list_devices"]
