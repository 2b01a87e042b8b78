"""What a machine lacks for the job, and the exact command that supplies it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

State = Literal["ok", "missing", "wrong", "optional"]

# Members of the set that is built together; one out of step fails late, inside an export.
MATCHED = ("torch", "torchvision", "torchao", "executorch", "transformers")
_NEED_DISK = 2 * 10**9
"""Bytes that a run with a mid-sized model may take in the cache and beside the output."""
_LEAST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        state: ``ok``; ``missing`` or ``wrong`` when something needed is; ``optional`` when it could be had.
        needed: whether a chosen target can't do without it.
    """

    name: str
    state: State
    found: str
    why: str = ""
    fix: str = ""
    needed: bool = False

    @property
    def fails(self) -> bool:
        return self.needed and self.state in ("missing", "wrong")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def examine(targets: Sequence[str], folder: Path) -> tuple[Check, ...]:
    """Look at everything; ``targets`` decide what is needed, ``folder`` is where packages will be written.

    Raises:
        UsageError: there is no such target.
    """
    return (_python(), *_matched(), *_runtimes(targets), *_libraries(), *_places(folder), *_tools(), *_emulators())


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= _LEAST_PYTHON:
        return Check("python", "ok", version, needed=True)
    return Check(
        "python", "wrong", version, "edgesdk needs Python 3.11 or newer.", "Install Python 3.11 or newer.", True
    )


def version_of(distribution: str) -> str | None:
    """Installed version, read without importing."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements(distribution: str) -> Iterator[tuple[str, str, str]]:
    """(name, specifier, extra) of what a distribution says it needs; markers other than ``extra`` are left aside."""
    for line in importlib.metadata.requires(distribution) or ():
        text, _, marker = line.partition(";")
        found = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^()]*)\)?\s*$", text)
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)['"]""", marker)
        if found and (extra or not marker.strip()):
            yield found[1].lower().replace("_", "-"), found[2].strip(), extra[1] if extra else ""


def satisfies(version: str, specifier: str) -> bool:
    """Whether a release fits ``>=2.13,<2.17``; ``==2.15.*`` and local parts (``+cpu``) are understood."""
    have = _release(version)
    for clause in filter(None, (part.strip() for part in specifier.split(","))):
        found = re.match(r"(===|==|!=|~=|>=|<=|>|<)\s*([^\s]+)$", clause)
        if found and not _holds(have, found[1], found[2]):
            return False
    return True


def _release(text: str) -> tuple[int, ...]:
    digits = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, digits[0].split("."))) if digits else ()


def _holds(have: tuple[int, ...], sign: str, text: str) -> bool:
    want = _release(text)
    width = max(len(have), len(want))
    a, b = (value + (0,) * (width - len(value)) for value in (have, want))
    same = have[: len(want)] == want if text.endswith(".*") else a == b
    return {
        "===": same, "==": same, "!=": not same, ">=": a >= b, "<=": a <= b, ">": a > b, "<": a < b,
        "~=": a >= b and have[: len(want) - 1] == want[:-1],
    }[sign]  # fmt: skip


def _matched() -> Iterator[Check]:
    """Each member of the set against what the others, and edgesdk itself, say they work with."""
    for name in MATCHED:
        version = version_of(name)
        if version is None:
            continue  # its runtime's check says so
        wants = [(user, spec) for user in ("edgesdk", *MATCHED) for spec in _wishes(user, name)]
        broken = [(user, spec) for user, spec in wants if not satisfies(version, spec)]
        if not broken:
            yield Check(name, "ok", version, needed=True)
            continue
        user, spec = broken[0]
        yield Check(
            name, "wrong", version, f"{user} {version_of(user) or ''} works with {name}{spec}: another one fails after a long export.",
            f"Install a set that fits: pip install '{name}{spec}'", True,
        )  # fmt: skip


def _wishes(user: str, name: str) -> Iterable[str]:
    if version_of(user) is None:
        return
    for wanted, spec, extra in requirements(user):
        if wanted == name and spec and (not extra or user == "edgesdk"):
            yield spec


def _runtimes(chosen: Sequence[str]) -> Iterator[Check]:
    from edgesdk import targets
    from edgesdk.runtimes import runtimes

    needed = {runtime for name in chosen for runtime, _ in targets.find(name).variants}
    for runtime in runtimes().values():
        if runtime.name == "null":
            continue
        sentence, need = runtime.missing(), runtime.name in needed
        if sentence is None:
            yield Check(f"runtime {runtime.name}", "ok", runtime.version(), needed=need)
            continue
        why = f"{sentence} It is the engine of {', '.join(chosen)}." if need else sentence
        fix = f"pip install 'edgesdk[{runtime.name}]'"
        yield Check(f"runtime {runtime.name}", "missing" if need else "optional", "not installed", why, fix, need)
    if "executorch" in needed and runtimes()["executorch"].missing() is None:
        yield _flatc()


def _flatc() -> Check:
    """ExecuTorch's serialiser runs ``flatc``: the one in its wheel, or the one on the PATH."""
    name = "flatc.exe" if os.name == "nt" else "flatc"
    distribution = importlib.metadata.distribution("executorch")
    packed = Path(str(distribution.locate_file(f"executorch/data/bin/{name}")))
    found = str(packed) if os.access(packed, os.X_OK) else shutil.which("flatc")
    if found:
        return Check("flatc", "ok", found, needed=True)
    return Check(
        "flatc", "missing", "not found", "ExecuTorch writes its files with this helper; without it the export fails at its end.",
        "pip install --force-reinstall --no-deps executorch", True,
    )  # fmt: skip


_LIBRARIES = {
    "torchvision": ("vision", "names such as torchvision:mobilenet_v2"),
    "timm": ("vision", "names such as timm:vit_tiny_patch16_224"),
    "transformers": ("transformers", "Hugging Face folders and names"),
    "coremltools": ("coreml", "--backend coreml"),
    "pyarrow": ("data", ".parquet as calibration data"),
}


def _libraries() -> Iterator[Check]:
    for name, (extra, what) in _LIBRARIES.items():
        version = version_of(name)
        if version is None:
            yield Check(
                name, "optional", "not installed", f"It is needed for {what}.", f"pip install 'edgesdk[{extra}]'"
            )
        elif name not in MATCHED:
            yield Check(name, "ok", version)


def _places(folder: Path) -> Iterator[Check]:
    from edgesdk.cache import root

    for name, place, fix in (
        ("cache", root(), "Point EDGESDK_CACHE_DIR at a folder that you may write to, or make room there."),
        ("output", folder, "Choose another place with -o, or make room there."),
    ):
        nearest = next(path for path in (place, *place.absolute().parents) if path.exists())
        free = shutil.disk_usage(nearest).free
        room = f"{place}, {free / 1e9:.1f} GB free"
        if not _writable(nearest):
            yield Check(name, "wrong", str(place), f"{nearest} can't be written to.", fix, True)
        elif free < _NEED_DISK:
            yield Check(name, "wrong", room, "A run may need 2 GB.", fix, True)
        else:
            yield Check(name, "ok", room, needed=True)


def _writable(folder: Path) -> bool:
    """Tried for real: permission bits say little about read-only or full file systems."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


_TOOLS = {
    "adb": (
        "phones on this desk ('edgesdk devices')",
        "Debian: apt-get install adb; macOS: brew install android-platform-tools",
    ),
    "java": (
        "building the Android project here",
        "Debian: apt-get install default-jdk-headless; macOS: brew install openjdk",
    ),
}


def _tools() -> Iterator[Check]:
    for name, (what, fix) in _TOOLS.items():
        found = shutil.which(name)
        if found:
            yield Check(name, "ok", found)
        else:
            yield Check(name, "optional", "not found", f"It is needed for {what}.", fix)


def _emulators() -> Iterator[Check]:
    """Int8 files are judged on phones' arithmetic where the engines' arm64 builds can be run."""
    from edgesdk import emulated

    for runtime in emulated.RUNTIMES:
        sentence = emulated.missing(runtime)
        name = f"arm64 {runtime}"
        if sentence is None:
            yield Check(name, "ok", "emulated by qemu")
        else:
            yield Check(
                name, "optional", "not set up", f"Int8 files are judged on arm64 arithmetic with it. {sentence}",
                f"python -m edgesdk.emulated {runtime}",
            )  # fmt: skip
