"""Setting the emulated phone up, and what is said when it isn't: without qemu, without network, as anyone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgesdk import emulated
from edgesdk.artifacts import Signature
from edgesdk.emulated import _install, _place
from edgesdk.emulated.__main__ import main
from edgesdk.errors import EdgeError, InputError, MissingToolError, UsageError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's empty cache, on a system that has the emulator and the C library."""
    monkeypatch.setenv("EDGESDK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_place, "SYSROOT", tmp_path / "sysroot")
    (tmp_path / "sysroot" / "lib").mkdir(parents=True)
    (tmp_path / "sysroot" / "lib" / "ld-linux-aarch64.so.1").touch()
    monkeypatch.setattr(_place, "qemu", lambda: "/usr/bin/qemu-aarch64-static")
    _place.recipe.cache_clear()
    return tmp_path / "cache" / "emulated"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    _place.recipe.cache_clear()


def whole(runtime: str) -> Path:
    """What a set-up leaves, with empty libraries."""
    place = _place.folder(runtime)
    place.mkdir(parents=True)
    (place / "runner").write_bytes(b"runner")
    _place.stamp(place).write_text(json.dumps({"files": {"runner": 6}}))
    return place


@pytest.mark.parametrize("runtime", ["executorch", "onnx"])
def test_what_is_missing_comes_with_the_command(runtime: str, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = emulated.missing(runtime)
    assert said is not None and "is not set up" in said and "tools/emulated" in said and _place.COMMAND in said
    whole(runtime)
    assert emulated.missing(runtime) is None
    (_place.SYSROOT / "lib" / "ld-linux-aarch64.so.1").unlink()
    assert "arm64 C library" in str(emulated.missing(runtime))
    monkeypatch.setattr(_place, "qemu", lambda: None)
    assert "qemu-aarch64 is not installed" in str(emulated.missing(runtime))
    monkeypatch.setattr(_place, "version", lambda runtime: None)
    assert f"pip install 'edgesdk[{runtime}]'" in str(emulated.missing(runtime))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux only" in str(emulated.missing(runtime))


def test_running_without_it_is_exit_8(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    with pytest.raises(MissingToolError) as refused:
        emulated.run("onnx", tmp_path / "m.onnx", Signature((), ()), [])
    assert refused.value.exit == 8 and "tools/emulated" in refused.value.fix
    with pytest.raises(MissingToolError):
        emulated.describe()


@pytest.mark.parametrize("call", [emulated.missing, lambda name: _install.install([name])])
def test_a_runtime_that_is_not_emulated(call: object) -> None:
    with pytest.raises(UsageError, match="'torchscript' can't be emulated"):
        call("torchscript")  # type: ignore[operator]


@pytest.mark.parametrize("damage", ["no stamp", "no runner", "cut runner", "stamp is no JSON", "stamp of another form"])
def test_half_a_set_up_is_none(damage: str, bare: Path) -> None:
    place = whole("onnx")
    stamp = _place.stamp(place)
    {
        "no stamp": stamp.unlink,
        "no runner": (place / "runner").unlink,
        "cut runner": lambda: (place / "runner").write_bytes(b"run"),
        "stamp is no JSON": lambda: stamp.write_text("{"),
        "stamp of another form": lambda: stamp.write_text("[1]"),
    }[damage]()
    assert "is not set up" in str(emulated.missing("onnx"))


def test_another_version_or_runner_is_set_up_anew(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole("onnx")
    with monkeypatch.context() as patch:
        patch.setattr(_place, "version", lambda runtime: "0.1")
        assert emulated.missing("onnx") is not None
    with monkeypatch.context() as patch:
        patch.setattr(_place, "recipe", lambda runtime: "another")
        assert emulated.missing("onnx") is not None
    assert emulated.missing("onnx") is None


def test_what_is_there_costs_nothing(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole("onnx")

    def never(*args: object, **more: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "run", never)
    _install.install(["onnx"])


def test_without_root_the_command_is_said(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_place, "qemu", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    assert main(["onnx"]) == 8
    out, err = capsys.readouterr()
    assert out == "" and f"sudo {_install.APT}" in err and "Traceback" not in err


def test_without_network_pip_s_words_are_handed_on(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(_install, "_lacking", lambda build: [])
    with pytest.raises(MissingToolError, match="arm64 wheel of onnxruntime") as refused:
        _install.install(["onnx"])
    assert "No matching distribution" in refused.value.why
    assert [p.name for p in bare.iterdir()] == ["locks"]


@pytest.mark.parametrize("kind", ["not a zip", "leads out", "no libraries"])
def test_a_wheel_of_another_kind_leaves_nothing(kind: str, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(package: str, version: str, into: Path) -> Path:
        wheel = into / "onnxruntime.whl"
        if kind == "not a zip":
            wheel.write_bytes(b"PK")
            return wheel
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("onnxruntime/__init__.py", "")
            if kind == "leads out":
                archive.writestr("onnxruntime/capi/libonnxruntime.so/../../../../../escaped", "x")
        return wheel

    monkeypatch.setattr(_install, "_download", download)
    monkeypatch.setattr(_install, "_lacking", lambda build: [])
    with pytest.raises(InputError) as refused:
        _install.install(["onnx"])
    assert refused.value.code == "bad_wheel"
    assert [p.name for p in bare.iterdir()] == ["locks"] and not list(bare.parents[1].rglob("escaped"))


def test_older_set_ups_go(bare: Path) -> None:
    current = whole("onnx")
    old, left, other = bare / "onnx-1.0-abc", bare / "setup-x1", bare / "executorch-1.0-abc"
    for folder in (old, left, other):
        folder.mkdir()
    _install._remove_older("onnx")
    assert sorted(bare.iterdir()) == sorted([current, other])


def test_the_sources_are_part_of_the_package() -> None:
    """The wheel must hold them: users build the runners, not we."""
    for made in _place.ENGINES.values():
        assert (_place.NATIVE / made.source).is_file()
    assert _place.NATIVE.parent == ROOT / "edgesdk" / "emulated"


def test_errors_are_of_ours(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert "can't be emulated" in capsys.readouterr().err
    assert issubclass(MissingToolError, EdgeError)


# -- the host's part of pitfall Q-22 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "flags"),
    [
        ("x86_64", "fpu sse4_1 avx avx2 fma"),
        ("x86_64", "avx2 avx512f avx512_vnni"),
        ("x86_64", ""),
        ("aarch64", "asimd asimddp"),
    ],
)
def test_pitfall_q_22_a_host_tells_what_its_kernels_depend_on(machine: str, flags: str) -> None:
    from edgesdk.emulated._host import read

    word = "Features" if machine == "aarch64" else "flags"
    cpu = read(machine, f"processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n{word}\t\t: {flags}\n" if flags else "")
    assert set(cpu.flags) == set(flags.split()) - {"fpu"} and cpu.to_json()["flags"] == list(cpu.flags)
    assert cpu.name == ("Some CPU @ 2 GHz" if flags else "")


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even() -> None:
    from edgesdk.emulated._wire import from_bfloat16, to_bfloat16

    # Halfway between 1 and 1.0078125 lies 1.00390625; the even one is 1. The greatest float32 rounds up to infinity.
    pairs = {
        1.0: 1.0, 1.00390625: 1.0, 1.01171875: 1.015625, 1.0040: 1.0078125, -2.5: -2.5, 3.4028235e38: np.inf,
        np.inf: np.inf, -np.inf: -np.inf, 0.0: 0.0, 2.0**-133: 2.0**-133, 2.0**-135: 0.0,
    }  # fmt: skip
    got = from_bfloat16(to_bfloat16(np.array([*pairs, np.nan, -0.0], np.float32)))
    np.testing.assert_array_equal(got, np.array([*pairs.values(), np.nan, 0.0], np.float32))
    assert np.signbit(got[-1])
