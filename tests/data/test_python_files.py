"""``file.py:dataset``: what users write, and how their mistakes are told."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from edgesdk.data import fingerprint
from edgesdk.errors import InputError

from .helpers import GREY, TEXT, facts, picture_facts, written

SOURCE = """
import numpy as np, random, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Pairs(Dataset):
    def __len__(self): return 50
    def __getitem__(self, i): return torch.full((1, 8, 8), float(i)), i % 5

class Known(Pairs):
    targets = [0] * 45 + [1] * 5

class Stream(IterableDataset):
    def __iter__(self):
        for i in range(30):
            yield {"input": torch.rand(1, 8, 8), "label": i % 2}

class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield np.random.rand(1, 8, 8)

def loader(): return DataLoader(Pairs(), batch_size=16)

def batches():
    for _ in range(3):
        yield torch.rand(16, 1, 8, 8), torch.zeros(16, dtype=torch.long)

class Random(Dataset):
    def __len__(self): return 10
    def __getitem__(self, i): return torch.rand(1, 8, 8) + random.random() + np.random.rand()

array = np.zeros((7, 1, 8, 8), np.float32)
half = [torch.zeros(1, 8, 8, dtype=torch.bfloat16, requires_grad=True)] * 3

def two_inputs():
    for n in range(1, 4):
        yield torch.arange(n), torch.ones(n, dtype=torch.long)

def two_inputs_labelled():
    yield (torch.arange(3), torch.ones(3, dtype=torch.long)), 1
    yield torch.arange(3), torch.ones(3, dtype=torch.long), 0
    yield {"ids": torch.arange(3), "mask": torch.ones(3, dtype=torch.long)}, 1

def picture():
    from PIL import Image
    yield Image.new("RGB", (30, 20), (9, 90, 200)), 2

def fails():
    yield torch.rand(1, 8, 8)
    raise KeyError("no such row")

def wrong_name(): yield {"pixels": torch.rand(1, 8, 8)}
def wrong_shape(): yield torch.rand(3, 8, 8)
def words(): yield "a text that is no file"
def nothing(): yield from ()
def needs(size): yield torch.rand(1, 8, 8)
def leaves(): raise SystemExit(3)
def interrupts(): raise KeyboardInterrupt
def closes(): raise GeneratorExit
number = 7
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("user") / "calib.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(
    ("member", "count", "labelled"),
    [
        ("Pairs", 50, True), ("Stream", 30, True), ("loader", 50, True), ("Random", 10, False), ("array", 7, False),
        ("half", 3, False), ("batches", 3, True),
    ],
)  # fmt: skip
def test_datasets_of_all_kinds(file: Path, tmp_path: Path, member: str, count: int, labelled: bool) -> None:
    known = facts()
    if member == "batches":  # 16 rows where the model takes 1: taken apart
        from edgesdk.artifacts import TensorSpec

        from .helpers import signature

        known, count = facts(signature(TensorSpec("input", "float32", (1, 1, 8, 8)))), 48
    info, store = written(f"{file}:{member}", known, tmp_path)
    assert (info.count, info.labelled, info.kind) == (count, labelled, "python")
    assert all(s.feed["input"].shape == (1, 1, 8, 8) and s.feed["input"].dtype == np.float32 for s in store)


def test_a_stream_without_an_end_is_cut_at_the_limit(file: Path, tmp_path: Path) -> None:
    info, _ = written(f"{file}:Endless", facts(), tmp_path, limit=11)
    assert info.count == 11 and info.available is None


def test_targets_of_torchvision_s_kind_balance_the_selection(file: Path, tmp_path: Path) -> None:
    _, store = written(f"{file}:Known", facts(), tmp_path, limit=10, balanced=True)
    chosen = [int(s.feed["input"][0, 0, 0, 0]) for s in store]
    assert sum(c >= 45 for c in chosen) == 5


def test_random_augmentation_is_the_same_every_time_and_the_generators_are_put_back(file: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(1).item(), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    one, _ = written(f"{file}:Random", facts(), tmp_path)
    assert (torch.rand(1).item(), np.random.rand()) == expected
    other, _ = written(f"{file}:Random", facts(), tmp_path)
    assert one.fingerprint == other.fingerprint


def test_several_inputs_by_place_or_name_with_or_without_label(file: Path, tmp_path: Path) -> None:
    info, store = written(f"{file}:two_inputs", facts(TEXT), tmp_path)
    assert [s.feed["ids"].shape for s in store] == [(1, 1), (1, 2), (1, 3)] and not info.labelled
    info, store = written(f"{file}:two_inputs_labelled", facts(TEXT), tmp_path)
    assert info.classes == {0: 1, 1: 2} and store[1].feed["mask"].tolist() == [[1, 1, 1]]


def test_pil_pictures_are_prepared(file: Path, tmp_path: Path) -> None:
    info, store = written(f"{file}:picture", picture_facts(), tmp_path)
    assert store[0].feed["input"].shape == (1, 3, 16, 16) and info.classes == {2: 1}
    with pytest.raises(InputError, match="gives a picture"):
        written(f"{file}:picture", facts(GREY), tmp_path)


@pytest.mark.parametrize(
    ("member", "code", "says"),
    [
        ("fails", "user_code_failed", "sample 1 raised KeyError: 'no such row'"),
        ("wrong_name", "unknown_input", "sample 0 gives 'pixels'"),
        ("wrong_shape", "channel_count", "3 channel(s)"),
        ("words", "missing_file", "a text that is no file"),
        ("nothing", "no_samples", "gave no samples"),
        ("needs", "user_code_failed", "missing 1 required positional argument: 'size'"),
        ("leaves", "user_code_failed", "SystemExit"),
        ("number", "bad_dataset", "is a int"),
        ("absent", "no_dataset", "has no 'absent'"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_the_place(file: Path, tmp_path: Path, member: str, code: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        written(f"{file}:{member}", facts(), tmp_path)
    assert caught.value.code == code and says in str(caught.value)
    if member == "fails":
        line = SOURCE.splitlines().index('    raise KeyError("no such row")') + 1
        assert f"calib.py, line {line}" in caught.value.message
    assert not (tmp_path / "store").exists() and not list(tmp_path.glob("*.part"))


@pytest.fixture
def as_in_a_worker() -> Iterator[None]:
    """Workers ignore Ctrl-C: it is for the parent."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("member", "says"), [("interrupts", "KeyboardInterrupt"), ("closes", "GeneratorExit")])
def test_what_is_no_exception_is_the_dataset_s_fault_too(
    file: Path, tmp_path: Path, as_in_a_worker: None, member: str, says: str
) -> None:
    with pytest.raises(InputError, match=f"raised {says}") as caught:
        written(f"{file}:{member}", facts(), tmp_path)
    assert caught.value.code == "user_code_failed"
    (tmp_path / "loads.py").write_text(f"raise {says}\ndata = []\n")
    with pytest.raises(InputError, match=f"raised {says}"):
        written(f"{tmp_path}/loads.py:data", facts(), tmp_path)


def test_ctrl_c_itself_stays_what_it_is(file: Path, tmp_path: Path) -> None:
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            written(f"{file}:interrupts", facts(), tmp_path)
    finally:
        signal.signal(signal.SIGINT, inherited)


def test_code_that_fails_to_load_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import os\nx = 1 / 0\ndata = [x]\n")
    with pytest.raises(InputError, match="line 2") as caught:
        written(f"{tmp_path}/broken.py:data", facts(), tmp_path)
    assert caught.value.code == "user_code_failed"


def test_user_code_can_read_anything_so_it_has_no_fingerprint(file: Path) -> None:
    assert fingerprint(f"{file}:Pairs") is None
