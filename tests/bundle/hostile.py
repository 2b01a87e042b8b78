"""Bundles that must be refused, and the code each is refused with; shared with the Java and Swift readers.

    python tests/bundle/hostile.py FOLDER      writes NAME.edge for each, and expected.json

The ZIP writer here is written from the specification in ``edgesdk/bundle/__init__.py`` alone, so that it pins the format:
without edits it must give the bytes that ``edgesdk.bundle.write`` gives.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Json = dict[str, Any]
SEED = bytes(range(32))
MODEL = bytes(range(256)) * 80
FILES = {
    "model.pte": MODEL,
    "golden/0.in.bin": struct.pack("<6f", *range(6)),
    "golden/0.out.bin": struct.pack("<2f", 1, 2),
}


def plain_manifest() -> Json:
    """A small manifest with every kind of field, without the file table."""
    return {
        "schema": "edgesdk.bundle/1", "name": "hostile", "version": "1.0.0", "task": None,
        "signature": {
            "inputs": [{"name": "x", "dtype": "float32", "shape": ["1..8", 3], "symbols": {"0": "n"}}],
            "outputs": [{"name": "y", "dtype": "float32", "shape": ["1..8", 1], "symbols": {"0": "n"}}],
        },
        "variants": [
            {"id": "null-none", "runtime": "null", "quantization": "none", "file": "model.pte", "tolerances": {"y": 0.001}}
        ],
        "golden": [
            {
                "id": "g0", "sequence": 0, "step": 0,
                "inputs": [{"name": "x", "dtype": "float32", "shape": [2, 3], "file": "golden/0.in.bin"}],
                "outputs": [{"name": "y", "dtype": "float32", "shape": [2, 1], "file": "golden/0.out.bin"}],
            }
        ],
        "source": {"format": "exported_program", "sha256": None, "git_commit": None, "pickle": False},
    }  # fmt: skip


def with_table(manifest: Json, files: dict[str, bytes]) -> Json:
    """The manifest with the file table and the variants' hashes that belong to these files."""
    done = copy.deepcopy(manifest)
    for variant in done["variants"]:
        if variant["file"] in files:
            data = files[variant["file"]]
            variant.update(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    done["files"] = [
        {"name": n, "size": len(d), "sha256": hashlib.sha256(d).hexdigest(), "crc32": f"{zlib.crc32(d):08x}"}
        for n, d in sorted(files.items())
    ]
    return done


@dataclass
class Item:
    """One entry; ``local`` and ``central`` override header fields by name."""

    name: str
    data: bytes
    align: int = 64
    local: Json = field(default_factory=dict)
    central: Json = field(default_factory=dict)
    padding: bytes | None = None


_FIELDS = ("version", "flags", "method", "time", "date", "crc", "stored", "size")


def zip_of(items: list[Item], *, comment: bytes = b"", before: bytes = b"", after: bytes = b"") -> bytes:
    """A canonical ZIP of the items, but for what they override."""
    out, directory = bytearray(before), bytearray()
    for item in items:
        name = item.name.encode("utf-8")
        usual = dict(
            zip(_FIELDS, (20, 0, 0, 0, 0x21, zlib.crc32(item.data), len(item.data), len(item.data)), strict=True)
        )
        start = len(out)
        local = {**usual, **item.local}
        pad = -(start + 30 + len(name) + 6) % item.align
        extra = struct.pack("<3H", 0xD935, 2 + pad, item.align) + (item.padding or bytes(pad))
        out += (
            struct.pack("<4s5H3I2H", b"PK\3\4", *(local[f] for f in _FIELDS), len(name), len(extra))
            + name
            + extra
            + item.data
        )
        there = {**usual, "attributes": 0o100644 << 16, "offset": start, **item.central}
        directory += struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 0x0314, *(there[f] for f in _FIELDS), len(name), 0, 0, 0, 0, there["attributes"], there["offset"]
        ) + name  # fmt: skip
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, len(items), len(items), len(directory), len(out), len(comment))
    return bytes(out) + bytes(directory) + end + comment + after


def items_of(manifest: Json | bytes, files: dict[str, bytes], signature: bytes | None = None) -> list[Item]:
    raw = manifest if isinstance(manifest, bytes) else encode(manifest)
    try:
        document = json.loads(raw)
        mapped = {name for v in document["variants"] for name in (v["file"], *v.get("extra_files", ()))}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        mapped = set()
    rest = [Item(n, d, 16384 if n in mapped else 64) for n, d in files.items()]
    if signature is not None:
        rest.append(Item("signature.json", signature))
    return [Item("manifest.json", raw), *sorted(rest, key=lambda i: i.name)]


def encode(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def sign(manifest: bytes, seed: bytes = SEED) -> bytes:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = key.public_key().public_bytes_raw()
    return encode(
        {
            "schema": "edgesdk.signature/1", "algorithm": "ed25519", "key_id": hashlib.sha256(public).hexdigest(),
            "public_key": base64.b64encode(public).decode(), "signature": base64.b64encode(key.sign(manifest)).decode(),
        }
    )  # fmt: skip


def good(*, signed: bool = False) -> bytes:
    """A bundle that nothing is wrong with."""
    manifest = encode(with_table(plain_manifest(), FILES))
    return zip_of(items_of(manifest, FILES, sign(manifest) if signed else None))


@dataclass(frozen=True)
class Evil:
    """A bundle to refuse. ``codes``: one of them must be the error's code; the first is what Python says."""

    name: str
    data: bytes
    codes: tuple[str, ...]
    why: str


CORRUPT, LAYOUT, INVALID = ("bundle_corrupt",), ("bundle_layout", "bundle_corrupt"), ("manifest_invalid",)
HASH, SIGNATURE = ("hash_mismatch",), ("signature_invalid",)


def evil_bundles() -> list[Evil]:
    return [*_broken(), *_layouts(), *_names(), *_manifests(), *_payloads(), *_signatures()]


def _broken() -> list[Evil]:
    whole = good()
    return [
        Evil("empty", b"", CORRUPT, "no byte"),
        Evil("random", hashlib.shake_256(b"seed").digest(3000), CORRUPT, "noise"),
        Evil("html", b"<!DOCTYPE html><html><body>404</body></html>", CORRUPT, "an error page saved under the name"),
        Evil(
            "lfs_pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", CORRUPT, "a Git-LFS pointer"
        ),
        Evil("four_bytes", b"PK\3\4", CORRUPT, "the magic alone"),
        Evil("headless", whole[5:], CORRUPT, "the first bytes are gone"),
        Evil("cut_in_manifest", whole[:300], CORRUPT, "cut within the manifest"),
        Evil("cut_in_payload", whole[:20000], CORRUPT, "cut within a payload"),
        Evil("cut_in_directory", whole[:-30], CORRUPT, "cut within the directory"),
        Evil("no_directory", whole[: whole.index(b"PK\1\2")], CORRUPT, "no directory"),
        Evil("other_zip", _zipfile({"a.txt": b"hello"}, zipfile.ZIP_STORED), CORRUPT, "a ZIP of another kind"),
    ]


def _zipfile(entries: dict[str, bytes], method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def _layouts() -> list[Evil]:
    manifest = with_table(plain_manifest(), FILES)
    packed = {"manifest.json": encode(manifest), **dict(sorted(FILES.items()))}

    def edited(edit: Callable[[list[Item]], Any]) -> bytes:
        items = items_of(manifest, FILES)
        return zip_of(edit(items) or items)

    def local(index: int, **fields: Any) -> Callable[[list[Item]], None]:
        return lambda items: items[index].local.update(fields)

    def both(index: int, **fields: Any) -> Callable[[list[Item]], None]:
        return lambda items: (items[index].local.update(fields), items[index].central.update(fields))[0]

    def central(index: int, **fields: Any) -> Callable[[list[Item]], None]:
        return lambda items: items[index].central.update(fields)

    def set_padding(items: list[Item]) -> None:
        items[3].padding = b"\1" + bytes(_pad_of(items, 3) - 1)

    plain = zip_of(items_of(manifest, FILES))
    return [
        Evil("repacked", _zipfile(packed, zipfile.ZIP_STORED), LAYOUT, "packed again by another program"),
        Evil("deflated", _zipfile(packed, zipfile.ZIP_DEFLATED), LAYOUT, "compressed entries"),
        Evil("data_before", zip_of(items_of(manifest, FILES), before=b"#!/bin/sh\n"), CORRUPT, "a script in front"),
        Evil("data_after", plain + b"\0", LAYOUT, "a byte behind the end record"),
        Evil("two_archives", plain + plain, LAYOUT, "readers that look from the end see another archive"),
        Evil("comment", zip_of(items_of(manifest, FILES), comment=b"hi"), LAYOUT, "an archive comment"),
        Evil("encrypted", edited(both(3, flags=1)), LAYOUT, "the encryption flag"),
        Evil("streamed", edited(both(3, flags=8)), LAYOUT, "the flag of a data descriptor"),
        Evil("method", edited(both(3, method=8)), LAYOUT, "says it is deflated but is not"),
        Evil("method_of_manifest", edited(both(0, method=8)), LAYOUT, "the manifest says it is deflated"),
        Evil("time", edited(both(1, time=1)), LAYOUT, "another time"),
        Evil("crc_in_header", edited(both(3, crc=1)), LAYOUT, "a wrong CRC in both headers"),
        Evil("local_size", edited(local(3, size=1, stored=1)), LAYOUT, "sizes of the two headers differ"),
        Evil("huge_size", edited(both(3, size=0xFFFFFFFE, stored=0xFFFFFFFE)), LAYOUT, "claims 4 GiB"),
        Evil("zip64", edited(both(3, size=0xFFFFFFFF, stored=0xFFFFFFFF)), LAYOUT, "the mark of ZIP64"),
        Evil("overlap", edited(central(2, offset=0)), LAYOUT, "two directory records for one place"),
        Evil("symlink", edited(central(3, attributes=0o120777 << 16)), LAYOUT, "a symbolic link"),
        Evil("executable", edited(central(3, attributes=0o100755 << 16)), LAYOUT, "an executable file"),
        Evil("padding", edited(set_padding), LAYOUT, "something hidden in the padding"),
        Evil("unaligned", edited(lambda i: setattr(i[3], "align", 64)), LAYOUT, "the model is not on 16 KiB"),
        Evil("order", edited(lambda i: [i[0], i[2], i[1], i[3]]), LAYOUT, "entries are not sorted"),
        Evil("manifest_not_first", edited(lambda i: [i[1], i[0], *i[2:]]), CORRUPT, "the manifest is second"),
        Evil("missing_entry", edited(lambda i: i[:3]), LAYOUT, "the table names an entry that is not there"),
        Evil("extra_entry", edited(lambda i: [*i, Item("x.so", b"\x7fELF")]), LAYOUT, "an entry that no table names"),
        Evil("twice", edited(lambda i: [*i, i[3]]), LAYOUT, "an entry stands twice"),
        Evil("second_manifest", edited(lambda i: [*i, i[0]]), LAYOUT, "the manifest stands twice"),
    ]  # fmt: skip


def _pad_of(items: list[Item], index: int) -> int:
    archive = zipfile.ZipFile(io.BytesIO(zip_of(items)))
    start = archive.infolist()[index].header_offset
    return -(start + 30 + len(items[index].name) + 6) % items[index].align


def _names() -> list[Evil]:
    bad = {
        "parent": "../evil.pte", "inner_parent": "a/../../evil.pte", "absolute": "/etc/passwd", "drive": "C:/evil.pte",
        "backslash": "..\\evil.pte", "dot": "./model.pte", "double_slash": "a//b", "hidden": ".bashrc", "last_dot": "model.",
        "device": "con", "device_suffix": "a/NUL.txt", "control": "a\nb", "nul": "a\0.pte", "space": "a b", "folder": "a/",
        "not_ascii": "modèle.pte", "right_to_left": "a\u202egpj.pte", "too_long": "a" * 256, "no_name": "",
        "other_manifest": "Manifest.json", "listed_signature": "signature.json",
    }  # fmt: skip
    found = [
        Evil(f"name_{k}", _with_files({**FILES, n: b"x"}), INVALID, f"an entry called {n[:20]!r}")
        for k, n in bad.items()
    ]
    pairs = {"case": {"MODEL.PTE": b"x"}, "folder_and_file": {"model.pte/x": b"x"}}
    return found + [
        Evil(f"name_{k}", _with_files({**FILES, **more}), INVALID, "names that clash") for k, more in pairs.items()
    ]


def _with_files(files: dict[str, bytes]) -> bytes:
    return zip_of(items_of(with_table(plain_manifest(), files), files))


def _set(path: str, value: Any) -> bytes:
    """A bundle whose manifest has another value at a dotted path."""
    manifest = with_table(plain_manifest(), FILES)
    *way, last = path.split(".")
    place: Any = manifest
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[int(last) if isinstance(place, list) else last] = value
    return zip_of(items_of(manifest, FILES))


def _text(old: str, new: bytes) -> bytes:
    """A bundle whose manifest's text differs."""
    return zip_of(items_of(encode(with_table(plain_manifest(), FILES)).replace(old.encode(), new, 1), FILES))


def _manifests() -> list[Evil]:
    table = with_table(plain_manifest(), FILES)["files"]
    many = {f"f{i:04}": b"" for i in range(4097)}
    name = '"hostile"'
    return [
        Evil("json_none", zip_of(items_of(b"hello", {})), INVALID, "no JSON"),
        Evil("json_array", zip_of(items_of(b"[]", {})), INVALID, "no object"),
        Evil("json_empty", zip_of(items_of(b"", {})), INVALID, "no byte"),
        Evil("json_deep", _text(name, b"[" * 100_000 + b"]" * 100_000), INVALID, "a nesting bomb"),
        Evil("json_deep_unknown", _text("{", b'{"x":' + b"[" * 40 + b"]" * 40 + b","), INVALID, "deep in an unknown field"),
        Evil("json_twice", _text("{", b'{"name":"other",'), INVALID, "a key stands twice"),
        Evil("json_giant", _text("{", b'{"x":' + b"9" * 5000 + b","), INVALID, "a giant number"),
        Evil("json_infinite", _text("{", b'{"x":1e999,'), INVALID, "a number that no double holds"),
        Evil("json_nan", _text("{", b'{"x":NaN,'), INVALID, "NaN"),
        Evil("json_utf8", _text(name, b'"\xff\xfe"'), INVALID, "no UTF-8"),
        Evil("json_surrogate", _text(name, rb'"\ud800"'), INVALID, "half a surrogate pair"),
        Evil("json_bom", _text("{", b"\xef\xbb\xbf{"), INVALID, "a byte-order mark"),
        Evil("json_tail", zip_of(items_of(encode(with_table(plain_manifest(), FILES)) + b"{}", FILES)),
             INVALID, "two documents"),
        Evil("manifest_huge", zip_of([Item("manifest.json", b" " * (16 * 2**20 + 1))]), INVALID, "a manifest above 16 MiB"),
        Evil("schema_none", _text('"schema":"edgesdk.bundle/1",', b""), INVALID, "no schema"),
        Evil("schema_other", _set("schema", "edgesdk.bench/1"), INVALID, "another document of edgesdk"),
        Evil("schema_major", _set("schema", "edgesdk.bundle/2"), ("bundle_too_new",), "made by a later edgesdk"),
        Evil("field_missing", _text('"version":"1.0.0",', b""), INVALID, "a required field is missing"),
        Evil("field_text_number", _set("variants.0.size", str(len(MODEL))), INVALID, "a number as text"),
        Evil("field_control", _set("name", "a\u0007b"), INVALID, "a control character in a name"),
        Evil("no_variant", _set("variants", []), INVALID, "nothing to run"),
        Evil("variant_twice", _set("variants", [{**with_table(plain_manifest(), FILES)["variants"][0]}] * 2), INVALID, "one id twice"),
        Evil("variant_lost", _set("variants.0.file", "other.pte"), INVALID, "a file that is not in the table"),
        Evil("variant_outside", _set("variants.0.file", "../../etc/passwd"), INVALID, "a file outside the bundle"),
        Evil("variant_extra_outside", _set("variants.0.extra_files", ["/etc/passwd"]), INVALID, "an extra file outside"),
        Evil("variant_hash", _set("variants.0.sha256", "0" * 64), INVALID, "variant and table disagree"),
        Evil("size_negative", _set("files.0.size", -1), INVALID, "a negative size"),
        Evil("size_huge", _set("files.0.size", 2**62), INVALID, "a size beyond the file"),
        Evil("size_fraction", _set("files.0.size", 24.5), INVALID, "a size that is no whole number"),
        Evil("table_unsorted", _set("files", table[::-1]), INVALID, "the table is not sorted"),
        Evil("table_twice", _set("files", [table[0], *table]), INVALID, "an entry twice in the table"),
        Evil("table_many", _with_files({**FILES, **many}), INVALID, "more than 4096 files"),
        Evil("dim_zero", _set("signature.inputs.0.shape", [0, 3]), INVALID, "an input without elements"),
        Evil("dim_negative", _set("signature.inputs.0.shape", [-1, 3]), INVALID, "a negative dimension"),
        Evil("dim_reversed", _set("signature.inputs.0.shape", ["8..1", 3]), INVALID, "an empty range"),
        Evil("dim_overflow", _set("signature.inputs.0.shape", [2**31 - 1] * 3), INVALID, "a size beyond 64 bits"),
        Evil("dim_many", _set("signature.inputs.0.shape", [1] * 17), INVALID, "seventeen dimensions"),
        Evil("dtype", _set("signature.inputs.0.dtype", "float3"), INVALID, "an unknown dtype"),
        Evil("golden_size", _set("golden.0.inputs.0.shape", [2, 4]), INVALID, "a tensor beyond its file"),
        Evil("golden_overflow", _set("golden.0.inputs.0.shape", [2**31 - 1] * 8), INVALID, "an overflowing product"),
        Evil("golden_name", _set("golden.0.inputs.0.name", "z"), INVALID, "an input that the model doesn't have"),
        Evil("golden_outside", _set("golden.0.inputs.0.file", "../x"), INVALID, "a tensor outside the bundle"),
        Evil("no_tolerance", _text('"tolerances":{"y":0.001}', b'"verified":true'), INVALID, "golden vectors, no tolerance"),
    ]  # fmt: skip


def _payloads() -> list[Evil]:
    changed = {name: bytes([data[0] ^ 1]) + data[1:] for name, data in FILES.items()}
    manifest = with_table(plain_manifest(), FILES)

    def with_changed(name: str) -> bytes:
        items = items_of(manifest, {**FILES, name: changed[name]})
        crc = zlib.crc32(FILES[name])
        for item in items:
            if item.name == name:  # the headers keep what the manifest says
                item.local["crc"] = item.central["crc"] = crc
        return zip_of(items)

    wrong_crc = copy.deepcopy(manifest)
    wrong_crc["files"][-1]["crc32"] = "00000001"
    items = items_of(wrong_crc, FILES)
    items[-1].local["crc"] = items[-1].central["crc"] = 1
    return [
        *_external_data(),
        Evil("payload_model", with_changed("model.pte"), HASH, "one bit of the model"),
        Evil("payload_golden", with_changed("golden/0.out.bin"), HASH, "one bit of an expected output"),
        Evil("payload_crc", zip_of(items), HASH, "the right SHA-256 with a wrong CRC: other readers would refuse it"),
    ]


def _external_data() -> list[Evil]:
    """ONNX models whose weights lie elsewhere; field numbers are those of onnx.proto."""

    def message(*fields: tuple[int, bytes]) -> bytes:
        return b"".join(_varint(number << 3 | 2) + _varint(len(data)) + data for number, data in fields)

    def tensor(location: str) -> bytes:
        return message((8, b"w"), (13, message((1, b"location"), (2, location.encode()))))

    def onnx_bundle(model: bytes, file: str = "model.onnx") -> bytes:
        document = plain_manifest()
        document["variants"] = [{"id": "onnx-none", "runtime": "onnx", "quantization": "none", "file": file}]
        document["golden"] = []
        files = {file: model}
        return zip_of(items_of(with_table(document, files), files))

    plain = message((7, message((5, tensor("../../etc/passwd")))))
    branch = message((7, message((1, message((5, message((6, message((5, tensor("/etc/passwd")))))))))))
    function = message((25, message((7, message((5, message((10, tensor("x")))))))))
    sparse = message((7, message((15, message((1, tensor("C:/x")))))))
    graph = message((5, tensor("etc/passwd")))
    long_tag = _varint((7 << 3 | 2) + 2**32) + _varint(len(graph)) + graph  # protobuf cuts tags to 32 bits
    code = ("external_data_outside",)
    return [
        Evil("onnx_outside", onnx_bundle(plain), code, "weights outside the bundle"),
        Evil("onnx_outside_no_suffix", onnx_bundle(plain, "model.bin"), code, "the same under another name"),
        Evil("onnx_outside_in_branch", onnx_bundle(branch), code, "weights of a graph within an attribute"),
        Evil("onnx_outside_in_function", onnx_bundle(function), code, "weights of an attribute of a function's node"),
        Evil("onnx_outside_sparse", onnx_bundle(sparse), code, "values of a sparse initializer"),
        Evil("onnx_outside_as_ort", onnx_bundle(plain, "model.ort"), code, "a protobuf under the other format's name"),
        Evil("onnx_outside_long_tag", onnx_bundle(long_tag), code, "a tag of more than 32 bits hides the graph"),
        Evil("onnx_damaged", onnx_bundle(b"\x3a\xff\xff\x7flocation"), CORRUPT, "a protobuf that is cut short"),
    ]


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def _signatures() -> list[Evil]:
    manifest = encode(with_table(plain_manifest(), FILES))
    right = json.loads(sign(manifest))
    other = json.loads(sign(manifest, bytes(32)))

    def with_signature(data: bytes) -> bytes:
        return zip_of(items_of(manifest, FILES, data))

    def changed(**fields: str) -> bytes:
        return with_signature(encode({**right, **fields}))

    zero = base64.b64encode(bytes(64)).decode()
    # The neutral element as key and R, S = 0: the equation holds for every message unless small orders are refused.
    neutral = bytes([1]) + bytes(31)
    weak = {
        "key_id": hashlib.sha256(neutral).hexdigest(), "public_key": base64.b64encode(neutral).decode(),
        "signature": base64.b64encode(neutral + bytes(32)).decode(),
    }  # fmt: skip
    return [
        Evil("signature_other_manifest", with_signature(sign(manifest + b" ")), SIGNATURE, "over another manifest"),
        Evil("signature_zero", changed(signature=zero), SIGNATURE, "zeros"),
        Evil("signature_weak_key", changed(**weak), SIGNATURE, "a key of small order, which signs everything"),
        Evil("signature_key", changed(public_key=other["public_key"]), SIGNATURE, "the key of somebody else"),
        Evil("signature_key_id", changed(key_id=other["key_id"]), SIGNATURE, "the id of another key"),
        Evil("signature_algorithm", changed(algorithm="ed25518"), SIGNATURE, "an algorithm we don't know"),
        Evil("signature_order", with_signature(encode(dict(reversed(right.items())))), SIGNATURE, "fields in another order"),
        Evil("signature_base64", changed(signature=_last_bits(right["signature"])), SIGNATURE, "another base64 of the same"),
        Evil("signature_malleable", changed(signature=_plus_order(right["signature"])), SIGNATURE, "S above the group order"),
        Evil("signature_short", with_signature(b"{}"), ("bundle_layout", "bundle_corrupt", *SIGNATURE), "another length"),
        Evil("signature_no_json", with_signature(b"x" * len(sign(manifest))), SIGNATURE, "no JSON"),
    ]  # fmt: skip


def _last_bits(text: str) -> str:
    """The last character of two-padded base64 carries four bits that decoders ignore."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return text[:-3] + alphabet[alphabet.index(text[-3]) ^ 1] + "=="


def _plus_order(text: str) -> str:
    order = 2**252 + 27742317777372353535851937790883648493
    raw = base64.b64decode(text)
    return base64.b64encode(raw[:32] + (int.from_bytes(raw[32:], "little") + order).to_bytes(32, "little")).decode()


def dump(folder: Path) -> None:
    """Write every evil bundle, two good ones, and ``expected.json`` for the other languages' tests."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = [
        {"file": "good.edge", "codes": [], "why": "nothing is wrong"},
        {"file": "signed.edge", "codes": [], "why": "signed"},
    ]
    (folder / "good.edge").write_bytes(good())
    (folder / "signed.edge").write_bytes(good(signed=True))
    for evil in evil_bundles():
        (folder / f"{evil.name}.edge").write_bytes(evil.data)
        listed.append({"file": f"{evil.name}.edge", "codes": list(evil.codes), "why": evil.why})
    (folder / "expected.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    dump(Path(sys.argv[1]))
