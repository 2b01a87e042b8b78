"""Writing and reading bundles: readable by every ZIP reader, the same bytes each time, whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from edgesdk.bundle import EdgeBundle, Manifest, write
from edgesdk.errors import EdgeError, InputError, IntegrityError, UsageError
from tests.bundle import hostile

MANIFEST = Manifest.from_json(hostile.plain_manifest())


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "a.edge"
    write(path, MANIFEST, hostile.FILES)
    return path


def test_what_was_put_in_comes_out(bundle: Path, tmp_path: Path) -> None:
    with EdgeBundle.open(bundle) as opened:
        assert opened.names == ("manifest.json", *sorted(hostile.FILES))
        assert {name: bytes(opened.file(name)) for name in hostile.FILES} == hostile.FILES
        assert opened.manifest.variants[0].size == len(hostile.MODEL)
        assert [f.name for f in opened.manifest.files] == sorted(hostile.FILES)
        assert opened.signature == "absent"
        opened.extract("model.pte", tmp_path / "out.pte")
        assert (tmp_path / "out.pte").read_bytes() == hostile.MODEL
        with pytest.raises(UsageError, match=r"model\.pt'"):
            opened.file("model.pt")


def test_paths_and_bytes_give_the_same_bundle_in_any_order(bundle: Path, tmp_path: Path) -> None:
    files: dict[str, Path | bytes] = {}
    for index, (name, data) in enumerate(reversed(hostile.FILES.items())):
        files[name] = tmp_path / str(index)
        (tmp_path / str(index)).write_bytes(data)
    write(tmp_path / "b.edge", MANIFEST, files)
    assert (tmp_path / "b.edge").read_bytes() == bundle.read_bytes()


def test_a_bundle_does_not_depend_on_process_time_or_place(bundle: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.bundle import hostile; from edgesdk.bundle import Manifest, write;"
        "write(Path(sys.argv[1]), Manifest.from_json(hostile.plain_manifest()), hostile.FILES)"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "PYTHONPATH": str(root)}
    (tmp_path / "deep").mkdir()
    subprocess.run([sys.executable, "-c", code, "deep/c.edge"], check=True, cwd=tmp_path, env=env)
    assert (tmp_path / "deep/c.edge").read_bytes() == bundle.read_bytes()


def test_python_unzip_and_java_read_it(bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", *sorted(hostile.FILES)]
        archive.extractall(tmp_path / "python")
    assert (tmp_path / "python/model.pte").read_bytes() == hostile.MODEL
    unzip = shutil.which("unzip")
    if unzip:  # not on every machine; zipfile above is the check that always runs
        assert subprocess.run([unzip, "-tqq", bundle], capture_output=True).returncode == 0


def test_models_lie_on_pages_and_everything_on_cache_lines(tmp_path: Path) -> None:
    files = {**hostile.FILES, "weights.data": b"w" * 100_000, "vocab.txt": b"a\nb\n"}
    document = hostile.plain_manifest()
    document["variants"][0]["extra_files"] = ["weights.data"]
    write(tmp_path / "a.edge", Manifest.from_json(document), files)
    data = (tmp_path / "a.edge").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.edge") as archive:
        for info in archive.infolist():
            start = info.header_offset
            name, extra = (
                int.from_bytes(data[start + 26 : start + 28], "little"),
                int.from_bytes(data[start + 28 : start + 30], "little"),
            )
            align = 16384 if info.filename in ("model.pte", "weights.data") else 64
            assert (start + 30 + name + extra) % align == 0, info.filename
            assert info.compress_type == zipfile.ZIP_STORED and info.date_time == (1980, 1, 1, 0, 0, 0)


def test_views_outlive_the_bundle(bundle: Path) -> None:
    opened = EdgeBundle.open(bundle)
    view = opened.file("model.pte")
    opened.close()
    assert bytes(view) == hostile.MODEL
    with pytest.raises(TypeError):
        view[0] = 0


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "no permission"])
def test_what_is_no_file(kind: str, tmp_path: Path, bundle: Path) -> None:
    path = tmp_path / "x.edge"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "no permission":
        if os.geteuid() == 0:  # root reads everything: the case is then that of a folder in the way
            path = bundle / "x.edge"
        else:
            bundle.chmod(0)
            path = bundle
    with pytest.raises(InputError, match=path.name) as caught:
        EdgeBundle.open(path)
    assert caught.value.code == "bundle_missing"


def _changed(**fields: Any) -> Manifest:
    return Manifest.from_json({**hostile.plain_manifest(), **fields})


def test_the_writer_refuses_what_a_reader_would(tmp_path: Path) -> None:
    cases: list[tuple[Manifest, dict[str, Path | bytes], str]] = [
        (MANIFEST, {k: v for k, v in hostile.FILES.items() if k != "model.pte"}, "not in the file table"),
        (MANIFEST, {**hostile.FILES, "../x": b""}, "starts with a dot"),
        (MANIFEST, {**hostile.FILES, "manifest.json": b""}, "manifest.json"),
        (MANIFEST, {**hostile.FILES, "Model.pte": b""}, "side by side"),
        (MANIFEST, {**hostile.FILES, "golden/0.in.bin": b"123"}, "dtype and shape"),
        (MANIFEST, {**hostile.FILES, "model.pte": tmp_path / "gone.pte"}, "gone.pte"),
        (MANIFEST, {**hostile.FILES, "model.pte": tmp_path}, "is no file"),
        (_changed(golden=[hostile.plain_manifest()["golden"][0]] * 2), dict(hostile.FILES), "one id"),
    ]
    for manifest, files, words in cases:
        with pytest.raises(InputError, match=words):
            write(tmp_path / "bad.edge", manifest, files)
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_that_is_no_manifest() -> None:
    for fields, words in (
        ({"version": None}, "version"),
        ({"variants": [{"id": "a b"}]}, "variants.0.id"),
        ({"history": [{"step": "x", "type": "y", "fields": {"loss": float("nan")}}]}, "can't be written as JSON"),
    ):
        with pytest.raises(InputError, match=words):
            _changed(**fields)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """A file-size limit makes the kernel refuse the write half-way, as a full disk does."""
    code = (
        "import resource, signal, sys; from pathlib import Path; from tests.bundle import hostile\n"
        "from edgesdk.bundle import Manifest, write; from edgesdk.errors import InputError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (18000, 18000))\n"
        "try: write(Path('a.edge'), Manifest.from_json(hostile.plain_manifest()), hostile.FILES)\n"
        "except InputError as error: print(error.code)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.stdout.strip() == "disk_full", ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_old_bundle(bundle: Path) -> None:
    before = bundle.read_bytes()
    with pytest.raises(EdgeError):
        write(bundle, MANIFEST, {**hostile.FILES, "golden/0.in.bin": b""})
    assert bundle.read_bytes() == before
    assert list(bundle.parent.iterdir()) == [bundle]


def test_a_payload_that_changes_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgesdk.bundle import _write

    (tmp_path / "model.pte").write_bytes(hostile.MODEL)
    size = _write._size
    monkeypatch.setattr(_write, "_size", lambda payload: size(payload) + (1 if isinstance(payload, Path) else 0))
    with pytest.raises(InputError, match="changed while"):
        write(tmp_path / "a.edge", MANIFEST, {**hostile.FILES, "model.pte": tmp_path / "model.pte"})
    assert [p.name for p in tmp_path.iterdir()] == ["model.pte"]


def test_big_payloads_are_streamed(tmp_path: Path) -> None:
    """A 200 MiB sparse file is bundled in less memory than it has bytes."""
    with (tmp_path / "big.pte").open("wb") as file:
        file.truncate(200 * 2**20)
    code = (
        "import resource, sys; from pathlib import Path; from tests.bundle import hostile; from edgesdk.bundle import Manifest, write\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "write(Path('a.edge'), Manifest.from_json(hostile.plain_manifest()), {**hostile.FILES, 'model.pte': Path('big.pte')})\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 64 * 1024  # KiB; a whole-file read would take 200


def test_reading_needs_no_model_library(bundle: Path) -> None:
    code = (
        "import sys; from edgesdk.bundle import EdgeBundle; EdgeBundle.open(sys.argv[1]);"
        "print(sorted({'torch', 'onnx', 'onnxruntime', 'executorch'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code, bundle], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_folders_that_can_not_be_written(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"b\.edge can't be written") as caught:
        write(tmp_path / "no" / "b.edge", MANIFEST, hostile.FILES)
    assert caught.value.code == "not_writable"
    with EdgeBundle.open(bundle) as opened, pytest.raises(InputError, match="can't be written"):
        opened.extract("model.pte", bundle / "inner" / "model.pte")
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError):
        write(tmp_path / "taken", MANIFEST, hostile.FILES)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.edge", "taken"]


def test_extract_makes_folders_and_checks_the_hash(bundle: Path, tmp_path: Path) -> None:
    data = bytearray(bundle.read_bytes())
    with EdgeBundle.open(bundle) as opened:
        opened.extract("golden/0.in.bin", tmp_path / "x/y/0.bin")
    assert (tmp_path / "x/y/0.bin").read_bytes() == hostile.FILES["golden/0.in.bin"]
    data[data.index(hostile.MODEL) + 100] ^= 1
    bundle.write_bytes(data)
    with EdgeBundle.open(bundle, check="layout") as opened:
        assert not opened.checked
        with pytest.raises(IntegrityError, match=r"model\.pte"):
            opened.extract("model.pte", tmp_path / "model.pte")
    assert not (tmp_path / "model.pte").exists()


def test_a_bundle_above_the_limit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """ZIP64 is never written: 4 GiB of zeros (a sparse file) is too much."""
    with (tmp_path / "huge.pte").open("wb") as file:
        file.truncate(2**32)
    with pytest.raises(InputError, match="limit is 4294967294"):
        write(tmp_path / "a.edge", MANIFEST, {**hostile.FILES, "model.pte": tmp_path / "huge.pte"})
    (tmp_path / "huge.pte").rename(tmp_path / "huge.edge")
    with pytest.raises(InputError, match="limit is 4294967294"):
        EdgeBundle.open(tmp_path / "huge.edge")
    assert [p.name for p in tmp_path.iterdir()] == ["huge.edge"]
