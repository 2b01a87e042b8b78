"""What is refused before any work, without torch, and the checksum of the data."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgesdk.data import fingerprint, locate_data
from edgesdk.errors import InputError

from .helpers import facts, folder_of_pictures, picture_facts, smooth, written


def refused(path: Path | str) -> InputError:
    with pytest.raises(InputError) as caught:
        locate_data(str(path))
    error = caught.value
    assert error.exit == 3 and error.why and error.fix
    return error


def test_a_missing_path_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "calibration.npz").write_bytes(b"")
    error = refused(tmp_path / "calibrations.npz")
    assert error.code == "missing_file" and "calibration.npz" in error.fix
    assert refused(tmp_path / "nowhere" / "a.npz").code == "missing_file"
    assert refused("").code == "missing_file"
    assert refused(f"{tmp_path}/absent.py:data").code == "missing_file"


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "gone" in refused(tmp_path / "a").message
    assert refused(tmp_path / "loop").code in ("missing_file", "unreadable_file")


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b"", "not_data", "is empty"),
        (pickle.dumps([1, 2, 3]), "pickle_refused", "np.savez"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 50, "not_data", "HDF5"),
        (b"\x1f\x8b\x08" + b"\0" * 50, "not_data", "gzip"),
        (b"<!DOCTYPE html><html>", "not_data", "web page"),
        (b'{"a": 1}', "not_data", "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not_data", "git lfs pull"),
        (b"PK\x03\x04 and no more", "damaged_file", "damaged"),
        (bytes(range(128, 128 + 64)) + b"\xff\xfe\0", "not_data", "no kind of data"),
    ],
    ids=lambda v: str(v)[:16],
)  # fmt: skip
def test_the_kind_comes_from_the_bytes_not_the_name(tmp_path: Path, data: bytes, code: str, says: str) -> None:
    (tmp_path / "a.npz").write_bytes(data)
    error = refused(tmp_path / "a.npz")
    assert error.code == code and says in str(error)


def test_a_right_kind_under_a_wrong_name_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", input=smooth(3, 1, 8, 8))
    (tmp_path / "x.npz").rename(tmp_path / "x.dat")
    assert locate_data(str(tmp_path / "x.dat")).kind == "npz"


def test_tables_in_another_encoding_say_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("gr\u00f6\u00dfe,label\n1,2\n".encode("latin1"))
    error = refused(tmp_path / "a.csv")
    assert error.code == "bad_table" and "UTF-8" in error.message and "iconv" in error.fix


def test_cells_that_are_no_paths_harm_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"input,label\n~nobody/x.png,1\n{'long' * 200}.png,1\n")
    assert fingerprint(str(tmp_path / "a.csv")) is not None
    with pytest.raises(InputError) as caught:
        written(tmp_path / "a.csv", picture_facts(), tmp_path)
    assert caught.value.code == "missing_file" and "~nobody/x.png" in caught.value.message
    assert refused("~nobody/data.npz").code == "missing_file"


def test_checkpoints_and_python_files_are_told_apart(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}.")
    assert refused(tmp_path / "model.pt").code == "pickle_refused"
    (tmp_path / "data.py").write_text("def samples(): ...\n")
    error = refused(tmp_path / "data.py")
    assert error.code == "no_dataset" and error.fix.endswith("data.py:samples")


def test_pipes_and_devices_are_no_data(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe").code == "unreadable_file"
    assert refused("/dev/null").code in ("unreadable_file", "not_data")


def test_empty_and_mixed_folders(tmp_path: Path) -> None:
    assert refused(tmp_path).code == "empty_folder"
    (tmp_path / "README.md").write_text("words")
    assert "README.md" in refused(tmp_path).why
    folder_of_pictures(tmp_path, {"a": 1})
    np.save(tmp_path / "a" / "x.npy", np.zeros(3))
    assert refused(tmp_path).code == "mixed_folder"


def test_an_unreadable_picture_is_named(tmp_path: Path) -> None:
    folder = folder_of_pictures(tmp_path / "p", {"": 3})
    (folder / "bad.jpg").write_bytes(b"")
    error = refused(folder)
    assert error.code == "image_unreadable" and str(folder / "bad.jpg") in error.message
    whole = (folder / "1.png").read_bytes()
    (folder / "bad.jpg").unlink()
    (folder / "1.png").write_bytes(whole[: len(whole) // 2])  # begins right, and is cut short
    with pytest.raises(InputError, match=r"1\.png") as caught:
        written(folder, picture_facts(), tmp_path)
    assert caught.value.code == "image_unreadable" and not (tmp_path / "store").exists()


def test_folders_that_contain_themselves_end(tmp_path: Path) -> None:
    folder = folder_of_pictures(tmp_path / "p", {"a": 2, "b": 1})
    (folder / "a" / "again").symlink_to(folder)
    assert len(locate_data(str(folder)).files) == 3
    outside = folder_of_pictures(tmp_path / "elsewhere", {"": 2})
    (folder / "c").symlink_to(outside)  # a class folder that is a link counts
    info, _ = written(folder, picture_facts(), tmp_path)
    assert info.classes == {0: 2, 1: 1, 2: 2}


def test_hidden_files_and_notes_are_left_out(tmp_path: Path) -> None:
    folder = folder_of_pictures(tmp_path / "p", {"": 2})
    (folder / ".DS_Store").write_bytes(b"\0\1")
    (folder / "Thumbs.db").write_bytes(b"\0\1")
    (folder / "notes.txt").write_text("x")
    info, _ = written(folder, picture_facts(), tmp_path)
    assert info.count == 2 and [w.code for w in info.warnings] == ["files_left_out"]
    assert "notes.txt" in info.warnings[0].message


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's answer is put in its mouth."""
    np.savez(tmp_path / "a.npz", input=smooth(3, 1, 8, 8))

    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("edgesdk.data._locate.open_file", denied)
    error = refused(tmp_path / "a.npz")
    assert error.code == "unreadable_file" and f"chmod u+r {tmp_path / 'a.npz'}" in error.fix


def test_fingerprint_of_a_file_and_of_a_folder(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", input=smooth(3, 1, 8, 8))
    before = fingerprint(str(tmp_path / "a.npz"))
    np.savez(tmp_path / "a.npz", input=smooth(3, 1, 8, 8, seed=1))
    assert before is not None and len(before) == 64 and fingerprint(str(tmp_path / "a.npz")) != before
    folder = folder_of_pictures(tmp_path / "p", {"a": 2})
    before = fingerprint(str(folder))
    (folder / "a" / "1.png").rename(folder / "a" / "7.png")
    assert fingerprint(str(folder)) != before  # a name may be a label
    copy = folder_of_pictures(tmp_path / "q", {"a": 2})
    (copy / "a" / "1.png").rename(copy / "a" / "7.png")
    assert fingerprint(str(copy)) == fingerprint(str(folder))  # where the folder lies doesn't matter


def test_fingerprint_of_a_table_follows_the_files_that_it_names(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    folder_of_pictures(tmp_path / "p", {"": 2})
    (tmp_path / "a.csv").write_text("file,label\np/0.png,1\np/1.png,0\n")
    table = pyarrow.table({"file": ["p/0.png", "p/1.png"], "label": [1, 0]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    before = [fingerprint(str(tmp_path / name)) for name in ("a.csv", "a.parquet")]
    folder_of_pictures(tmp_path / "p", {"": 2}, size=20)
    after = [fingerprint(str(tmp_path / name)) for name in ("a.csv", "a.parquet")]
    assert None not in before and before[0] != after[0] and before[1] != after[1]


def test_no_torch_in_the_command_line_process(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", input=smooth(3, 1, 8, 8))
    code = (
        "import sys; from edgesdk.data import fingerprint, locate_data; from edgesdk import metrics; "
        f"locate_data({str(tmp_path / 'a.npz')!r}); fingerprint({str(tmp_path / 'a.npz')!r}); "
        "metrics.check_name('top1'); print([m for m in ('torch', 'pyarrow', 'pandas', 'onnx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


# --- hostile arrays ---------------------------------------------------------------------------------------------------


class Trap:
    def __reduce__(self):
        return (Path("/tmp/edgesdk-trap").touch, ())


def test_pickled_arrays_are_never_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", input=np.array([Trap(), Trap()], dtype=object))
    np.save(tmp_path / "a.npy", np.array([Trap(), Trap()], dtype=object), allow_pickle=True)
    for name in ("a.npz", "a.npy"):
        with pytest.raises(InputError) as caught:
            written(tmp_path / name, facts(), tmp_path)
        assert caught.value.code == "pickle_refused"
    assert not Path("/tmp/edgesdk-trap").exists()


def npy(shape: str, body: bytes, descr: str = "'<f4'") -> bytes:
    head = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + body


@pytest.mark.parametrize(
    "data",
    [
        npy("(1000000000000, 1, 8, 8)", b"\0" * 256),
        npy("(4, 1, 8, 8)", b"\0" * 100),
        npy("(-1, 1, 8, 8)", b"\0" * 256),
        npy("(" * 3000, b""),
        b"\x93NUMPY\x02\x00\xff\xff\xff\x7f",
        b"\x93NUMPY\x09\x00" + b"\0" * 100,
        npy("(1, 1, 8, 8)", b"\0" * 256, "'garbage'"),
    ],
    ids=["huge", "short", "negative", "nested", "long-header", "version", "dtype"],
)  # fmt: skip
def test_headers_that_lie_cost_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("input.npy", data)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(InputError) as caught:
            written(tmp_path / name, facts(), tmp_path)
        assert caught.value.code == "damaged_file" and str(tmp_path / name) in caught.value.message


def test_a_wrong_shape_is_told_before_the_values_are_read(tmp_path: Path) -> None:
    """A zip bomb: zeros that unpack to 250 times the file; the header says that they don't fit."""
    archive = zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("input.npy", "w", force_zip64=True) as file:
        file.write(npy("(64, 1024, 1024)", b""))
        for _ in range(64):
            file.write(bytes(4 << 20))
    with pytest.raises(InputError, match=r"takes \[1\.\.8,1,8,8\], the data have \[1024, 1024\]"):
        written(tmp_path / "a.npz", facts(), tmp_path)


def test_damaged_archives(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", input=np.random.default_rng(0).random((50, 1, 8, 8)).astype("f4"))
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    whole[3000:3040] = bytes(40)
    (tmp_path / "a.npz").write_bytes(whole)
    with pytest.raises(InputError) as caught:
        written(tmp_path / "a.npz", facts(), tmp_path)
    assert caught.value.code == "damaged_file" and not list(tmp_path.glob("store*"))
