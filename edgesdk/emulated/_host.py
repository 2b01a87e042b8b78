"""The CPU that judges where nothing is emulated, with the features that decide how it adds int8 products (pitfall Q-22)."""

from __future__ import annotations

import functools
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Those that decide which int8 kernels MLAS, XNNPACK, FBGEMM and QNNPACK pick.
_FLAGS = (
    "ssse3", "sse4_1", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8",
    "asimd", "asimddp", "i8mm", "sve", "sve2",
)  # fmt: skip


@dataclass(frozen=True)
class HostCpu:
    """This machine's processor.

    Attributes:
        machine: ``x86_64``, ``aarch64`` …
        name: what it calls itself; empty when it doesn't say.
        flags: the features that decide about int8 kernels; empty where the system lists none.
    """

    machine: str
    name: str
    flags: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "flags": list(self.flags)}


@functools.cache
def host_cpu() -> HostCpu:
    """The processor of this machine, with its flags, as every check of an int8 file records it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return read(platform.machine(), text)


def read(machine: str, cpuinfo: str) -> HostCpu:
    """From the machine's name and the text of ``/proc/cpuinfo``."""
    name = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    listed = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    words = set(listed[1].split()) if listed else set()
    flags = tuple(flag for flag in _FLAGS if flag in words)
    return HostCpu(machine, name[1].strip() if name else "", flags)
