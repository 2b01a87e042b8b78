"""The bundle ``.edge``: format ``edgesdk.bundle/1``. MUST and MAY are meant as in RFC 2119.

A bundle is a ZIP of at most 2^32 - 2 bytes that any ZIP reader can read and exactly one way to write.

1.  The first entry MUST be ``manifest.json`` (at most 16 MiB). All others MUST follow in the order of their names' bytes:
    the files of the manifest's table ``files``, and ``signature.json`` if the bundle is signed. Nothing else MAY be there.
2.  Entries lie one behind the other from offset 0, then the central directory in the same order, then the end record
    without comment. There MUST be no gap, no data descriptor, no ZIP64, no encryption, no compression (method 0).
3.  An entry is a local header, its name, one extra field, its bytes. The extra field is ``0xD935, length, alignment`` and
    then the fewest zeros with which the bytes begin on a multiple of ``alignment``: 16384 for the ``file`` and
    ``extra_files`` of a variant, 64 for all others. The directory has no extra fields.
4.  Header constants: version 20, made by Unix (3), flags 0, time 0, date 0x0021 (1980-01-01), attributes 0100644 << 16.
    CRC-32 and sizes of ``manifest.json`` and ``signature.json`` are their bytes' own, those of the rest the manifest's.
5.  Names MUST be 1 to 255 characters of ``A-Z a-z 0-9 _ . @ + -`` in parts divided by ``/``. A part MUST NOT be empty,
    start or end with a dot, or be a Windows device (``con``, ``nul.txt``, …). No two names MAY be equal but for case, and
    none MAY be the folder of another. At most 4096 files.
6.  JSON MUST be UTF-8 without BOM, at most 32 levels deep, with no key twice in one object, whole numbers within 64 bits,
    finite doubles, and no half of a surrogate pair. ``manifest.json`` MUST fit ``schemas/edgesdk.bundle.1.schema.json``.
7.  ``files`` MUST be sorted by name. The ``sha256`` and ``size`` of a variant MUST be those of its entry there. Every entry
    named anywhere MUST be in it. Paths inside a payload (ONNX external data) MUST lead to the variant's ``extra_files``.
8.  A golden tensor is raw, little-endian, in C order; its entry's size MUST be that of its dtype and shape. When there are
    golden calls, every variant that was run to verify it MUST have a tolerance for every output.
9.  ``signature.json`` is ``{"schema":"edgesdk.signature/1","algorithm":"ed25519","key_id":…,"public_key":…,"signature":…}``
    without spaces: Ed25519 (RFC 8032) over the bytes of ``manifest.json``, key and signature in padded base64, ``key_id``
    the SHA-256 of the key's 32 bytes in hex. No other form is valid, and no key of small order (order 1, 2, 4 or 8).
10. A reader MUST lay the bundle out from the manifest, compare every byte outside the payloads, check every payload that
    it hands out against SHA-256 and CRC-32, and refuse the whole bundle when anything differs. It MUST refuse a signature
    that does not hold even if nobody asked for one. When a key is pinned it MUST refuse an unsigned bundle and one signed
    by another key. It MUST refuse another major version of ``schema``, and MUST ignore fields that it doesn't know.
11. A writer MUST put nothing into a bundle that differs between two runs with the same inputs. It MAY add fields.
"""

from __future__ import annotations

from edgesdk.bundle._write import write
from edgesdk.bundle.archive import EdgeBundle
from edgesdk.bundle.manifest import Manifest

__all__ = ["EdgeBundle", "Manifest", "write"]
