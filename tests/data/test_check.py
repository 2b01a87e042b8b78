"""Every fault of calibration and evaluation data is told, and names the place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.data import ModelFacts, Sample, Store, StoreWriter, check_samples, compare_samples, write_samples
from edgesdk.errors import InputError
from edgesdk.preprocess import AudioSpec

from .helpers import (
    GREY,
    MEAN,
    REGRESS,
    RGB,
    SEGMENT,
    SOUND,
    STD,
    TEXT,
    codes,
    facts,
    folder_of_pictures,
    messages,
    picture_facts,
    signature,
    smooth,
    sound_facts,
    written,
)  # fmt: skip


def npz(tmp_path: Path, **arrays: np.ndarray) -> Path:
    np.savez(tmp_path / "a.npz", **arrays)
    return tmp_path / "a.npz"


def fault(tmp_path: Path, known, role: str = "calibration", **arrays: np.ndarray) -> InputError:
    with pytest.raises(InputError) as caught:
        codes(npz(tmp_path, **arrays), known, tmp_path, role)
    assert caught.value.exit == 3 and caught.value.why and caught.value.fix
    return caught.value


def normalised(count: int) -> np.ndarray:
    x = smooth(count, 3, 16, 16)
    return ((x - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))).astype(np.float32)


@pytest.mark.parametrize("role", ["calibration", "evaluation"])
def test_good_data_pass_without_a_word(tmp_path: Path, role: str) -> None:
    x, y = smooth(64, 1, 8, 8), np.arange(64) % 10
    assert codes(npz(tmp_path, input=x, label=y), facts(), tmp_path, role) == []
    assert codes(npz(tmp_path, input=x, label=y), picture_facts(GREY), tmp_path, role) == []
    known = picture_facts(mean=MEAN, std=STD)
    assert codes(npz(tmp_path, input=normalised(40)), known, tmp_path, role) == []
    assert codes(folder_of_pictures(tmp_path / "p", {"": 40}), known, tmp_path, role) == []


def test_pitfall_q_09_no_samples(tmp_path: Path) -> None:
    error = fault(tmp_path, facts(), input=np.zeros((0, 1, 8, 8), np.float32))
    assert error.code == "no_samples" and "a.npz" in error.message
    with StoreWriter(tmp_path / "empty"):
        pass
    with pytest.raises(InputError, match="--calibration holds no samples"):
        check_samples(Store(tmp_path / "empty"), facts(), "calibration")


def test_pitfall_q_09_too_few_samples(tmp_path: Path) -> None:
    path = npz(tmp_path, input=smooth(31, 1, 8, 8))
    assert codes(path, facts(), tmp_path) == ["few_samples"]
    said = messages(path, facts(), tmp_path)
    assert "31 sample(s)" in said and str(path) in said
    assert "3.2 points" in messages(path, facts(), tmp_path, "evaluation")
    assert codes(npz(tmp_path, input=smooth(32, 1, 8, 8)), facts(), tmp_path) == []


@pytest.mark.parametrize("values", ["blank", "alike"])
def test_pitfall_q_09_constant_data_are_refused_for_calibration(tmp_path: Path, values: str) -> None:
    x = np.zeros((40, 1, 8, 8), np.float32) if values == "blank" else np.repeat(smooth(1, 1, 8, 8), 40, 0)
    if values == "blank":
        x += np.arange(40, dtype=np.float32).reshape(-1, 1, 1, 1) / 40  # each of one colour, not all of the same
    error = fault(tmp_path, facts(), input=x)
    assert error.code == "constant_calibration" and "a.npz[0]" in error.message
    assert "constant_evaluation" in codes(npz(tmp_path, input=x), facts(), tmp_path, "evaluation")


def test_pitfall_q_09_blank_pictures_are_named(tmp_path: Path) -> None:
    folder = folder_of_pictures(tmp_path / "p", {"": 40})
    Image.new("RGB", (16, 16), (255, 255, 255)).save(folder / "7.png")
    assert codes(folder, picture_facts(), tmp_path) == ["blank_samples"]
    assert str(folder / "7.png") in messages(folder, picture_facts(), tmp_path)
    for i in range(40):
        Image.new("RGB", (16, 16), (i, i, i)).save(folder / f"{i}.png")
    with pytest.raises(InputError, match="blank") as caught:
        codes(folder, picture_facts(), tmp_path)
    assert caught.value.code == "constant_calibration"


def test_pitfall_q_09_an_input_that_never_varies_is_named(tmp_path: Path) -> None:
    known = facts(signature(TensorSpec("x", "float32", (1, 4)), TensorSpec("style", "float32", (1, 4))))
    arrays = {"x": np.random.default_rng(0).normal(size=(40, 4)), "style": np.ones((40, 4))}
    assert codes(npz(tmp_path, **arrays), known, tmp_path) == ["constant_input"]
    assert "'style'" in messages(npz(tmp_path, **arrays), known, tmp_path)


def test_complex_and_empty_inputs_are_no_fault(tmp_path: Path) -> None:
    known = facts(signature(TensorSpec("z", "complex64", (1, 4))))
    z = np.random.default_rng(0).normal(size=(40, 4)) * (1 + 1j)
    assert codes(npz(tmp_path, z=z.astype(np.complex64)), known, tmp_path) == []
    assert fault(tmp_path, known, z=np.repeat(z[:1], 40, 0).astype(np.complex64)).code == "constant_calibration"
    empty = facts(signature(TensorSpec("x", "float32", (1, 4)), TensorSpec("past", "float32", (1, Dim(0, 8), 2))))
    assert codes(npz(tmp_path, x=z.real, past=np.zeros((40, 0, 2))), empty, tmp_path) == []


def test_pitfall_q_09_random_data_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for x in (rng.normal(size=(40, 3, 16, 16)), rng.random((40, 3, 16, 16))):
        assert "looks_random" in codes(npz(tmp_path, input=x), facts(RGB), tmp_path)
    known = facts(signature(TensorSpec("wave", "float32", (1, 1, 4000))))
    assert "looks_random" in codes(npz(tmp_path, wave=rng.normal(size=(40, 1, 4000))), known, tmp_path)
    tone = np.sin(np.arange(4000) / rng.uniform(3, 40, (40, 1, 1)))
    assert codes(npz(tmp_path, wave=tone), known, tmp_path) == []
    features = facts(signature(TensorSpec("x", "float32", (1, 2048))))  # features have no neighbours: nothing to tell
    assert codes(npz(tmp_path, x=rng.normal(size=(40, 2048))), features, tmp_path) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_name_the_row(tmp_path: Path, bad: float) -> None:
    x = smooth(40, 1, 8, 8)
    x[17, 0, 2, 3] = bad
    error = fault(tmp_path, facts(), input=x)
    assert error.code == "non_finite_sample" and "a.npz[17]" in error.message and "[0, 0, 2, 3]" in error.message
    error = fault(tmp_path, facts(REGRESS), "evaluation", x=np.ones((9, 3)), label=np.asarray([1.5] * 8 + [bad]))
    assert "a.npz[8]: the label" in error.message


def test_too_large_for_the_dtype_is_no_silent_infinity(tmp_path: Path) -> None:
    error = fault(tmp_path, facts(), input=np.full((3, 1, 8, 8), 1e300))
    assert error.code == "value_out_of_range"


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_channels_last_where_they_come_first(tmp_path: Path) -> None:
    error = fault(tmp_path, facts(RGB), input=smooth(40, 3, 16, 16).transpose(0, 2, 3, 1))
    assert error.code == "channel_order" and "a.npz" in error.message
    assert "[1,3,16,16]" in error.message and "[16, 16, 3]" in error.message and "transpose(0, 3, 1, 2)" in error.fix
    last = facts(signature(TensorSpec("input", "float32", (Dim(1, 4), 16, 16, 3))))
    assert "transpose(0, 2, 3, 1)" in fault(tmp_path, last, input=smooth(40, 3, 16, 16)).fix


@pytest.mark.parametrize(("channels", "known"), [(1, RGB), (4, RGB), (3, GREY)])
def test_wrong_number_of_channels(tmp_path: Path, channels: int, known) -> None:
    side = 16 if known is RGB else 8
    error = fault(tmp_path, facts(known), input=smooth(40, channels, side, side))
    assert error.code == "channel_count" and f"{channels} channel(s)" in error.why
    error = fault(tmp_path, facts(known), input=smooth(40, channels, side, side).transpose(0, 2, 3, 1))
    assert error.code == "channel_count"


def test_pictures_without_a_dimension_of_channels(tmp_path: Path) -> None:
    error = fault(tmp_path, facts(), input=smooth(40, 8, 8))
    assert error.code == "channel_count" and "array[:, None]" in error.fix


def test_wrong_size_names_both_shapes_and_the_file(tmp_path: Path) -> None:
    error = fault(tmp_path, facts(), input=smooth(40, 1, 9, 8))
    assert error.code == "shape_mismatch"
    assert "a.npz" in error.message and "[1..8,1,8,8]" in error.message and "[1, 9, 8]" in error.message
    (tmp_path / "texts").mkdir()
    for i in (3, 20):
        np.savez(tmp_path / "texts" / f"{i}.npz", ids=np.arange(i), mask=np.ones(i, np.int64))
    with pytest.raises(InputError, match=r"20\.npz.*\[1\.\.8,1\.\.16\].*\[20\]"):
        written(tmp_path / "texts", facts(TEXT), tmp_path)


def test_different_numbers_of_samples_and_labels(tmp_path: Path) -> None:
    error = fault(tmp_path, facts(TEXT), ids=np.ones((5, 7), int), mask=np.ones((6, 7), int))
    assert error.code == "sample_count" and "'ids' has 5" in error.message and "'mask' has 6" in error.message
    error = fault(tmp_path, facts(), input=smooth(5, 1, 8, 8), label=np.arange(4))
    assert error.code == "label_count" and "5 samples and 4 labels" in error.message


def test_ids_outside_the_table(tmp_path: Path) -> None:
    known = facts(TEXT, int_ranges={"ids": (0, 100)})
    ids = np.arange(35).reshape(5, 7)
    ids[3, 2] = 100
    error = fault(tmp_path, known, ids=ids, mask=np.ones((5, 7), int))
    assert error.code == "id_out_of_range" and "a.npz[3]" in error.message and "100" in error.message
    assert "0…99" in error.message


# --- ranges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "x", "says"),
    [
        ({"mean": MEAN, "std": STD}, lambda: smooth(40, 3, 16, 16) * 255, "never divided by 255"),
        ({"mean": MEAN, "std": STD}, lambda: smooth(40, 3, 16, 16), "never normalised with mean and std"),
        ({}, lambda: smooth(40, 3, 16, 16) * 255, "never divided by 255"),
        ({"mean": MEAN, "std": STD}, lambda: normalised(40)[:, ::-1], "red and blue are swapped"),
        ({}, lambda: normalised(40), "a mean and std that this model doesn't take"),
        ({"mean": MEAN, "std": STD}, lambda: normalised(40) / 255, "scaled down once too often"),
    ],
    ids=["0-255", "0-1", "0-255-for-0-1", "blue-first", "normalised-for-0-1", "divided-twice"],
)  # fmt: skip
def test_a_range_that_the_preprocessing_doesn_t_make(tmp_path: Path, how, x, says: str) -> None:
    path = npz(tmp_path, input=x())
    assert codes(path, picture_facts(**how), tmp_path) == ["suspicious_range"]
    said = messages(path, picture_facts(**how), tmp_path)
    assert says in said and str(path) in said


def test_sounds_in_another_range_than_the_preprocessing_makes(tmp_path: Path) -> None:
    wave = np.sin(np.arange(800) / np.random.default_rng(0).uniform(3, 40, (40, 1))).astype(np.float32)
    assert codes(npz(tmp_path, wave=wave), sound_facts(), tmp_path) == []
    path = npz(tmp_path, wave=np.round(wave * 20000))
    assert codes(path, sound_facts(), tmp_path) == ["suspicious_range"]
    assert "divide 16-bit ones by 32768" in messages(path, sound_facts(), tmp_path)
    standard = ModelFacts(sound_facts().signature, AudioSpec(samples=800, normalize="standard").bind(SOUND.inputs))
    assert codes(npz(tmp_path, wave=wave * 0.01), standard, tmp_path) == ["suspicious_range"]
    assert codes(npz(tmp_path, wave=wave * 1.4), standard, tmp_path) == []


def test_bytes_for_a_float_input(tmp_path: Path) -> None:
    path = npz(tmp_path, input=(smooth(40, 3, 16, 16) * 255).astype(np.uint8))
    assert codes(path, facts(RGB), tmp_path) == ["suspicious_range"]
    assert "they are bytes" in messages(path, facts(RGB), tmp_path)
    whole = npz(tmp_path, input=np.round(smooth(40, 3, 16, 16) * 255))
    assert codes(whole, facts(RGB), tmp_path) == ["suspicious_range"]


def test_calibration_from_another_world_than_the_evaluation(tmp_path: Path) -> None:
    x = smooth(40, 1, 8, 8)
    np.savez(tmp_path / "c.npz", input=x * 255)
    np.savez(tmp_path / "e.npz", input=x)
    written(tmp_path / "c.npz", facts(), tmp_path / "1")
    written(tmp_path / "e.npz", facts(), tmp_path / "2")
    one, other = Store(tmp_path / "1" / "store"), Store(tmp_path / "2" / "store")
    found = compare_samples(one, other, facts())
    assert [w.code for w in found] == ["suspicious_range"] and "'input'" in found[0].message
    found = compare_samples(other, other, facts())
    assert [w.code for w in found] == ["same_samples"] and f"{len(other)} of the {len(other)}" in found[0].message


# --- labels -----------------------------------------------------------------------------------------------------------


def test_labels_counted_from_one(tmp_path: Path) -> None:
    error = fault(tmp_path, facts(), "evaluation", input=smooth(40, 1, 8, 8), label=np.arange(40) % 10 + 1)
    assert error.code == "label_out_of_range" and "subtract 1" in error.fix and "a.npz[9]" in error.message
    error = fault(tmp_path, facts(), "evaluation", input=smooth(40, 1, 8, 8), label=np.arange(40) * 5)
    assert "another model" in error.why
    error = fault(tmp_path, facts(), "evaluation", input=smooth(40, 1, 8, 8), label=np.arange(40) % 10 - 1)
    assert "the label is -1" in error.message


def test_all_labels_of_one_class(tmp_path: Path) -> None:
    path = npz(tmp_path, input=smooth(40, 1, 8, 8), label=np.full(40, 3))
    assert codes(path, facts(), tmp_path, "evaluation") == ["one_class"]


def test_some_samples_without_a_label(tmp_path: Path) -> None:
    x = smooth(40, 1, 8, 8)
    with StoreWriter(tmp_path / "s") as writer:
        for i in range(40):
            writer.append(Sample({"input": x[i : i + 1]}, None if i == 5 else np.asarray([i % 10]), f"f{i}"))
    for free in (False, True):
        found = check_samples(Store(tmp_path / "s"), facts(), "evaluation", free_labels=free)
        assert (
            [w.code for w in found] == ["labels_missing"] and "1 of 40" in found[0].message and "f5" in found[0].message
        )


def test_samples_without_a_label_are_told_once(tmp_path: Path) -> None:
    program = tmp_path / "data.py"
    program.write_text("import numpy as np\ndef data():\n    x = np.random.default_rng(0).normal(size=(40, 1, 8, 8))\n"
                       "    return [(a.astype('float32'), None if i == 5 else i % 10) for i, a in enumerate(x)]\n")  # fmt: skip
    info = write_samples(f"{program}:data", facts(), tmp_path / "s")
    told = (*info.warnings, *check_samples(Store(tmp_path / "s"), facts(), "calibration"))
    assert [w.code for w in told].count("labels_missing") == 1


def test_maps_of_classes(tmp_path: Path) -> None:
    x = smooth(40, 3, 16, 16)
    y = np.random.default_rng(0).integers(0, 5, (40, 16, 16))
    y[0, 0] = 255  # pixels without a class
    assert codes(npz(tmp_path, input=x, label=y), facts(SEGMENT), tmp_path, "evaluation") == []
    y[7, 3, 3] = 5
    error = fault(tmp_path, facts(SEGMENT), "evaluation", input=x, label=y)
    assert error.code == "label_out_of_range" and "a.npz[7]" in error.message
    error = fault(tmp_path, facts(SEGMENT), "evaluation", input=x, label=y[:, :8])
    assert error.code == "label_shape" and "[1, 8, 16]" in error.message


def test_quantities_have_the_output_s_shape_unless_a_metric_of_one_s_own_reads_them(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    for label in (np.arange(40.0) / 7, np.arange(40.0).reshape(40, 1) / 7):
        assert codes(npz(tmp_path, x=x, label=label), facts(REGRESS), tmp_path, "evaluation") == []
    error = fault(tmp_path, facts(REGRESS), "evaluation", x=x, label=np.ones((40, 5)) / 3)
    assert error.code == "label_shape" and "a.npz[0]" in error.message
    _, store = written(tmp_path / "a.npz", facts(REGRESS), tmp_path)
    assert check_samples(store, facts(REGRESS), "evaluation", free_labels=True) == ()
