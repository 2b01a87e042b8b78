"""A local Maven repository with one AAR, deterministic to the byte.

Layout per the Maven repository format: ``GROUP/PATH/ARTIFACT/VERSION/ARTIFACT-VERSION.{aar,pom}`` and
``GROUP/PATH/ARTIFACT/maven-metadata.xml``, each with ``.md5 .sha1 .sha256 .sha512`` beside it.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgesdk.targets._render import render, write

if TYPE_CHECKING:
    from typing import Any

_EPOCH = (1980, 1, 1, 0, 0, 0)
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Coordinates:
    """``group:artifact:version``, the line an app engineer pastes."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass(frozen=True)
class Dependency:
    """One dependency of the POM; ``excludes`` are ``group:artifact`` pairs that must not come with it."""

    group: str
    artifact: str
    version: str
    excludes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def write_repository(
    root: Path, at: Coordinates, entries: Mapping[str, bytes | Path], values: Mapping[str, Any]
) -> Path:
    """Write the AAR, its POM and the metadata below ``root``; returns the AAR's path.

    ``values`` go to the templates: ``at``, ``facts`` (name, licence) and ``build`` (the dependencies).
    """
    home = root.joinpath(*at.group.split("."), at.artifact)
    folder = home / at.version
    folder.mkdir(parents=True, exist_ok=True)
    aar = folder / f"{at.artifact}-{at.version}.aar"
    write_zip(aar, entries)
    pom = aar.with_name(f"{at.artifact}-{at.version}.pom")
    write(pom, render("android/pom.xml.j2", **values))
    metadata = home / "maven-metadata.xml"
    write(metadata, render("android/maven-metadata.xml.j2", **values))
    for path in (aar, pom, metadata):
        _write_checksums(path)
    return aar


def write_zip(path: Path, entries: Mapping[str, bytes | Path]) -> None:
    """A ZIP with every entry STORED, sorted names and one fixed time: the same entries give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system, info.external_attr = 3, 0o100644 << 16
            content = entries[name]
            if isinstance(content, bytes):
                archive.writestr(info, content)
            else:
                _store(archive, info, content)


def _store(archive: zipfile.ZipFile, info: zipfile.ZipInfo, source: Path) -> None:
    """A file of any size, a chunk at a time. With the size known beforehand zipfile writes no data descriptor."""
    info.file_size = source.stat().st_size
    with source.open("rb") as reader, archive.open(info, "w") as writer:
        while chunk := reader.read(_CHUNK):
            writer.write(chunk)


def _write_checksums(path: Path) -> None:
    digests = {name: hashlib.new(name, usedforsecurity=False) for name in ("md5", "sha1", "sha256", "sha512")}
    with path.open("rb") as reader:
        while chunk := reader.read(_CHUNK):
            for digest in digests.values():
                digest.update(chunk)
    for name, digest in digests.items():
        write(path.with_name(f"{path.name}.{name}"), digest.hexdigest())
