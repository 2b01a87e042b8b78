"""Where the emulated phone lies, what belongs to it, and what is missing of it. Nothing is started or fetched here."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgesdk.cache import root
from edgesdk.errors import MissingToolError, UsageError, nearest

CPU = "cortex-a76"
"""The emulated processor: Armv8.2 with dot products and half floats, without i8mm and SVE. Its instruction set is that of
most phones in use (Cortex-A75/A76/A77/A78, X1: 2018 to 2021, and the little cores since); newer ones add i8mm, whose integer
products are exact as well, so only the sums of floats can come out in another order."""


@dataclass(frozen=True)
class Cpu:
    """A processor that can be emulated.

    Attributes:
        model: what ``-cpu`` of qemu takes.
        part: Arm's number for it (arch/arm64/include/asm/cputype.h); the engines choose kernels by it.
        features: as Linux lists them in /proc/cpuinfo.
    """

    model: str
    part: str
    features: str


_V8 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
_V82 = f"{_V8} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"
CPUS: Mapping[str, Cpu] = {
    "cortex-a53": Cpu(
        "cortex-a53", "0xd03", _V8
    ),  # the oldest that 64-bit phones have, and the cheapest ones until 2020
    CPU: Cpu("cortex-a76", "0xd0b", _V82),
    # qemu 7.2 knows no Cortex-X2 (2022): all that it can, without the matrix unit, with vectors of 128 bits as X2 has them.
    "cortex-x2": Cpu("max,sme=off,sve128=on", "0xd48", f"{_V82} sve sve2 i8mm bf16"),
}

SYSROOT = Path("/usr/aarch64-linux-gnu")  # where Debian, Ubuntu and Arch put the arm64 C library
NATIVE = Path(__file__).parent / "native"
COMMAND = "python -m edgesdk.emulated"
SETUP = f"Set it up with '{COMMAND}' (in edgesdk's source tree: tools/emulated)."
_STAMP = "setup.json"

# What the emulated system says of its processor, by path. cpuinfo, the library by which the engines choose their kernels,
# reads these files; the host's would describe an x86, from which it makes no sense (ONNX Runtime 1.32 crashes on them).
# 0x41 is Arm; caches and clock are those of a Snapdragon 855's big core.
_CPU_FOLDER = "sys/devices/system/cpu"
_TOPOLOGY = {
    **{f"{_CPU_FOLDER}/{name}": "0\n" for name in ("possible", "present", "online", "kernel_max")},
    f"{_CPU_FOLDER}/cpu0/topology/physical_package_id": "0\n",
    f"{_CPU_FOLDER}/cpu0/topology/cluster_cpus_list": "0\n",
    f"{_CPU_FOLDER}/cpu0/topology/core_siblings_list": "0\n",
    f"{_CPU_FOLDER}/cpu0/cache/index2/level": "2\n",
    f"{_CPU_FOLDER}/cpu0/cache/index2/size": "512K\n",
    f"{_CPU_FOLDER}/cpu0/cache/index2/shared_cpu_list": "0\n",
    f"{_CPU_FOLDER}/cpu0/cpufreq/cpuinfo_max_freq": "2840000\n",
    f"{_CPU_FOLDER}/cpu0/cpufreq/cpuinfo_min_freq": "825000\n",
}


def system_files(cpu: str) -> Mapping[str, str]:
    """What a system with one such processor says of it, by path."""
    told = (
        f"processor\t: 0\nBogoMIPS\t: 38.40\nFeatures\t: {CPUS[cpu].features}\nCPU implementer\t: 0x41\n"
        f"CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {CPUS[cpu].part}\nCPU revision\t: 0\n\n"
    )
    return {"proc/cpuinfo": told, **_TOPOLOGY}


def processor(cpu: str) -> Cpu:
    """
    Raises:
        UsageError: it isn't one that can be emulated.
    """
    if cpu not in CPUS:
        raise UsageError(
            "no_such_cpu", f"The processor '{cpu}' can't be emulated.", why=nearest(cpu, CPUS), fix=f"Take '{CPU}'."
        )
    return CPUS[cpu]


@dataclass(frozen=True)
class Engine:
    """How the aarch64 build of an engine is had from its wheel.

    Attributes:
        package: the distribution; the installed version's aarch64 wheel is taken.
        source: of the runner, in ``native/``.
        include: folder in the wheel with headers; None when it has none.
        libraries: prefix of the shared libraries in the wheel.
        link: libraries that the runner is linked with, by the name that the linker knows.
        flags: further words for the compiler.
    """

    package: str
    source: str
    include: str | None
    libraries: str
    link: tuple[str, ...]
    flags: tuple[str, ...] = ()


# The flags are those that executorch's own CMake package sets for programs that link with it (executorch-config.cmake).
ENGINES: Mapping[str, Engine] = {
    "executorch": Engine(
        "executorch", "runner_executorch.cpp", "executorch/include", "executorch/lib/libexecutorch",
        ("executorch", "executorch_kernels_optimized", "executorch_kernels_quantized", "executorch_backend_xnnpack",
         "executorch_threadpool"),
        ("-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_EVENT_TRACER_ENABLED", "-Wno-deprecated-declarations"),
    ),
    "onnx": Engine("onnxruntime", "runner_onnx.cpp", None, "onnxruntime/capi/libonnxruntime.so", ("onnxruntime",)),
}  # fmt: skip
RUNTIMES = tuple(ENGINES)


def engine(runtime: str) -> Engine:
    """How the runtime is emulated.

    Raises:
        UsageError: it isn't one that can be.
    """
    if runtime not in ENGINES:
        raise UsageError(
            "not_emulated", f"The runtime '{runtime}' can't be emulated.", why=nearest(runtime, ENGINES),
            fix="Judge its files on the host, or on a phone.",
        )  # fmt: skip
    return ENGINES[runtime]


def version(runtime: str) -> str | None:
    """The engine's version that is installed, and so the one to emulate: local parts such as ``+cpu`` left out."""
    try:
        return importlib.metadata.version(engine(runtime).package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def recipe(runtime: str) -> str:
    """Hash of everything of ours that shapes the runner: an older one isn't taken."""
    made = engine(runtime)
    digest = hashlib.sha256(repr((made, CPUS, _TOPOLOGY, str(SYSROOT))).encode())
    for name in ("wire.h", made.source):
        digest.update((NATIVE / name).read_bytes())
    return digest.hexdigest()[:16]


def folder(runtime: str) -> Path:
    """Of the runner, its libraries and ``root/CPU``, the emulated system's files."""
    return root().absolute() / "emulated" / f"{runtime}-{version(runtime)}-{recipe(runtime)}"


def stamp(place: Path) -> Path:
    """Written last: a folder without it isn't whole."""
    return place / _STAMP


def installed(runtime: str) -> bool:
    """Whether the runner of this version is there and whole."""
    place = folder(runtime)
    try:
        files = json.loads(stamp(place).read_text(encoding="utf-8"))["files"]
        return all((place / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def qemu() -> str | None:
    """The user-mode emulator."""
    return shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


def missing(runtime: str) -> str | None:
    """None when files of that runtime can be run, else a sentence that says what is missing and what supplies it.

    Raises:
        UsageError: it isn't a runtime that can be emulated.
    """
    made = engine(runtime)
    if sys.platform != "linux":
        return "arm64 is emulated on Linux only: qemu's user mode isn't made for this system."
    if version(runtime) is None:
        return f"{made.package} is not installed: pip install 'edgesdk[{runtime}]'"
    if qemu() is None:
        return f"qemu-aarch64 is not installed. {SETUP}"
    if not (SYSROOT / "lib" / "ld-linux-aarch64.so.1").exists():
        return f"The arm64 C library is not installed. {SETUP}"
    if not installed(runtime):
        return f"The arm64 build of {made.package} {version(runtime)} is not set up. {SETUP}"
    return None


def needed(runtime: str) -> None:
    """Raises:
    MissingToolError: something is missing.
    """
    said = missing(runtime)
    if said is not None:
        raise MissingToolError(
            "emulator_missing", "arm64 can't be emulated here.", why=said,
            fix=SETUP if SETUP in said else "Judge on the host, or on a phone.",
        )  # fmt: skip
