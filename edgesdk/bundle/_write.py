"""Write ``.edge`` files. The format is specified in the docstring of :mod:`edgesdk.bundle`."""

from __future__ import annotations

import hashlib
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from edgesdk.bundle import _errors, _files, _layout, _rules, _zip, signing
from edgesdk.bundle.manifest import EMPTY_CRC, EMPTY_SHA256, MANIFEST, SIGNATURE, FilePart, Manifest, parse
from edgesdk.errors import InputError

_CHUNK = 1 << 20


def write(path: Path, manifest: Manifest, payloads: Mapping[str, Path | bytes], *, sign: Path | None = None) -> None:
    """Write a bundle: the same arguments give the same bytes.

    ``manifest.files`` and the variants' ``sha256`` and ``size`` are filled in from the payloads. Files are streamed and
    read once; the bundle appears under ``path`` whole or not at all.

    Args:
        payloads: every entry but ``manifest.json`` and ``signature.json``, as bytes or the file that holds them.
        sign: private key of ``edgesdk keys new``; None leaves the bundle unsigned.

    Raises:
        InputError: the manifest breaks a rule of the format, a payload or the key can't be read, the disk is full.
    """
    key = signing.load_private(sign) if sign else None
    sizes = {name: _size(payload) for name, payload in payloads.items()}
    draft = _filled(
        manifest, {n: FilePart(name=n, size=s, sha256=EMPTY_SHA256, crc32=EMPTY_CRC) for n, s in sizes.items()}
    )
    for problem in _rules.violations(draft):
        raise _errors.invalid(path.name, problem)
    length = len(_encoded(draft, path))
    layout = _zip.place(_layout.entries(draft, length, 0, (0, 0) if key else None))
    if layout.size > _zip.MAX_BUNDLE:
        raise _errors.invalid(path.name, f"the bundle would have {layout.size} bytes; the limit is {_zip.MAX_BUNDLE}")
    with _files.appearing(path, lasting=True) as file:
        _fill(file, draft, payloads, layout, key)


def _fill(
    file: IO[bytes],
    draft: Manifest,
    payloads: Mapping[str, Path | bytes],
    layout: _zip.Layout,
    key: signing.PrivateKey | None,
) -> None:
    """Payloads first, each to its place; then the manifest, whose length is known but whose hashes were not."""
    offsets = {p.entry.name: p.data for p in layout.placed}
    table = {}
    for part in draft.files:
        file.seek(offsets[part.name])
        table[part.name] = _copy(payloads[part.name], part, file)
    data = _filled(draft, table).to_bytes()
    signature = signing.sign(data, key) if key else None
    crc = zlib.crc32(signature) if signature else 0
    final = _zip.place(
        _layout.entries(
            _filled(draft, table), len(data), zlib.crc32(data), (len(signature), crc) if signature else None
        )
    )
    for offset, fixed, _ in final.fixed():
        file.seek(offset)
        file.write(fixed)
    file.seek(offsets[MANIFEST])
    file.write(data)
    if signature:
        file.seek(offsets[SIGNATURE])
        file.write(signature)


def _copy(payload: Path | bytes, part: FilePart, out: IO[bytes]) -> FilePart:
    sha, crc, size = hashlib.sha256(), 0, 0
    for chunk in _chunks(payload):
        sha.update(chunk)
        crc = zlib.crc32(chunk, crc)
        size += len(chunk)
        if size <= part.size:
            out.write(chunk)
    if size != part.size:
        raise InputError(
            "file_changed", f"{part.name} changed while it was being bundled.", why="Another program writes to it.",
            fix="Run it again when the other program is done.",
        )  # fmt: skip
    return FilePart(name=part.name, size=size, sha256=sha.hexdigest(), crc32=f"{crc:08x}")


def _chunks(payload: Path | bytes) -> Iterator[bytes]:
    if isinstance(payload, bytes):
        yield payload
        return
    try:
        with payload.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as exc:
        raise _unreadable(payload, exc) from exc


def _size(payload: Path | bytes) -> int:
    if isinstance(payload, bytes):
        return len(payload)
    try:
        info = payload.stat()
    except OSError as exc:
        raise _unreadable(payload, exc) from exc
    if not stat.S_ISREG(info.st_mode):
        raise InputError(
            "file_missing", f"{payload} is no file.", why="Only files go into a bundle.", fix="Check the path."
        )
    return info.st_size


def _unreadable(path: Path, cause: OSError) -> InputError:
    return InputError(
        "file_missing",
        f"{path} can't be read: {cause.strerror}.",
        why="It is missing or not readable.",
        fix="Check the path.",
    )


def _filled(manifest: Manifest, table: Mapping[str, FilePart]) -> Manifest:
    """The manifest with its file table, and the variants' hashes taken from it."""
    variants = tuple(
        v.model_copy(update={"sha256": table[v.file].sha256, "size": table[v.file].size}) if v.file in table else v
        for v in manifest.variants
    )
    return manifest.model_copy(update={"variants": variants, "files": tuple(table[n] for n in sorted(table))})


def _encoded(manifest: Manifest, path: Path) -> bytes:
    """The bytes, read back once: what a reader would refuse is never written."""
    try:
        data = manifest.to_bytes()
    except ValueError as exc:
        raise _errors.invalid(path.name, str(exc)) from exc
    parse(data, path.name)
    return data
