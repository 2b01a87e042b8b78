"""The linter, on archives made here with the smallest ELF files that a loader would read."""

from __future__ import annotations

import plistlib
import struct
import zipfile
from pathlib import Path

import pytest

from edgesdk.errors import InputError
from edgesdk.targets import _elf
from edgesdk.targets._lint import lint
from tests.targets.conftest import Emit

ARM64, ARM, X86_64, X86 = 183, 40, 62, 3


def elf(machine: int, align: int = 16384, *, wide: bool = True, big: bool = False, tail: bytes = b"") -> bytes:
    """A header and two program headers: a note, which has no say, and one loaded segment with ``align``."""
    order, word = (">" if big else "<"), ("Q" if wide else "I")
    start, size = (64, 56) if wide else (52, 32)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 2 if big else 1, 1]) + bytes(9)
    header = ident + struct.pack(
        f"{order}HHI{word}{word}{word}IHHHHHH", 3, machine, 1, 0, start, 0, 0, start, size, 2, 0, 0, 0
    )
    if wide:
        note = struct.pack(f"{order}IIQQQQQQ", 4, 4, 0, 0, 0, 8, 8, 4)
        load = struct.pack(f"{order}IIQQQQQQ", 1, 5, 0, 0, 0, 8, 8, align)
    else:
        note = struct.pack(f"{order}IIIIIIII", 4, 0, 0, 0, 8, 8, 4, 4)
        load = struct.pack(f"{order}IIIIIIII", 1, 0, 0, 0, 8, 8, 5, align)
    return header + note + load + tail


def archive(path: Path, entries: dict[str, bytes], *, deflate: tuple[str, ...] = (), aligned: bool = True) -> Path:
    """A ZIP as zipalign makes it: stored ``.so`` files begin on 16 KiB boundaries, padded by the extra field."""
    with zipfile.ZipFile(path, "w") as out:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if name in deflate else zipfile.ZIP_STORED
            if aligned and name.endswith(".so"):
                assert out.fp is not None
                pad = -(out.fp.tell() + 30 + len(name) + 4) % 16384
                info.extra = struct.pack("<HH", 0xD935, pad) + bytes(pad)
            out.writestr(info, data)
    return path


def apk(tmp_path: Path, entries: dict[str, bytes], **options: object) -> Path:
    return archive(tmp_path / "app.apk", {"AndroidManifest.xml": b"x", **entries}, **options)  # type: ignore[arg-type]


def codes(*paths: Path, abis: tuple[str, ...] = ()) -> list[str]:
    return [finding.code for finding in lint(paths, abis)]


def test_a_good_apk_has_no_findings(tmp_path: Path) -> None:
    good = {f"lib/{abi}/liba.so": elf(m) for abi, m in (("arm64-v8a", ARM64), ("x86_64", X86_64))}
    assert lint([apk(tmp_path, {"assets/net.edge": b"PK", **good})], ("arm64-v8a", "x86_64")) == []


@pytest.mark.parametrize("suffix", ["edge", "pte", "onnx", "ptl", "ort"])
def test_pitfall_p_03_a_compressed_model_is_named_with_the_line_that_helps(tmp_path: Path, suffix: str) -> None:
    name = f"assets/net.{suffix}"
    found = [f for f in lint([apk(tmp_path, {name: bytes(999)}, deflate=(name,))]) if f.code == "model_compressed"]
    assert [f.entry for f in found] == [name]
    assert f'noCompress += "{suffix}"' in found[0].fix
    assert found[0].severity == "error"


def test_pitfall_p_03_what_the_app_packs_again_is_no_error(tmp_path: Path) -> None:
    aar = archive(tmp_path / "a.aar", {"classes.jar": b"", "assets/net.edge": bytes(99)}, deflate=("assets/net.edge",))
    assert [f.severity for f in lint([aar])] == ["warning"]
    aab = archive(
        tmp_path / "a.aab",
        {"BundleConfig.pb": b"", "base/assets/net.edge": bytes(99)},
        deflate=("base/assets/net.edge",),
    )
    assert lint([aab]) == []


def test_pitfall_p_04_segments_and_zip_alignment(tmp_path: Path) -> None:
    assert codes(apk(tmp_path, {"lib/arm64-v8a/liba.so": elf(ARM64, 4096)})) == ["segments_4k"]
    assert codes(apk(tmp_path, {"lib/arm64-v8a/liba.so": elf(ARM64)}, aligned=False)) == ["zip_unaligned"]
    packed = apk(tmp_path, {"lib/arm64-v8a/liba.so": elf(ARM64)}, aligned=False, deflate=("lib/arm64-v8a/liba.so",))
    assert codes(packed) == []  # installed by extraction: its place in the archive doesn't matter
    assert (
        codes(apk(tmp_path, {"lib/armeabi-v7a/liba.so": elf(ARM, 4096, wide=False)}, aligned=False)) == []
    )  # 32 bit: no such pages
    assert codes(apk(tmp_path, {"lib/arm64-v8a/liba.so": elf(ARM64, 65536)})) == []


def test_pitfall_p_04_a_lite_model_is_warned_of_even_inside_a_bundle(tmp_path: Path) -> None:
    inner = archive(tmp_path / "net.edge", {"models/net.ptl": b"x"})
    found = lint([apk(tmp_path, {"assets/net.edge": inner.read_bytes()})])
    assert [(f.code, f.severity) for f in found] == [("lite_library_pages", "warning")]


def test_pitfall_p_05_differing_copies_are_named_with_the_winner(tmp_path: Path) -> None:
    first = archive(tmp_path / "new.aar", {"classes.jar": b"", "jni/arm64-v8a/libfbjni.so": elf(ARM64, tail=b"new")})
    second = archive(tmp_path / "old.aar", {"classes.jar": b"", "jni/arm64-v8a/libfbjni.so": elf(ARM64, tail=b"old")})
    (finding,) = lint([first, second])
    assert finding.code == "library_copies_differ"
    assert "the copy of new.aar wins" in finding.message
    assert 'pickFirsts += "lib/arm64-v8a/libfbjni.so"' in finding.fix
    (turned,) = lint([second, first])
    assert "the copy of old.aar wins" in turned.message
    same = archive(tmp_path / "same.aar", {"classes.jar": b"", "jni/arm64-v8a/libfbjni.so": elf(ARM64, tail=b"new")})
    assert lint([first, same]) == []


def test_pitfall_p_06_an_elf_in_another_abis_folder(tmp_path: Path) -> None:
    (finding,) = lint([apk(tmp_path, {"lib/x86_64/liba.so": elf(ARM64)})])
    assert (finding.code, finding.entry) == ("wrong_abi", "lib/x86_64/liba.so")
    assert "built for arm64-v8a" in finding.message
    assert codes(apk(tmp_path, {"lib/x86/liba.so": elf(X86_64)})) == ["wrong_abi"]
    assert codes(apk(tmp_path, {"lib/arm64/liba.so": elf(ARM64)})) == ["wrong_abi"]  # no such folder on Android
    assert codes(apk(tmp_path, {"lib/arm64-v8a/liba.so": elf(243)})) == ["wrong_abi"]
    assert codes(apk(tmp_path, {"lib/arm64-v8a/liba.so": elf(9999)})) == ["wrong_abi"]


def test_pitfall_p_06_an_abi_that_was_promised_or_is_half_there(tmp_path: Path) -> None:
    one = {"lib/arm64-v8a/liba.so": elf(ARM64)}
    assert codes(apk(tmp_path, one)) == []
    (finding,) = lint([apk(tmp_path, one)], ("arm64-v8a", "x86_64"))
    assert (finding.code, finding.entry, finding.severity) == ("abi_incomplete", "x86_64", "error")
    half = {**one, "lib/arm64-v8a/libb.so": elf(ARM64), "lib/x86_64/liba.so": elf(X86_64)}
    (finding,) = lint([apk(tmp_path, half)])
    assert "For x86_64 there is no libb.so" in finding.message


@pytest.mark.parametrize(
    "data", [b"", b"<!DOCTYPE html>", b"version https://git-lfs.github.com/spec/v1\n", elf(ARM64)[:70]]
)
def test_what_is_no_library_is_said_to_be_none(tmp_path: Path, data: bytes) -> None:
    assert codes(apk(tmp_path, {"lib/arm64-v8a/liba.so": data})) == ["not_a_library"]


@pytest.mark.parametrize("machine", [ARM64, ARM, X86_64, X86])
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("big", [True, False])
def test_both_classes_and_byte_orders_are_read(machine: int, wide: bool, big: bool) -> None:
    found = _elf.read(elf(machine, 4096, wide=wide, big=big))
    assert found == _elf.Elf(_elf.ABI_OF_MACHINE[machine], machine, 4096)


def test_this_interpreters_own_libraries_are_read() -> None:
    """Real linker output, not only what this file makes."""
    import numpy

    libraries = sorted(Path(numpy.__file__).parent.rglob("*.so"))
    found = _elf.read(libraries[0].read_bytes()[: _elf.HEAD])
    assert found is not None
    assert found.abi is not None
    assert found.align is not None
    assert found.align >= 4096


def test_pitfall_x_03_a_framework_without_a_simulator_slice(tmp_path: Path) -> None:
    def framework(*slices: tuple[str, str | None]) -> Path:
        folder = tmp_path / "Engine.xcframework"
        folder.mkdir(exist_ok=True)
        parts = [
            {
                "SupportedPlatform": "ios",
                "SupportedArchitectures": [arch],
                **({"SupportedPlatformVariant": kind} if kind else {}),
            }
            for arch, kind in slices
        ]
        (folder / "Info.plist").write_bytes(plistlib.dumps({"AvailableLibraries": parts}))
        return folder

    assert lint([framework(("arm64", None), ("arm64", "simulator"))]) == []
    assert [f.entry for f in lint([framework(("arm64", None), ("x86_64", "simulator"))])] == ["ios-arm64-simulator"]
    assert [f.entry for f in lint([framework(("arm64", "simulator"))])] == ["ios-arm64"]


def test_what_is_no_archive_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "a.apk").write_bytes(b"no zip")
    with pytest.raises(InputError, match="can't be read as an archive"):
        lint([tmp_path / "a.apk"])
    with pytest.raises(InputError):
        lint([tmp_path / "absent.aar"])


def test_the_aar_that_this_package_emits_is_clean(emit: Emit) -> None:
    (aar,) = emit("android").rglob("*.aar")
    assert lint([aar]) == []
