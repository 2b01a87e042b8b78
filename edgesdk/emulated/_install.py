"""Set the emulated phone up: Debian's emulator and cross compiler, the engines' aarch64 wheels, and our runners.

Everything of ours goes into the user's cache folder, beside its place first and then renamed, so that a broken or a second
set-up leaves nothing half. What is there already costs nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from edgesdk.cache import locked, root
from edgesdk.emulated import _place as place
from edgesdk.errors import InputError, MissingToolError

COMPILER = "aarch64-linux-gnu-g++"
APT = "apt-get install -y --no-install-recommends qemu-user-static g++-aarch64-linux-gnu libc6-dev-arm64-cross"
# The newest manylinux that each engine is built for comes first; pip takes the best that it finds.
_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64", "manylinux_2_17_aarch64")
_TOOL_S, _DOWNLOAD_S = 900.0, 1800.0
_MOST_BYTES = 2 * 10**9  # of all that is unpacked from a wheel; the largest is 100 MB today

Say = Callable[[str], None]


def install(runtimes: Iterable[str], say: Say = lambda line: None) -> None:
    """Set up what is missing for these runtimes.

    Args:
        say: is told what is being done, a line at a time.

    Raises:
        UsageError: a runtime that can't be emulated.
        MissingToolError: a tool is missing that can't be had from here; the message holds the command.
    """
    wanted = [runtime for runtime in runtimes if place.missing(runtime) is not None]
    if not wanted:
        return
    if sys.platform != "linux":
        place.needed(wanted[0])
    for runtime in wanted:
        if place.version(runtime) is None:
            place.needed(runtime)
    with locked(root() / "emulated", "setup"):
        wanted = [runtime for runtime in wanted if place.missing(runtime) is not None]
        _system(wanted, say)
        for runtime in wanted:
            if not place.installed(runtime):
                _make(runtime, say)
                _remove_older(runtime)


# -- the system's part ------------------------------------------------------------------------------------------------


def _system(wanted: Sequence[str], say: Say) -> None:
    """The emulator and the arm64 C library; the compiler only when a runner must be built."""
    build = any(not place.installed(runtime) for runtime in wanted)
    if not _lacking(build):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise MissingToolError(
            "emulator_missing", f"{', '.join(_lacking(build))} must be installed first, which needs the administrator.",
            why="arm64 is emulated with qemu's user mode, and the runners are built with a cross compiler.",
            fix=f"Debian, Ubuntu: sudo {APT}" if shutil.which("apt-get") else
            f"Install the packages that your system has for them (Debian: {APT}), then run '{place.COMMAND}' again.",
        )  # fmt: skip
    say(f"installing {', '.join(_lacking(build))}")
    if not _apt(APT.split()):  # mostly lists that are absent or old
        _apt(["apt-get", "update", "-q"])
        _apt(APT.split())
    if lacking := _lacking(build):
        raise MissingToolError(
            "emulator_missing", f"{', '.join(lacking)} could not be installed.",
            why="apt-get failed; the lines above say at what.", fix=f"Try it by hand: {APT}",
        )  # fmt: skip


def _lacking(build: bool) -> list[str]:
    found = []
    if place.qemu() is None:
        found.append("qemu-user-static")
    if not (place.SYSROOT / "lib" / "ld-linux-aarch64.so.1").exists():
        found.append("libc6-dev-arm64-cross")
    if build and shutil.which(COMPILER) is None:
        found.append("g++-aarch64-linux-gnu")
    return found


def _apt(command: Sequence[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return _call(command, _TOOL_S, stdout=sys.stderr, stderr=None, env=environment).returncode == 0


def _call(command: Sequence[str], limit: float, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a tool; its output is kept unless ``more`` says otherwise.

    Raises:
        MissingToolError: it can't be started, or hangs.
    """
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    try:
        return subprocess.run(command, text=True, errors="replace", timeout=limit, check=False, **streams)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise MissingToolError(
            "tool_failed", f"{Path(command[0]).name} did not do its part of the set-up.", why=f"{exc}"[:300],
            fix=f"Run '{place.COMMAND}' again; what was done so far is kept.",
        ) from exc  # fmt: skip


# -- an engine --------------------------------------------------------------------------------------------------------


def _make(runtime: str, say: Say) -> None:
    """The folder of one engine: libraries from its wheel, the runner, and the emulated system's files."""
    made = place.engine(runtime)
    target = place.folder(runtime)
    with tempfile.TemporaryDirectory(prefix="setup-", dir=target.parent) as scratch:
        work, raw = Path(scratch) / "new", Path(scratch) / "raw"
        work.mkdir()
        say(f"fetching {made.package} {place.version(runtime)} for arm64")
        wheel = _download(made.package, str(place.version(runtime)), Path(scratch))
        _unpack(wheel, made, raw)
        _libraries(raw, made, work)
        say(f"building the runner of {runtime}")
        _build(made, raw, work)
        for cpu in place.CPUS:
            _system_files(work / "root" / cpu, cpu)
        files = {path.name: path.stat().st_size for path in sorted(work.iterdir()) if path.is_file()}
        document = {"package": made.package, "version": place.version(runtime), "files": files}
        place.stamp(work).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)  # one that isn't whole
        work.rename(target)


def _download(package: str, version: str, into: Path) -> Path:
    """The wheel, by pip and so by the user's own settings of indexes and proxies."""
    command = [
        sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--implementation=cp", f"--python-version={sys.version_info[0]}.{sys.version_info[1]}",
        *(f"--platform={name}" for name in _PLATFORMS), "--dest", str(into), f"{package}=={version}",
    ]  # fmt: skip
    done = _call(command, _DOWNLOAD_S)
    wheels = sorted(into.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    said = [line for line in done.stderr.splitlines() if line.strip()]
    no_pip = "No module named pip" in done.stderr
    raise MissingToolError(
        "download_failed", f"The arm64 wheel of {package} {version} could not be fetched.",
        why=f"pip says: {said[-1][:300] if said else 'nothing'}",
        fix="This Python has no pip: install it (python -m ensurepip)." if no_pip else
        "Check the connection and pip's settings; a version without an arm64 wheel can't be emulated.",
    )  # fmt: skip


def _unpack(wheel: Path, made: place.Engine, into: Path) -> None:
    """The headers and the libraries, nothing else; no name may lead out of the folder."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            prefixes = tuple(filter(None, (made.libraries, f"{made.include}/" if made.include else None)))
            members = [m for m in archive.infolist() if m.filename.startswith(prefixes) and not m.is_dir()]
            if sum(m.file_size for m in members) > _MOST_BYTES or any(".." in m.filename.split("/") for m in members):
                raise _bad_wheel(wheel, "It holds names or sizes that no such wheel has.")
            archive.extractall(into, members)
    except (zipfile.BadZipFile, OSError, EOFError) as exc:
        raise _bad_wheel(wheel, f"It can't be unpacked: {exc}.") from exc


def _libraries(raw: Path, made: place.Engine, work: Path) -> None:
    """Beside the runner, under the names that it asks for: the last part of a versioned name is dropped."""
    folder = (raw / made.libraries).parent
    for name in made.link:
        found = sorted(folder.glob(f"lib{name}.so*"))
        if not found:
            raise _bad_wheel(raw, f"It has no lib{name}.so.")
        shutil.move(found[0], work / f"lib{name}.so")
    for name in made.link:
        soname = _soname(work / f"lib{name}.so")
        if soname and soname != f"lib{name}.so":
            (work / f"lib{name}.so").rename(work / soname)


def _soname(library: Path) -> str | None:
    """The name under which the loader looks for it."""
    tool = COMPILER.replace("g++", "readelf")
    done = _call([tool, "-d", str(library)], _TOOL_S)
    for line in done.stdout.splitlines():
        if "(SONAME)" in line:
            return line.partition("[")[2].rstrip("]").rpartition("/")[2]
    return None


def _build(made: place.Engine, raw: Path, work: Path) -> None:
    include = (
        [raw / made.include, raw / made.include / "executorch/runtime/core/portable_type/c10"] if made.include else []
    )
    libraries = sorted(str(path) for path in work.iterdir())
    command = [
        COMPILER, "-std=c++17", "-O1", *made.flags, *(f"-I{path}" for path in include), str(place.NATIVE / made.source),
        "-o", str(work / "runner"), "-Wl,--no-as-needed", *libraries, "-Wl,-rpath,$ORIGIN",
    ]  # fmt: skip
    done = _call(command, _TOOL_S)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-1:]
        raise MissingToolError(
            "runner_not_built", f"The runner {made.source} could not be built.",
            why=f"{COMPILER} says: {' '.join(errors)[:600]}",
            fix=f"This release of edgesdk may not know {made.package}'s version yet: install one that 'edgesdk doctor' calls ok.",
        )  # fmt: skip


def _system_files(folder: Path, cpu: str) -> None:
    """What the guest sees instead of the host's: its C library and its processor's files."""
    folder.mkdir(parents=True)
    (folder / "lib").symlink_to(place.SYSROOT / "lib")
    for name, text in place.system_files(cpu).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _remove_older(runtime: str) -> None:
    """Set-ups of other versions, and what killed ones left."""
    current = place.folder(runtime)
    for other in current.parent.glob(f"{runtime}-*"):
        if other != current:
            shutil.rmtree(other, ignore_errors=True)
    for left in current.parent.glob("setup-*"):
        shutil.rmtree(left, ignore_errors=True)


def _bad_wheel(wheel: Path, why: str) -> InputError:
    return InputError(
        "bad_wheel", f"{wheel.name} isn't the wheel that was expected.", why=why,
        fix="Fetch it again; if it stays so, this release of edgesdk doesn't know that version yet.",
    )  # fmt: skip
