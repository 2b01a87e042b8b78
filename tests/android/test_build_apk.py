"""Real APKs, built and looked at without an Android SDK."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from edgesdk.targets._lint import lint

ABI = "arm64-v8a"


@pytest.fixture(scope="module")
def apk(tool: Any, emitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("apk")
    code = tool.main(["sample", "--bundle", str(emitted / "demo.edge"), "--abi", ABI, "--out", str(out)])
    assert code == 0
    return out / "sample.apk"


@pytest.mark.slow
def test_the_sample_is_a_signed_apk_that_android_tools_accept(tool: Any, apk: Path, emitted: Path) -> None:
    # main() has run aapt, apksigner, zipalign, dexdump and the linter; a fault would have been an exit code.
    with zipfile.ZipFile(apk) as archive:
        assert archive.testzip() is None
        assert archive.read("assets/demo.edge") == (emitted / "demo.edge").read_bytes()
        libraries = [info for info in archive.infolist() if info.filename.endswith(".so")]
        assert {info.filename for info in libraries} == {
            f"lib/{ABI}/libexecutorch.so",
            f"lib/{ABI}/libfbjni.so",
            f"lib/{ABI}/libc++_shared.so",
        }
        for info in [*libraries, archive.getinfo("assets/demo.edge")]:
            assert info.compress_type == zipfile.ZIP_STORED, info.filename
        assert archive.getinfo("classes.dex").file_size < 300_000, "the shrinker left more than the app needs"
    told = tool.table(apk)
    assert f"lib/{ABI}/libexecutorch.so" in told
    assert f"{apk.stat().st_size:,}" in told


@pytest.mark.slow
def test_a_debug_build_of_the_bench_app_says_that_it_is_one(tool: Any, emitted: Path, tmp_path: Path) -> None:
    options = ["--bundle", str(emitted / "demo.edge"), "--abi", ABI, "--debuggable", "--out", str(tmp_path)]
    assert tool.main(["bench", *options]) == 0
    badging = tool.run("aapt", "dump", "badging", tmp_path / "bench-debug.apk")
    assert "application-debuggable" in badging and "package: name='dev.edgesdk.bench'" in badging
    with zipfile.ZipFile(tmp_path / "bench-debug.apk") as archive:
        assert archive.getinfo("classes.dex").file_size > 300_000, "a debug build isn't shrunk"


@pytest.mark.slow
def test_pitfall_p_04_misaligned_libraries_are_found(apk: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(apk) as archive:
        library = bytearray(archive.read(f"lib/{ABI}/libfbjni.so"))
    shifted = tmp_path / "shifted.apk"
    with zipfile.ZipFile(shifted, "w") as archive:
        archive.writestr("AndroidManifest.xml", b"x" * 100)
        archive.writestr(f"lib/{ABI}/libfbjni.so", bytes(library))
    missing = {"library_missing"}  # those that it needs in turn were left out here
    assert {f.code for f in lint([shifted], [ABI])} - missing == {"zip_unaligned"}

    (start,) = struct.unpack_from("<Q", library, 32)
    size, count = struct.unpack_from("<HH", library, 54)
    for index in range(count):
        at = start + index * size
        if struct.unpack_from("<I", library, at)[0] == 1:  # PT_LOAD
            struct.pack_into("<Q", library, at + 48, 4096)
    small = tmp_path / "small.apk"
    with zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("AndroidManifest.xml", b"x")
        archive.writestr(f"lib/{ABI}/libfbjni.so", bytes(library))
    assert {f.code for f in lint([small], [ABI])} - missing == {"segments_4k"}


@pytest.mark.slow
def test_pitfall_a_02_fbjni_of_another_toolchain_is_found(apk: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.apk"
    with zipfile.ZipFile(apk) as archive, zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("AndroidManifest.xml", b"x")
        for name in (f"lib/{ABI}/{one}.so" for one in ("libexecutorch", "libfbjni", "libc++_shared")):
            data = archive.read(name)
            # As if built with a C++ library of another inline namespace: the sizes stay, the names don't.
            made.writestr(name, data.replace(b"__ndk1", b"__ndk2") if "fbjni" in name else data)
    found = {f.entry: f for f in lint([other], [ABI])}
    assert found[f"lib/{ABI}/libexecutorch.so"].code == "symbol_missing"
    assert "libfbjni.so" in found[f"lib/{ABI}/libexecutorch.so"].fix


def test_what_is_mapped_lies_on_pages(tool: Any, tmp_path: Path) -> None:
    entries = {
        "lib/arm64-v8a/a.so": b"1" * 5000,
        "assets/m.edge": b"2" * 70_000,
        "classes.dex": b"3",
        "resources.arsc": b"4",
    }
    tool.write_aligned(tmp_path / "a.apk", entries)
    with zipfile.ZipFile(tmp_path / "a.apk") as archive:
        assert archive.testzip() is None
        for name, align in (("lib/arm64-v8a/a.so", 16384), ("assets/m.edge", 16384), ("resources.arsc", 4)):
            info = archive.getinfo(name)
            at = info.header_offset
            head = (tmp_path / "a.apk").read_bytes()[at : at + 30]
            data = at + 30 + sum(struct.unpack_from("<HH", head, 26))
            assert data % align == 0, name
            assert archive.read(name) == entries[name]


def test_an_unknown_app_and_a_missing_bundle_are_named(
    tool: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert tool.main(["smaple"]) == 1
    assert "known: sample, bench" in capsys.readouterr().err
