"""Every kind of data becomes the calls that the model takes."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.data import Store, write_samples
from edgesdk.errors import InputError, MissingToolError

from .helpers import (
    FIXED,
    GREY,
    MEAN,
    RGB,
    STD,
    TEXT,
    facts,
    folder_of_pictures,
    picture_facts,
    signature,
    smooth,
    sound_facts,
    written,
)  # fmt: skip


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
def test_npz_by_input_name_with_labels(tmp_path: Path, save) -> None:
    x, y = smooth(40, 1, 8, 8), np.arange(40) % 10
    save(tmp_path / "a.npz", input=x, label=y)
    info, store = written(tmp_path / "a.npz", facts(), tmp_path)
    assert (info.count, info.labelled, info.kind, info.available) == (40, True, "npz", 40)
    assert info.classes == dict.fromkeys(range(10), 4)
    for i, sample in enumerate(store):
        assert np.array_equal(sample.feed["input"], x[i : i + 1])
        assert sample.label is not None and sample.label.tolist() == [y[i]]
        assert sample.where == f"{tmp_path}/a.npz[{i}]"


def test_batch_in_the_array_of_samples_is_accepted_and_doubles_become_floats(tmp_path: Path) -> None:
    x = smooth(6, 1, 8, 8).astype(np.float64)
    np.savez(tmp_path / "a.npz", input=x[:, None])  # [S, 1, 1, 8, 8]: the batch is already there
    _, store = written(tmp_path / "a.npz", facts(), tmp_path)
    assert store[3].feed["input"].dtype == np.float32 and store[3].feed["input"].shape == (1, 1, 8, 8)
    assert np.array_equal(store[3].feed["input"][0], x[3].astype(np.float32))


def test_one_array_of_any_name_feeds_the_only_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", smooth(5, 1, 8, 8))
    np.save(tmp_path / "a.npy", np.asfortranarray(smooth(5, 1, 8, 8)))
    one, _ = written(tmp_path / "a.npz", facts(), tmp_path)
    other, _ = written(tmp_path / "a.npy", facts(), tmp_path)
    assert one.count == other.count == 5 and one.fingerprint == other.fingerprint


def test_two_inputs_need_their_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", ids=np.ones((5, 7), np.int64), attention_mask=np.ones((5, 7), np.int64))
    with pytest.raises(InputError, match="no array for the model's input 'mask'") as caught:
        written(tmp_path / "a.npz", facts(TEXT), tmp_path)
    assert "attention_mask" in caught.value.why and "np.savez" in caught.value.fix


def test_integers_of_another_width_are_taken_when_they_fit(tmp_path: Path) -> None:
    ids = np.arange(35).reshape(5, 7)
    np.savez(tmp_path / "a.npz", ids=ids, mask=np.ones((5, 7), bool), spare=np.zeros(3))
    info, store = written(tmp_path / "a.npz", facts(TEXT), tmp_path)
    assert store[1].feed["ids"].dtype == np.int32 and store[1].feed["ids"].tolist() == [list(range(7, 14))]
    assert store[1].feed["mask"].dtype == np.int64
    assert [w.code for w in info.warnings] == ["unused_arrays"]
    np.savez(tmp_path / "b.npz", ids=ids + 2**40, mask=np.ones((5, 7), bool))
    with pytest.raises(InputError, match="int32 can't hold") as caught:
        written(tmp_path / "b.npz", facts(TEXT), tmp_path)
    assert caught.value.code == "value_out_of_range"


def test_floats_are_never_rounded_to_ids(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", ids=np.ones((5, 7)), mask=np.ones((5, 7), np.int64))
    with pytest.raises(InputError) as caught:
        written(tmp_path / "a.npz", facts(TEXT), tmp_path)
    assert caught.value.code == "wrong_dtype" and caught.value.exit == 3 and "'ids'" in caught.value.message


def test_a_scalar_array_is_the_same_for_every_sample(tmp_path: Path) -> None:
    known = facts(signature(TensorSpec("input", "float32", (1, 512)), TensorSpec("sr", "int64", ())))
    np.savez(tmp_path / "a.npz", input=np.random.default_rng(0).normal(size=(3, 512)), sr=16000)
    _, store = written(tmp_path / "a.npz", known, tmp_path)
    assert [int(s.feed["sr"]) for s in store] == [16000] * 3 and store[2].feed["input"].shape == (1, 512)


def test_rows_are_put_together_for_a_fixed_batch(tmp_path: Path) -> None:
    x = smooth(10, 1, 8, 8)
    np.savez(tmp_path / "a.npz", input=x, label=np.arange(10))
    info, store = written(tmp_path / "a.npz", facts(FIXED), tmp_path)
    assert info.count == 2 and np.array_equal(store[1].feed["input"], x[4:8])
    assert store[1].label is not None and store[1].label.tolist() == [4, 5, 6, 7]
    assert [w.code for w in info.warnings] == ["rows_left_out"] and "2 rows" in info.warnings[0].message
    np.savez(tmp_path / "b.npz", input=x[:3])
    with pytest.raises(InputError, match="batches of 4"):
        written(tmp_path / "b.npz", facts(FIXED), tmp_path)


def test_texts_of_different_lengths_come_as_a_folder(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for i in range(1, 6):
        np.savez(tmp_path / "texts" / f"{i}.npz", ids=np.arange(i), mask=np.ones(i, np.int64), label=i % 2)
    info, store = written(tmp_path / "texts", facts(TEXT), tmp_path)
    assert info.kind == "arrays" and [s.feed["ids"].shape for s in store] == [(1, i) for i in range(1, 6)]
    assert info.labelled and store[0].label is not None and store[0].label.tolist() == [1]
    np.savez(tmp_path / "texts" / "9.npz", ids=np.arange(4), mask=np.ones(5, np.int64), label=0)
    with pytest.raises(InputError, match=r"9\.npz.*'ids' and 'mask' must agree"):
        written(tmp_path / "texts", facts(TEXT), tmp_path)


def test_a_folder_of_npy_with_class_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(3):
            np.save(tmp_path / "data" / name / f"{i}.npy", smooth(1, 1, 8, 8, seed=i)[0])
    info, _ = written(tmp_path / "data", facts(), tmp_path)
    assert info.classes == {0: 3, 1: 3}


def test_pictures_go_through_the_model_s_own_preprocessing(tmp_path: Path) -> None:
    known = picture_facts(mean=MEAN, std=STD)
    folder = folder_of_pictures(tmp_path / "p", {"": 3}, size=24)
    info, store = written(folder, known, tmp_path)
    assert info.kind == "images" and not info.labelled and known.preprocess is not None
    for sample in store:
        assert np.array_equal(sample.feed["input"], known.preprocess.apply(sample.where))


def test_class_folders_are_labels(tmp_path: Path) -> None:
    folder = folder_of_pictures(tmp_path / "p", {"Tabby Cat": 2, "dog": 3, "zebra": 1})
    plain, _ = written(folder, picture_facts(), tmp_path)
    assert plain.classes == {0: 2, 1: 3, 2: 1}  # sorted, as torchvision's ImageFolder
    named, store = written(folder, picture_facts(labels=("dog", "zebra", "tabby_cat", "owl")), tmp_path)
    assert named.classes == {0: 3, 1: 1, 2: 2} and not named.warnings
    assert next(s.label for s in store if "zebra" in s.where).tolist() == [1]  # type: ignore[union-attr]


def test_class_folders_that_are_no_labels_are_told(tmp_path: Path) -> None:
    folder = folder_of_pictures(tmp_path / "p", {"n01440764": 1, "n01443537": 1})
    info, _ = written(folder, picture_facts(labels=("tench", "goldfish", "a", "b")), tmp_path)
    assert [w.code for w in info.warnings] == ["class_order_assumed"]  # ImageNet's folders
    others = folder_of_pictures(tmp_path / "q", {"alpha": 1, "beta": 1})
    with pytest.raises(InputError, match="none of the classes"):
        written(others, picture_facts(labels=("tench", "goldfish", "a", "b")), tmp_path)
    folder_of_pictures(folder, {"tench": 1})
    with pytest.raises(InputError) as caught:
        written(folder, picture_facts(labels=("tench", "goldfish", "a", "b")), tmp_path)
    assert caught.value.code == "unknown_class"


def test_folders_with_numbers_are_these_class_numbers(tmp_path: Path) -> None:
    folder = folder_of_pictures(tmp_path / "p", {"0": 1, "2": 1, "10": 1})
    info, _ = written(folder, picture_facts(), tmp_path)
    assert info.classes == {0: 1, 2: 1, 10: 1}


def test_train_and_test_are_no_classes(tmp_path: Path) -> None:
    folder = folder_of_pictures(tmp_path / "p", {"train/a": 1, "test/a": 1})
    with pytest.raises(InputError, match="not classes") as caught:
        written(folder, picture_facts(), tmp_path)
    assert str(folder / "test") in caught.value.fix


def test_pictures_without_a_preprocessing_are_refused_with_the_options_to_give(tmp_path: Path) -> None:
    folder = folder_of_pictures(tmp_path / "p", {"": 1})
    with pytest.raises(InputError) as caught:
        written(folder, facts(RGB), tmp_path)
    assert caught.value.code == "no_preprocess"
    side = RGB.inputs[0].shape[-1]  # the example is of the model's own size
    for option in (f"--image {side}", "--mean", "--std"):
        assert option in caught.value.fix


def test_sounds(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    for i in range(3):
        with wave.open(str(tmp_path / "s" / f"{i}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16000)
            file.writeframes((np.sin(np.arange(900) / (9 + i)) * 9000).astype("<i2").tobytes())
    info, store = written(tmp_path / "s", sound_facts(), tmp_path)
    assert info.kind == "sounds" and store[0].feed["wave"].shape == (1, 800)
    with pytest.raises(InputError, match="takes pictures"):
        written(tmp_path / "s", picture_facts(), tmp_path)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_csv_with_a_column_per_value(tmp_path: Path) -> None:
    x = smooth(12, 1, 8, 8)
    header = ",".join(f"input_{i}" for i in range(64))
    lines = [",".join(map(repr, map(float, row.ravel()))) + f",{i % 3}" for i, row in enumerate(x)]
    (tmp_path / "a.csv").write_text("\n".join([header + ",label", *lines, ""]))
    info, store = written(tmp_path / "a.csv", facts(), tmp_path)
    assert info.kind == "csv" and info.classes == {0: 4, 1: 4, 2: 4}
    assert np.array_equal(store[5].feed["input"], x[5:6]) and store[5].where.endswith("a.csv, line 7")


def test_csv_with_feature_names_lists_and_paths(tmp_path: Path) -> None:
    tabular = facts(signature(TensorSpec("x", "float32", (Dim(1, 9), 3))))
    (tmp_path / "names.csv").write_text("age;height;weight;label\n1;2;3;a\n4;5;6,5;b\n".replace("6,5", "6.5"))
    info, store = written(tmp_path / "names.csv", tabular, tmp_path)
    assert store[1].feed["x"].tolist() == [[4, 5, 6.5]] and info.classes == {0: 1, 1: 1}
    (tmp_path / "lists.csv").write_text('ids,mask\n"[1, 2, 3]","[1, 1, 1]"\n"[4]","[1]"\n')
    _, store = written(tmp_path / "lists.csv", facts(TEXT), tmp_path)
    assert [s.feed["ids"].tolist() for s in store] == [[[1, 2, 3]], [[4]]]
    folder_of_pictures(tmp_path / "pictures", {"": 2})
    (tmp_path / "paths.csv").write_text("file,label\npictures/0.png,3\npictures/1.png,1\n")
    info, store = written(tmp_path / "paths.csv", picture_facts(), tmp_path)
    assert store[0].feed["input"].shape == (1, 3, 16, 16) and info.classes == {1: 1, 3: 1}


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("x_0,x_1,x_2\n1,2,3\n4,oops,6\n", "bad_cell", "line 3: column 'x_1' holds 'oops'"),
        ("x_0,x_1,x_2\n1,2,3\n4,5\n", "bad_table", "line 3 can't be read: it has 2 cells"),
        ("x_0,x_1,x_3\n1,2,3\n", "missing_column", "no x_2"),
        ("x_0,x_1,x_2,label\n1,2,3,0\n1,2,3,\n", "labels_missing", "row 1"),
        ("1,2,3\n4,5,6\n", "no_header", "begins with numbers"),
        ("x_0,x_1,x_2,target\n1,2,3,0\n", "label_misnamed", "'target' looks like it"),
        ("a,b,c,Labels\n1,2,3,0\n", "label_misnamed", "'Labels' looks like it"),
        ("p,class\n[1;2],0\n", "label_misnamed", "'class' looks like it"),
        ("a,b\n1,2\n", "missing_input", "no column for the model's input 'x', which takes 3 values; the file has 2 columns."),
        ("a,b,label\n1,2,0\n", "missing_input", "3 values; the file has 2 columns beside 'label'"),
        ("x\n1 2 3\n", "bad_cell", "neither a number nor a list"),
        ("x_0,x_0,x_1\n1,2,3\n", "duplicate_column", "x_0"),
        ("x_0,x_1,x_2\n", "no_samples", "holds no samples"),
        ("x_0,x_1,x_2\n1,2,http://a/b.png\n", "bad_cell", "column 'x_2'"),
    ],
)  # fmt: skip
def test_faults_of_a_table_name_line_and_column(tmp_path: Path, text: str, code: str, says: str) -> None:
    known = facts(signature(TensorSpec("x", "float32", (Dim(1, 9), 3))))
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        written(tmp_path / "a.csv", known, tmp_path)
    assert (
        caught.value.code == code and says in caught.value.message and str(tmp_path / "a.csv") in caught.value.message
    )


def test_parquet_with_lists_numbers_and_pictures_as_bytes(tmp_path: Path) -> None:
    import io

    import pyarrow
    import pyarrow.parquet

    x = smooth(40, 1, 8, 8)
    table = pyarrow.table({"input": [row.ravel().tolist() for row in x], "label": [i % 4 for i in range(40)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    info, store = written(tmp_path / "a.parquet", facts(), tmp_path)
    assert info.classes == dict.fromkeys(range(4), 10) and np.array_equal(store[33].feed["input"], x[33:34])
    folder = folder_of_pictures(tmp_path / "p", {"": 2})
    cells = [{"bytes": (folder / f"{i}.png").read_bytes(), "path": None} for i in range(2)]
    pyarrow.parquet.write_table(pyarrow.table({"image": cells, "label": ["b", "a"]}), tmp_path / "hf.parquet")
    known = picture_facts()
    info, store = written(tmp_path / "hf.parquet", known, tmp_path)
    assert known.preprocess is not None and info.classes == {0: 1, 1: 1}
    with Image.open(io.BytesIO(cells[1]["bytes"])) as image:
        assert np.array_equal(store[1].feed["input"], known.preprocess.apply(image))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"\0" * 20)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingToolError) as caught:
        written(tmp_path / "a.parquet", facts(), tmp_path)
    assert caught.value.exit == 8 and "pip install 'edgesdk[data]'" in caught.value.fix


# --- selection --------------------------------------------------------------------------------------------------------


def test_limited_samples_are_balanced_over_the_classes_and_the_same_every_time(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], [900, 90, 10])
    x = smooth(1000, 1, 8, 8)
    np.savez(tmp_path / "a.npz", input=x, label=labels)
    info, store = written(tmp_path / "a.npz", facts(), tmp_path, limit=60, seed=3, balanced=True)
    assert info.classes == {0: 25, 1: 25, 2: 10} and info.available == 1000
    first = [int(s.label[0]) for s in store.first(9)]  # type: ignore[index]
    assert sorted(first) == [0, 0, 0, 1, 1, 1, 2, 2, 2]  # a first part is already balanced
    again, _ = written(tmp_path / "a.npz", facts(), tmp_path, limit=60, seed=3, balanced=True)
    other, _ = written(tmp_path / "a.npz", facts(), tmp_path, limit=60, seed=4, balanced=True)
    assert again.fingerprint == info.fingerprint != other.fingerprint


def test_unbalanced_selection_keeps_the_shares_and_the_order(tmp_path: Path) -> None:
    labels = np.repeat([0, 1], [900, 100])
    np.savez(tmp_path / "a.npz", input=smooth(1000, 1, 8, 8), label=labels)
    info, store = written(tmp_path / "a.npz", facts(), tmp_path, limit=200, seed=0)
    assert 5 <= info.classes[1] <= 40  # 20 expected
    rows = [int(s.where.rpartition("[")[2][:-1]) for s in store]
    assert rows == sorted(rows)


def test_the_order_of_a_stateful_model_s_samples_is_kept(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", input=smooth(50, 1, 8, 8), label=np.arange(50) % 2)
    known = facts(stateful=True)
    _, store = written(tmp_path / "a.npz", known, tmp_path, limit=20, seed=1, balanced=True)
    assert [s.where for s in store] == [f"{tmp_path}/a.npz[{i}]" for i in range(20)]


def test_fingerprint_changes_with_a_value_or_a_label(tmp_path: Path) -> None:
    x, y = smooth(5, 1, 8, 8), np.zeros(5, int)
    found = set()
    for change in range(3):
        x2, y2 = x.copy(), y.copy()
        if change == 1:
            x2[2, 0, 0, 0] += 1e-3
        if change == 2:
            y2[4] = 1
        np.savez(tmp_path / "a.npz", input=x2, label=y2)
        found.add(written(tmp_path / "a.npz", facts(), tmp_path)[0].fingerprint)
    assert len(found) == 3


def test_progress_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", input=smooth(5, 1, 8, 8))
    told: list[tuple[str, float | None]] = []
    write_samples(str(tmp_path / "a.npz"), facts(GREY), tmp_path / "s", report=lambda text, f: told.append((text, f)))
    assert told and told[0][0] == "reading samples: 1" and told[0][1] == 0.2
    assert len(Store(tmp_path / "s")) == 5


def test_a_misnamed_label_is_named_beside_the_columns_that_are_there(tmp_path: Path) -> None:
    pixels = ",".join(f"p{i}" for i in range(64))
    table = tmp_path / "digits.csv"
    table.write_text(f"{pixels},target\n{','.join(['0'] * 64)},3\n")
    with pytest.raises(InputError, match="no column 'label', and 'target' looks like it") as caught:
        written(table, facts(), tmp_path)
    assert "'p0'" in caught.value.why and "and 53 more" in caught.value.why
    assert caught.value.fix.startswith("Rename the column 'target' to 'label'")


@pytest.mark.parametrize("arrays", [("input", "labels"), ("pictures", "y")])
def test_a_stray_array_of_labels_is_no_unused_array(arrays: tuple[str, str], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{arrays[0]: smooth(4, 1, 8, 8), arrays[1]: np.zeros(4, np.int64)})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"no array 'label', and '{arrays[1]}' looks like it"):
        written(tmp_path / "a.npz", facts(), tmp_path)


def test_an_input_may_be_called_as_labels_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", y=smooth(4, 1, 8, 8), label=np.zeros(4, np.int64))
    _, store = written(tmp_path / "a.npz", facts(signature(TensorSpec("y", "float32", (1, 1, 8, 8)))), tmp_path)
    assert len(store) == 4 and store.labelled


def test_columns_that_the_input_needs_are_no_misnamed_label(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("x,y,z\n1,2,3\n4,5,6\n")
    three = signature(TensorSpec("input", "float32", (1, 3)))
    _, store = written(tmp_path / "points.csv", facts(three), tmp_path)
    assert store[1].feed["input"].tolist() == [[4, 5, 6]] and not store.labelled
