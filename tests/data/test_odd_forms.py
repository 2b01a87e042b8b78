"""Forms that real data come in: other byte orders, encodings, types of labels, gaps, lists of unequal lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgesdk.artifacts import TensorSpec
from edgesdk.errors import InputError

from .helpers import REGRESS, TEXT, N, facts, picture_facts, signature, smooth, written

X = smooth(12, 1, 8, 8)
THREE = facts(signature(TensorSpec("x", "float32", (N, 3))))


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (np.array(["dog", "cat"] * 6), [1, 0]),
        (np.array(["7", "3"] * 6), [7, 3]),
        (np.array([b"dog", b"cat"] * 6), [1, 0]),
        (np.array([True, False] * 6), [1, 0]),
        (np.array([1.0, 2.0] * 6), [1, 2]),
        (np.array([[5], [6]] * 6), [5, 6]),
        (np.array([9, 8] * 6, ">i2"), [9, 8]),
    ],
    ids=["names", "digits", "bytes", "bool", "whole floats", "column", "big-endian"],
)  # fmt: skip
def test_class_labels_of_every_type(tmp_path: Path, labels: np.ndarray, numbers: list[int]) -> None:
    np.savez(tmp_path / "a.npz", input=X.astype(">f4"), label=labels)
    info, store = written(tmp_path / "a.npz", facts(), tmp_path)
    assert info.labelled and [int(s.label.reshape(-1)[0]) for s in store.first(2)] == numbers  # type: ignore[union-attr]
    assert np.array_equal(store[4].feed["input"][0], X[4])


def test_whole_numbers_stay_quantities_where_the_model_gives_no_scores(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(4, 3)), label=np.arange(4.0))
    _, store = written(tmp_path / "a.npz", facts(REGRESS), tmp_path)
    assert store[2].label is not None and store[2].label.dtype == np.float32


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        ("\ufeffx_0,x_1,x_2\r\n1,2,3\r\n\r\n4,5,6\r\n", 2),
        ("x_0\tx_1\tx_2\n1\t2\t3\n", 1),
        ('x\n"[1, 2, 3]"\n"[4,5,6]"\n', 2),
        ("x_1,x_2,x_3\n1,2,3\n", 1),
        ("c;a;b\n1;2;3\n", 1),
        ("x_10,x_2,x_1\n1,2,3\n", None),
    ],
    ids=["bom-crlf-blank", "tabs", "lists", "from one", "any names", "gap"],
)  # fmt: skip
def test_tables_as_programs_write_them(tmp_path: Path, data: str, rows: int | None) -> None:
    (tmp_path / "a.csv").write_bytes(data.encode())
    if rows is None:
        with pytest.raises(InputError, match="no x_3"):
            written(tmp_path / "a.csv", THREE, tmp_path)
        return
    info, store = written(tmp_path / "a.csv", THREE, tmp_path)
    assert info.count == rows and store[0].feed["x"].tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("columns", "code", "says"),
    [
        ({"x": [[1.0, 2, 3], None]}, "bad_cell", "[1]: column 'x' is empty"),
        ({"x": [[1.0, None, 3]]}, "wrong_dtype", "[0]: input 'x'"),
        ({"x": [[1.0, 2, 3], [1.0, 2]]}, "shape_mismatch", "[1]: input 'x' takes [1..8,3], the data have [2]"),
        ({"x": ["gone.png"]}, "missing_file", "gone.png"),
        ({"x": [[1.0, 2, 3]] * 2, "label": [1, None]}, "labels_missing", "row 1"),
        ({"x": [b"abc"]}, "no_preprocess", "[0]"),
    ],
    ids=["null", "inner null", "ragged", "path", "label", "bytes"],
)  # fmt: skip
def test_gaps_in_parquet_name_the_row(tmp_path: Path, columns: dict[str, Any], code: str, says: str) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError) as caught:
        written(tmp_path / "a.parquet", THREE, tmp_path)
    assert caught.value.code == code and says in caught.value.message
    assert "a.parquet" in str(caught.value)


def test_bytes_that_are_no_picture_name_the_row(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"image": [b"abc"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet\[0\]") as caught:
        written(tmp_path / "a.parquet", picture_facts(), tmp_path)
    assert caught.value.code == "image_unreadable"


def test_addresses_on_the_web_are_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("file,label\nhttps://example.org/c.png,1\n")
    with pytest.raises(InputError, match="line 2") as caught:
        written(tmp_path / "a.csv", picture_facts(), tmp_path)
    assert caught.value.code == "not_a_file" and "Nothing is downloaded" in caught.value.why


@pytest.mark.parametrize("array", [np.zeros((4, 1, 8, 8), "c8"), np.zeros((4, 1, 8, 8), "U3")], ids=["complex", "text"])
def test_values_that_are_no_real_numbers_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", input=array)
    with pytest.raises(InputError) as caught:
        written(tmp_path / "a.npz", facts(), tmp_path)
    assert caught.value.code == "wrong_dtype"


def test_a_mask_of_zeros_and_ones_may_be_any_integer(tmp_path: Path) -> None:
    known = facts(signature(TensorSpec("m", "bool", (N, 4))))
    np.savez(tmp_path / "a.npz", m=np.asarray([[0, 1, 1, 0]]))
    _, store = written(tmp_path / "a.npz", known, tmp_path)
    assert store[0].feed["m"].tolist() == [[False, True, True, False]]
    np.savez(tmp_path / "a.npz", m=np.asarray([[0, 2, 1, 0]]))
    with pytest.raises(InputError, match="takes bool"):
        written(tmp_path / "a.npz", known, tmp_path)
    np.savez(tmp_path / "t.npz", ids=np.ones((2, 3), np.uint64), mask=np.ones((2, 3), bool))
    _, store = written(tmp_path / "t.npz", facts(TEXT), tmp_path)
    assert store[0].feed["ids"].dtype == np.int32
