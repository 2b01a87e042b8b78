"""From a manifest to the entries of its archive, in file order."""

from __future__ import annotations

from edgesdk.bundle import _rules, _zip, signing
from edgesdk.bundle.manifest import MANIFEST, SIGNATURE, Manifest


def entries(manifest: Manifest, length: int, crc: int, signature: tuple[int, int] | None) -> list[_zip.Entry]:
    """``manifest.json`` first, then everything else by name. ``signature`` is its size and CRC; size 0 means the usual."""
    mapped = _rules.aligned(manifest)
    rest = [
        _zip.Entry(f.name, f.size, int(f.crc32, 16), _zip.PAGE if f.name in mapped else _zip.SMALL)
        for f in manifest.files
    ]
    if signature:
        rest.append(_zip.Entry(SIGNATURE, signature[0] or signing.SIGNATURE_SIZE, signature[1]))
    return [_zip.Entry(MANIFEST, length, crc), *sorted(rest, key=lambda e: e.name)]
