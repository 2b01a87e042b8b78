"""A-02: names that native libraries want of each other, on the smallest ELF files that have a table of symbols."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from edgesdk.targets import _elf, _symbols
from edgesdk.targets._lint import lint
from tests.targets.test_lint import archive

FACEBOOK = "_ZN8facebook3jni10initializeEP7_JavaVMONSt6__ndk18functionIFvvEEE"
OTHER_TOOLCHAIN = FACEBOOK.replace("__ndk1", "__1")


def library(
    needed: tuple[str, ...] = (), wanted: tuple[str, ...] = (), offered: tuple[str, ...] = (), *, wide: bool = True,
    weak: tuple[str, ...] = (),
) -> bytes:  # fmt: skip
    """An ELF file with one loaded segment and the sections that name its links."""
    strings, places = bytearray(b"\0"), {}
    for name in (*needed, *wanted, *offered, *weak):
        places[name] = len(strings)
        strings += name.encode() + b"\0"
    symbols = bytes(24 if wide else 16)
    for names, bind, section in ((wanted, 1, 0), (weak, 2, 0), (offered, 1, 3)):
        for name in names:
            fields = (places[name], bind << 4 | 2, 0, section, 0, 0)
            symbols += struct.pack("<IBBHQQ", *fields) if wide else struct.pack(
                "<IIIBBH", fields[0], 0, 0, *fields[1:4])  # fmt: skip
    word = "Q" if wide else "I"
    dynamic = b"".join(struct.pack(f"<{word}{word}", 1, places[name]) for name in needed) + bytes(16 if wide else 8)
    start, size, head = (64, 56, 64) if wide else (52, 32, 40)
    parts, at, table = [bytes(strings), symbols, dynamic], start + size, bytes(head)
    for kind, link, data in ((3, 0, parts[0]), (11, 1, parts[1]), (6, 1, parts[2])):
        table += struct.pack(f"<II{word * 4}II{word * 2}", 0, kind, 0, 0, at, len(data), link, 0, 8, 0)
        at += len(data)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    machine = 183 if wide else 40
    header = struct.pack(f"<HHI{word * 3}IHHHHHH", 3, machine, 1, 0, start, at, 0, start, size, 1, head, 4, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 8, 8, 16384) if wide else struct.pack(
        "<IIIIIIII", 1, 0, 0, 0, 8, 8, 5, 16384)  # fmt: skip
    return ident + header + load + b"".join(parts) + table


def findings(tmp_path: Path, name: str = "app.apk", **libraries: bytes) -> list[tuple[str, str]]:
    entries = {f"lib/arm64-v8a/lib{one}.so": data for one, data in libraries.items()}
    path = archive(tmp_path / name, {"AndroidManifest.xml": b"x", **entries})
    return [(finding.code, finding.message + " " + finding.fix) for finding in lint([path])]


def test_what_fits_together_has_no_findings(tmp_path: Path) -> None:
    engine = library(("libfbjni.so", "libc.so", "liblog.so"), (FACEBOOK,), weak=("_ZN5extra4weakEv",))
    assert findings(tmp_path, executorch=engine, fbjni=library(("libm.so",), ("malloc",), (FACEBOOK,))) == []


def test_pitfall_a_02_a_library_of_another_toolchain_is_named(tmp_path: Path) -> None:
    engine = library(("libfbjni.so", "libc.so"), (FACEBOOK,))
    ((code, text),) = findings(tmp_path, executorch=engine, fbjni=library(offered=(OTHER_TOOLCHAIN,)))
    assert code == "symbol_missing"
    assert text.startswith(
        f"libexecutorch.so (arm64-v8a) wants 1 C++ names that no library beside it offers, as {FACEBOOK}"
    )
    assert "Take the release of libfbjni.so that it was linked with" in text


def test_pitfall_a_02_a_library_that_is_not_there_is_named_with_its_dependency(tmp_path: Path) -> None:
    ((code, text),) = findings(tmp_path, executorch=library(("libfbjni.so", "libc.so"), (FACEBOOK,)))
    assert code == "library_missing"
    assert "needs libfbjni.so, which is not in app.apk" in text and "com.facebook.fbjni:fbjni" in text


def test_an_archive_that_is_packed_again_need_not_have_all(tmp_path: Path) -> None:
    engine = library(("libfbjni.so",), (FACEBOOK,))
    path = archive(tmp_path / "a.aar", {"classes.jar": b"x", "jni/arm64-v8a/libexecutorch.so": engine})
    assert lint([path]) == []


@pytest.mark.parametrize("wide", [True, False])
def test_links_of_both_word_sizes(wide: bool) -> None:
    links = _symbols.read(library(("liba.so", "libc.so"), ("_Z1fv", "puts"), ("_Z1gv", "h"), wide=wide))
    assert links == _symbols.Links(("liba.so", "libc.so"), frozenset({"_Z1fv"}), frozenset({"_Z1gv", "h"}))


def test_damaged_files_have_no_links() -> None:
    good = library(("liba.so",), ("_Z1fv",))
    for end in range(0, len(good), 3):
        _symbols.read(good[:end])
    for at in range(len(good)):
        damaged = good[:at] + b"\xff" + good[at + 1 :]
        _symbols.read(damaged)
        _elf.read(damaged)
    assert _symbols.read(good[: len(good) // 2]) == _symbols.Links()
