"""Run lowered files on arm64 arithmetic, under qemu: what a phone's processor answers, not how fast.

An int8 file is judged by what phones compute, and the desktop's kernels differ from theirs in rounding, in saturation and
in the operators that they fuse (pitfall Q-22). The aarch64 builds of the engines run here in one emulated process:

    if edgesdk.emulated.missing("executorch") is None:
        answers = edgesdk.emulated.run("executorch", path, signature, feeds)

Times under emulation say nothing about a device, so none are returned.
"""

from __future__ import annotations

from edgesdk.emulated._host import HostCpu, host_cpu
from edgesdk.emulated._place import CPU, CPUS, RUNTIMES, missing
from edgesdk.emulated._run import EmulatedRunner, describe, load, run

__all__ = ["CPU", "CPUS", "RUNTIMES", "EmulatedRunner", "HostCpu", "describe", "host_cpu", "load", "missing", "run"]
