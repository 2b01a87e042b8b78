"""Metrics against scikit-learn and plain formulas, chosen by the labels, and the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, mean_absolute_error, mean_squared_error, top_k_accuracy_score

from edgesdk.artifacts import Dim, Signature, TensorSpec
from edgesdk.data import Sample, Store, StoreWriter
from edgesdk.errors import InputError, UsageError
from edgesdk.metrics import WORST_DROP, Metric, check_name, choose, find, metrics

N = Dim(1, 64, "n")
INPUT = (TensorSpec("input", "float32", (N, 4)),)


def signature(*outputs: tuple[str, str, tuple]) -> Signature:
    return Signature(INPUT, tuple(TensorSpec(*output) for output in outputs))


SCORES = signature(("aux", "float32", (N, 8, 3, 3)), ("scores", "float32", (N, 10)))
MAPS = signature(("out", "float32", (N, 4, 6, 6)))
VALUE = signature(("y", "float32", (N, 1)))
SEQUENCE = signature(("logits", "float32", (N, 7, 12)))


def store_of(folder: Path, label: np.ndarray | None) -> Store:
    with StoreWriter(folder / "s") as writer:
        writer.append(Sample({"input": np.zeros((1, 4), np.float32)}, label, "row 0"))
    return Store(folder / "s")


def fed(metric: Metric, outputs: np.ndarray, labels: np.ndarray, batch: int = 3) -> float:
    for i in range(0, len(outputs), batch):
        metric.update({metric.output: outputs[i : i + batch]}, labels[i : i + batch], f"row {i}")
    return metric.value()


def test_members_are_found_by_scanning() -> None:
    assert list(metrics()) == ["mae", "mean_iou", "mse", "top1", "top5"]


@pytest.mark.parametrize(("name", "k"), [("top1", 1), ("top5", 5)])
def test_top_k_as_scikit_learn_counts(name: str, k: int) -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(200, 10)).astype(np.float32), rng.integers(0, 10, 200)
    metric = find(name, SCORES)
    assert metric.output == "scores"
    wanted = 100 * top_k_accuracy_score(labels, scores, k=k, labels=range(10))
    assert fed(metric, scores, labels) == pytest.approx(wanted)
    assert metric.count == 200 and fed(find(name, SCORES), scores, np.eye(10)[labels]) == pytest.approx(wanted)
    assert fed(find(name, SCORES), scores, labels[:, None]) == pytest.approx(wanted)


def test_nan_scores_and_ties_don_t_count_as_right() -> None:
    scores = np.full((2, 10), np.nan, np.float32)
    assert fed(find("top1", SCORES), scores, np.zeros(2, int)) == 0
    assert fed(find("top5", SCORES), np.zeros((2, 10), np.float32), np.asarray([4, 5])) == 50  # the five first ones


def test_sequences_leave_out_what_has_no_class() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(5, 7, 12)), rng.integers(0, 12, (5, 7))
    labels[:, 5:] = -100
    wanted = 100 * (logits.argmax(-1)[:, :5] == labels[:, :5]).mean()
    metric = find("top1", SEQUENCE)
    assert fed(metric, logits, labels) == pytest.approx(wanted) and metric.count == 25


def test_mean_iou_over_all_pixels() -> None:
    rng = np.random.default_rng(0)
    out, labels = rng.normal(size=(9, 4, 6, 6)), rng.integers(0, 3, (9, 6, 6))  # class 3 occurs only in answers
    labels[0, :2] = 255
    keep = labels != 255
    matrix = confusion_matrix(labels[keep], out.argmax(1)[keep], labels=range(4))
    wanted = 100 * np.mean(np.diag(matrix) / (matrix.sum(0) + matrix.sum(1) - np.diag(matrix)))
    assert fed(find("mean_iou", MAPS), out, labels) == pytest.approx(wanted)
    assert fed(find("mean_iou", MAPS), out, labels[:, None]) == pytest.approx(wanted)
    absent = find("mean_iou", MAPS)  # classes that occur nowhere don't count
    only = np.zeros((1, 4, 6, 6))
    only[:, 1] = 1
    assert fed(absent, only, np.ones((1, 6, 6), int)) == 100


def test_errors_in_the_labels_unit() -> None:
    rng = np.random.default_rng(0)
    y, got = rng.normal(size=50), rng.normal(size=(50, 1))
    assert fed(find("mae", VALUE), got, y) == pytest.approx(mean_absolute_error(y, got))
    assert fed(find("mse", VALUE), got, y[:, None]) == pytest.approx(mean_squared_error(y, got))
    got[7] = np.nan
    assert fed(find("mae", VALUE), got, y) == np.inf


def test_labels_that_can_t_be_compared_name_the_row() -> None:
    for name, known, label in (
        ("top1", SCORES, np.zeros((1, 3), int)), ("mean_iou", MAPS, np.zeros((1, 6, 5), int)), ("mae", VALUE, np.zeros(4)),
    ):  # fmt: skip
        metric = find(name, known)
        shape = [
            1 if isinstance(d, Dim) else d for o in known.outputs if o.name == metric.output for d in o.shape or ()
        ]
        with pytest.raises(InputError, match=r"a\.npz\[5\]") as caught:
            metric.update({metric.output: np.zeros(shape)}, label, "a.npz[5]")
        assert caught.value.code == "metric_failed"


def test_drop_is_points_for_accuracies_and_percent_for_errors() -> None:
    top1, mae = find("top1", SCORES), find("mae", VALUE)
    assert top1.drop(92.0, 91.25) == 0.75 and top1.drop(90.0, 91.0) == -1.0
    assert mae.drop(2.0, 2.02) == pytest.approx(1.0) and mae.drop(2.0, 1.9) == pytest.approx(-5.0)
    assert mae.drop(0.0, 0.0) == 0.0 and mae.drop(0.0, 0.1) == WORST_DROP
    assert mae.drop(2.0, float("inf")) == WORST_DROP and top1.drop(90.0, float("nan")) == WORST_DROP


def test_fresh_starts_anew_and_leaves_the_first_alone() -> None:
    scores = np.eye(10, dtype=np.float32)
    first = find("top1", SCORES)
    fed(first, scores, np.arange(10))
    second = first.fresh()
    fed(second, scores, np.arange(10)[::-1])
    assert (first.value(), second.value()) == (100, 0) and np.isnan(first.fresh().value())
    one = find("mean_iou", MAPS)
    fed(one, np.ones((2, 4, 6, 6)), np.zeros((2, 6, 6), int))
    other = one.fresh()
    fed(other, np.ones((2, 4, 6, 6)), np.ones((2, 6, 6), int))
    assert one.value() == 100 and other.value() == 0


@pytest.mark.parametrize(
    ("known", "label", "name", "output"),
    [
        (SCORES, np.asarray([3]), "top1", "scores"),
        (SCORES, np.eye(10, dtype=np.float32)[:1], "top1", "scores"),
        (signature(("scores", "float32", (N, 10))), np.eye(10, dtype=np.float32)[:1], "top1", "scores"),
        (MAPS, np.zeros((1, 6, 6), np.int64), "mean_iou", "out"),
        (VALUE, np.asarray([1.5], np.float32), "mae", "y"),
        (MAPS, np.zeros((1, 4, 6, 6), np.float32), "mae", "out"),
        (SEQUENCE, np.zeros((1, 7), np.int64), "top1", "logits"),
        (VALUE, np.asarray([1]), None, None),  # class numbers and one score: a threshold would be a guess
        (SCORES, np.zeros((1, 3), np.float32), None, None),
        (SCORES, None, None, None),
    ],
)  # fmt: skip
def test_the_labels_choose_the_metric(tmp_path: Path, known: Signature, label, name, output) -> None:
    metric = choose(store_of(tmp_path, label), known)
    assert (metric and metric.name, metric and metric.output) == (name, output)


def test_unknown_and_unfit_metrics() -> None:
    with pytest.raises(UsageError, match="unknown") as caught:
        check_name("topp1")
    assert "top1" in caught.value.why and caught.value.exit == 2
    with pytest.raises(InputError) as other:
        find("mean_iou", VALUE)
    assert other.value.code == "metric_mismatch" and other.value.exit == 3
    with pytest.raises(InputError, match=r"absent\.py doesn't exist"):
        check_name("absent.py:metric")


# --- the user's own ---------------------------------------------------------------------------------------------------

SOURCE = """
import numpy as np
import torch

def error(outputs, label):
    return torch.tensor(np.abs(outputs["y"] - label).mean())
error.higher_is_better = False

class Share:
    points = True
    def __init__(self): self.right = self.all = 0
    def update(self, outputs, label):
        self.right += int((outputs["y"][:, 0] > 0).sum())
        self.all += len(label)
    def compute(self): return 100 * self.right / self.all

instance = Share()

class Call:
    def __call__(self, outputs, label): return 1

def fails(outputs, label):
    return outputs["wrong"]

def words(outputs, label): return "good"
def macro_f1(outputs, label): return 1.0
def mean_f1(outputs, label): return 1.0
mean_f1.per_sample = True
class F1(Share): pass
def nan(outputs, label): return float("nan")
def infinite(outputs, label): return float("inf")
def closes(outputs, label): raise GeneratorExit
number = 7
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("user") / "mine.py"
    path.write_text(SOURCE)
    return path


def test_a_function_is_averaged_over_the_calls(file: Path) -> None:
    metric = find(f"{file}:error", VALUE)
    for got in (1.0, 3.0):
        metric.update({"y": np.asarray([[got]], np.float32)}, np.zeros((1, 1)), "x")
    assert metric.value() == pytest.approx(2.0) and not metric.higher_is_better and metric.unit == "own"
    assert metric.drop(2.0, 2.5) == pytest.approx(25.0)


@pytest.mark.parametrize("member", ["Share", "instance"])
def test_an_object_with_update_and_compute(file: Path, member: str) -> None:
    metric = find(f"{file}:{member}", VALUE)
    metric.update({"y": np.asarray([[1.0], [-1.0]])}, np.zeros(2))
    other = metric.fresh()
    other.update({"y": np.asarray([[1.0]])}, np.zeros(1))
    assert (metric.value(), other.value()) == (50, 100) and metric.higher_is_better
    assert metric.name == member and metric.drop(91, 90) == 1


def test_a_figure_of_all_samples_is_not_averaged_over_single_ones(file: Path) -> None:
    with pytest.raises(InputError) as caught:
        find(f"{file}:macro_f1", VALUE)
    assert caught.value.code == "metric_of_all" and "compute()" in caught.value.fix
    for member in ("mean_f1", "F1"):
        find(f"{file}:{member}", VALUE)


def test_an_object_that_is_called(file: Path) -> None:
    metric = find(f"{file}:Call", VALUE)
    metric.update({"y": np.zeros((1, 1))}, np.zeros(1))
    assert metric.value() == 1


@pytest.mark.parametrize(
    ("member", "says"),
    [
        ("fails", "raised KeyError on row 9: 'wrong'"), ("words", "gave a str instead of a number at row 9"),
        ("nan", "gave NaN at row 9"), ("infinite", "gave infinity at row 9"), ("closes", "raised GeneratorExit on row 9"),
    ],
)  # fmt: skip
def test_mistakes_in_a_metric_are_told_with_row_and_line(file: Path, member: str, says: str) -> None:
    metric = find(f"{file}:{member}", VALUE)
    with pytest.raises(InputError) as caught:
        metric.update({"y": np.zeros((1, 1))}, np.zeros(1), "row 9")
    assert caught.value.code == "metric_failed" and says in caught.value.message
    if member == "fails":
        assert (
            f"line {SOURCE.splitlines().index('    return outputs[' + chr(34) + 'wrong' + chr(34) + ']') + 1}"
            in caught.value.message
        )


def test_names_that_are_no_metric(file: Path) -> None:
    with pytest.raises(InputError, match="has no 'absent'"):
        find(f"{file}:absent", VALUE)
    with pytest.raises(InputError, match=rf"a int is no function.*\({file}\)"):
        find(f"{file}:number", VALUE)


@pytest.mark.parametrize(
    ("name", "error"),
    [("error_rate", True), ("val_loss", True), ("WordErrorRate", True), ("mae", True), ("accuracy", False), ("metric", False),
     ("terror", False), ("glossary", False)],
)  # fmt: skip
def test_a_users_error_says_which_way_is_better(name: str, error: bool, tmp_path: Path) -> None:
    """Otherwise --max-drop takes ten per cent more errors for a gain."""
    path = tmp_path / "own.py"
    path.write_text(f"def {name}(outputs, label):\n    return 0.5\n")
    if not error:
        assert find(f"{path}:{name}", SCORES).higher_is_better
        return
    with pytest.raises(InputError) as caught:
        find(f"{path}:{name}", SCORES)
    assert caught.value.code == "metric_direction" and f"{name}.higher_is_better = False" in caught.value.fix
    path.write_text(path.read_text() + f"{name}.higher_is_better = False\n")
    found = find(f"{path}:{name}", SCORES)
    assert not found.higher_is_better and found.drop(0.0167, 0.0184) > 10
