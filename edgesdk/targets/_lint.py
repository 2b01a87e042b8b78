"""Reads what an app build made (APK, AAB, AAR, ZIP, XCFramework) and says what will fail on a phone or in the store.

    findings = lint([Path("app.apk")], abis=("arm64-v8a", "x86_64"))

Checked: models that the build compressed (P-03), native libraries that devices with 16 KiB pages refuse (P-04), copies of
one library that differ (P-05), libraries in the folder of another ABI and ABIs that are missing (P-06), names that one
library wants of another of another build (A-02), frameworks without a slice for the device or the simulator (X-03).
"""

from __future__ import annotations

import hashlib
import plistlib
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from edgesdk.errors import InputError
from edgesdk.targets import _elf, _symbols
from edgesdk.targets.android import NO_COMPRESS

Severity = Literal["error", "warning"]
Kind = Literal["apk", "aab", "aar", "zip"]

_LIBRARY = re.compile(r"(?:^|/)(?:lib|libs|jni)/(?P<abi>[^/]+)/(?P<name>[^/]+\.so)$")
_ZIP64_OR_NAME = 30  # bytes of a ZIP local header before the name


@dataclass(frozen=True)
class Finding:
    """One fault: ``code`` is stable, ``archive`` and ``entry`` say where, ``message`` what, ``fix`` what to do."""

    code: str
    severity: Severity
    archive: str
    entry: str
    message: str
    fix: str


@dataclass(frozen=True)
class _Library:
    """One ``.so`` inside one archive. ``abi`` is its folder's name, ``offset`` where its bytes begin in the archive."""

    archive: Path
    entry: str
    abi: str
    name: str
    stored: bool
    offset: int
    elf: _elf.Elf | None
    links: _symbols.Links
    sha256: str


def lint(paths: Sequence[Path], abis: Sequence[str] = ()) -> list[Finding]:
    """Findings over all archives, in their order; an empty list is good news.

    Args:
        paths: archives of one app build. Their order is the order in which Gradle sees them: with ``pickFirsts`` the first
            copy of a library wins.
        abis: ABIs that must be there (the bundle manifest's); empty asks for none.

    Raises:
        InputError: a path is missing or neither a ZIP archive nor an XCFramework.
    """
    findings: list[Finding] = []
    libraries: list[_Library] = []
    for path in paths:
        if path.suffix == ".xcframework" and path.is_dir():
            findings += _framework(path)
            continue
        with _opened(path) as archive:
            kind = _kind(path, archive)
            findings += _models(path, archive, kind)
            found = list(_libraries(path, archive))
        findings += [fault for library in found for fault in _library(library, kind)]
        findings += _coverage(path, found, abis, kind)
        findings += _linked(found) if kind == "apk" else ()
        libraries += found
    return [*findings, *_copies(libraries)]


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as exc:
        raise InputError(
            "archive_unreadable",
            f"'{path}' can't be read as an archive.",
            why=str(exc),
            fix="Give an .apk, .aab, .aar or .zip that a build wrote, or an .xcframework folder.",
        ) from exc


def _kind(path: Path, archive: zipfile.ZipFile) -> Kind:
    names = set(archive.namelist())
    if "BundleConfig.pb" in names:
        return "aab"
    if "classes.jar" in names or path.suffix == ".aar":
        return "aar"
    return "apk" if "AndroidManifest.xml" in names or path.suffix == ".apk" else "zip"


def _models(path: Path, archive: zipfile.ZipFile, kind: Kind) -> Iterator[Finding]:
    """P-03. An AAR or AAB is packed again by the app's build, so only what is installed counts; an AAR is a warning."""
    if kind == "aab":
        return
    for info in archive.infolist():
        suffix = info.filename.rpartition(".")[2].lower()
        if suffix not in NO_COMPRESS:
            continue
        if info.compress_type != zipfile.ZIP_STORED:
            yield Finding(
                "model_compressed",
                "warning" if kind == "aar" else "error",
                path.name,
                info.filename,
                f"The build compressed {info.filename}: it can't be mapped and is copied at every start.",
                f'Add to the app\'s build.gradle.kts: android {{ androidResources {{ noCompress += "{suffix}" }} }}',
            )
        if suffix == "ptl" or (suffix == "edge" and _holds_ptl(archive, info)):
            yield Finding(
                "lite_library_pages",
                "warning",
                path.name,
                info.filename,
                f"{info.filename} holds a TorchScript Lite model; the last published PyTorch Mobile libraries have 4 KiB "
                "segments, which devices with 16 KiB pages and Google Play refuse.",
                "Package the model for ExecuTorch or ONNX Runtime: --runtime executorch",
            )


def _holds_ptl(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    try:
        with archive.open(info) as stream, zipfile.ZipFile(stream) as bundle:
            return any(name.endswith(".ptl") for name in bundle.namelist())
    except zipfile.BadZipFile:
        return False


def _libraries(path: Path, archive: zipfile.ZipFile) -> Iterator[_Library]:
    for info in archive.infolist():
        match = _LIBRARY.search(info.filename)
        if not match or info.filename.startswith("prefab/"):  # prefab's copies are linked against, never installed
            continue
        with archive.open(info) as stream:
            data = stream.read()
        yield _Library(
            path,
            info.filename,
            match["abi"],
            match["name"],
            info.compress_type == zipfile.ZIP_STORED,
            _data_offset(archive, info),
            _elf.read(data[: _elf.HEAD]),
            _symbols.read(data),
            hashlib.sha256(data).hexdigest(),
        )


def _data_offset(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Where the entry's bytes begin: its local header has its own name and extra lengths (zipalign pads the extra)."""
    stream = archive.fp
    if stream is None:
        raise ValueError("the archive is closed")
    back = stream.tell()
    stream.seek(info.header_offset)
    header = _exactly(stream, _ZIP64_OR_NAME)
    stream.seek(back)
    return (
        info.header_offset
        + _ZIP64_OR_NAME
        + int.from_bytes(header[26:28], "little")
        + int.from_bytes(header[28:30], "little")
    )


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise InputError(
            "archive_unreadable",
            "An archive ends inside an entry's header.",
            why="The file was cut off or changed after it was built.",
            fix="Build or download it again.",
        )
    return data


def _library(library: _Library, kind: Kind) -> Iterator[Finding]:
    """P-04 and P-06 for one library."""
    elf, where = library.elf, (library.archive.name, library.entry)
    if elf is None:
        yield Finding(
            "not_a_library", "error", *where, f"{library.entry} is no ELF file: the phone can't load it.",
            "Build or download the library again; look for a Git-LFS pointer or an HTML page in its place.",
        )  # fmt: skip
        return
    if elf.abi != library.abi:
        yield Finding(
            "wrong_abi", "error", *where,
            f"{library.entry} is built for {elf.abi or f'ELF machine {elf.machine}'} and lies in the folder of {library.abi}.",
            f"Move it to {library.entry.rsplit('/', 2)[0]}/{elf.abi or '…'}/, or leave it out of the build.",
        )  # fmt: skip
    if elf.abi not in _elf.ABIS_64:
        return
    if elf.align is not None and elf.align < _elf.PAGE:
        yield Finding(
            "segments_4k", "error", *where,
            f"{library.name} ({library.abi}) has segments aligned to {elf.align} bytes; devices with 16 KiB pages and Google "
            "Play refuse it.",
            "Take a newer release of the library, or link it with -Wl,-z,max-page-size=16384.",
        )  # fmt: skip
    if kind == "apk" and library.stored and library.offset % _elf.PAGE:
        yield Finding(
            "zip_unaligned", "error", *where,
            f"{library.entry} is stored uncompressed at offset {library.offset}, not on a 16 KiB boundary.",
            "Build with Android Gradle Plugin 8.5.1 or later, or run: zipalign -P 16 -f 4 IN.apk OUT.apk",
        )  # fmt: skip


def _coverage(path: Path, libraries: Sequence[_Library], wanted: Sequence[str], kind: Kind) -> Iterator[Finding]:
    """P-06: an ABI that was promised or begun, but lacks libraries that another has."""
    if not libraries:
        return
    by_abi: dict[str, set[str]] = {}
    for library in libraries:
        by_abi.setdefault(library.abi, set()).add(library.name)
    every = set().union(*by_abi.values())
    for abi in dict.fromkeys([*wanted, *by_abi]):
        lacking = sorted(every - by_abi.get(abi, set()))
        # Without a promise an archive may leave an ABI out; one that has some of the libraries needs all.
        if lacking and (abi in by_abi or kind != "zip"):
            yield Finding(
                "abi_incomplete", "error" if abi in wanted else "warning", path.name, abi,
                f"For {abi} there is no {', '.join(lacking)}; {', '.join(sorted(a for a in by_abi if a != abi))} has it.",
                f'Add the library for {abi}, or leave the ABI out: ndk {{ abiFilters -= "{abi}" }}',
            )  # fmt: skip


def _linked(libraries: Sequence[_Library]) -> Iterator[Finding]:
    """A-02: what an app's libraries need of each other. Only an APK has all of them."""
    for library in libraries:
        beside = [one for one in libraries if one.abi == library.abi]
        names = {one.name for one in beside} | _symbols.SYSTEM
        where = (library.archive.name, library.entry)
        lacking = [name for name in library.links.needed if name not in names]
        if lacking:
            yield Finding(
                "library_missing", "error", *where,
                f"{library.name} ({library.abi}) needs {', '.join(lacking)}, which is not in {library.archive.name}: it won't load.",
                "Add the dependency that brings it; for libfbjni.so: implementation(\"com.facebook.fbjni:fbjni:VERSION\")",
            )  # fmt: skip
            continue
        unknown = sorted(library.links.wanted.difference(*(one.links.offered for one in beside)))
        if unknown:
            yield Finding(
                "symbol_missing", "error", *where,
                f"{library.name} ({library.abi}) wants {len(unknown)} C++ names that no library beside it offers, as {unknown[0]}: "
                "it won't load.",
                "Take the release of "
                + (", ".join(name for name in library.links.needed if name not in _symbols.SYSTEM) or "the other libraries")
                + " that it was linked with: another toolchain or release names things in another way.",
            )  # fmt: skip


def _copies(libraries: Sequence[_Library]) -> Iterator[Finding]:
    """P-05: one file name, one ABI, different bytes."""
    groups: dict[tuple[str, str], list[_Library]] = {}
    for library in libraries:
        groups.setdefault((library.abi, library.name), []).append(library)
    for (abi, name), group in groups.items():
        if len({library.sha256 for library in group}) < 2:
            continue
        first, others = group[0], [library for library in group[1:] if library.sha256 != group[0].sha256]
        told = ", ".join(dict.fromkeys(library.archive.name for library in others))
        yield Finding(
            "library_copies_differ", "error", first.archive.name, first.entry,
            f"{name} for {abi} is in {first.archive.name} and, with other bytes, in {told}. With pickFirsts the copy of "
            f"{first.archive.name} wins, for all of them.",
            "Put the newest first and write: "
            f'android {{ packaging {{ jniLibs {{ pickFirsts += "lib/{abi}/{name}" }} }} }}, or exclude the older dependency.',
        )  # fmt: skip


def _framework(path: Path) -> Iterator[Finding]:
    """X-03: does the framework have a slice for devices and one for the simulator on Apple-silicon Macs?"""
    try:
        with (path / "Info.plist").open("rb") as stream:
            plist: Mapping[str, object] = plistlib.load(stream)
    except (OSError, plistlib.InvalidFileException) as exc:
        raise InputError(
            "archive_unreadable",
            f"'{path}' has no readable Info.plist.",
            why=str(exc),
            fix="Give the .xcframework folder as it was downloaded.",
        ) from exc
    slices = plist.get("AvailableLibraries")
    have = {
        (part.get("SupportedPlatformVariant", "device"), arch)
        for part in (slices if isinstance(slices, list) else [])
        if part.get("SupportedPlatform") == "ios"
        for arch in part.get("SupportedArchitectures", ())
    }
    needed = (("device", "an iPhone or iPad"), ("simulator", "the simulator on an Apple-silicon Mac"))
    for variant, word in needed:
        if (variant, "arm64") not in have:
            yield Finding(
                "slice_missing", "error", path.name, f"ios-arm64{'-simulator' if variant == 'simulator' else ''}",
                f"{path.name} has no slice for {word}: an app with it does not link there.",
                "Take a release of the framework that has it; LibTorch-Lite has none, ExecuTorch has.",
            )  # fmt: skip
