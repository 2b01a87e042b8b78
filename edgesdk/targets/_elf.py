"""The few fields of an ELF file that decide whether Android loads it: for which machine, and how it is aligned."""

from __future__ import annotations

import struct
from dataclasses import dataclass

# e_machine values (ELF gABI) of the architectures that Android has ABIs for.
ABI_OF_MACHINE = {183: "arm64-v8a", 40: "armeabi-v7a", 62: "x86_64", 3: "x86", 243: "riscv64"}
# Pages of 16 KiB exist on 64-bit devices only.
ABIS_64 = frozenset({"arm64-v8a", "x86_64", "riscv64"})
PAGE = 16384

_LOAD = 1  # PT_LOAD
HEAD = 1 << 20
"""Bytes of a file that hold the header and, in every linker's output, the program headers."""


@dataclass(frozen=True)
class Elf:
    """``abi`` is None for a machine that Android doesn't know; ``align`` is the least p_align of the loaded segments."""

    abi: str | None
    machine: int
    align: int | None


def read(head: bytes) -> Elf | None:
    """Read the first bytes of a file; None when it is no ELF file, or one cut off or damaged in its headers."""
    if len(head) < 20 or head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
        return None
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    try:
        machine = struct.unpack_from(f"{order}H", head, 18)[0]
        start = struct.unpack_from(f"{order}{'Q' if wide else 'I'}", head, 32 if wide else 28)[0]
        size, number = struct.unpack_from(f"{order}HH", head, 54 if wide else 42)
        aligns = []
        for index in range(number):
            at = start + index * size
            if struct.unpack_from(f"{order}I", head, at)[0] == _LOAD:
                aligns.append(struct.unpack_from(f"{order}{'Q' if wide else 'I'}", head, at + (48 if wide else 28))[0])
    except (struct.error, OverflowError):  # an offset beyond any memory
        return None
    return Elf(ABI_OF_MACHINE.get(machine), machine, min(aligns) if aligns else None)
