"""Quantization-aware training: it learns, it can be stopped and resumed, and it says where numbers broke."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.artifacts import Dim, Model
from edgesdk.errors import InputError
from edgesdk.quantize._qat import Trainer, fine_tune
from edgesdk.runtimes import LowerConfig
from tests.quantize.pt2e.helpers import noise, store
from tests.runtimes.executorch_nets import RUNTIME, model_of


class Net(nn.Module):
    """Two convolutions with a batch norm; the class of a picture is the brightest of its four channels."""

    def __init__(self, end: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.depth, self.head = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Linear(8, 4)
        self.end = end or nn.Identity()
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depth(self.norm(self.first(x)).relu()).relu()
        return self.end(self.head(y.mean((2, 3))))


def pictures(count: int, seed: int = 0) -> tuple[list[dict[str, np.ndarray]], list[Any]]:
    feeds = noise([(1, 4, 6, 6)], count, seed)
    labels = [int(np.random.default_rng([seed, i]).integers(4)) for i in range(count)]
    for feed, label in zip(feeds, labels, strict=True):
        feed["x0"][0, label] += 2.0
    return feeds, [[label] for label in labels]


def model(net: nn.Module | None = None, batch: bool = True) -> Model:
    if not batch:
        return model_of(net or Net(), (torch.randn(1, 4, 6, 6),))
    many = torch.export.Dim("batch", min=1, max=64)
    return model_of(net or Net(), (torch.randn(2, 4, 6, 6),), dynamic=({0: many},), dims=[(Dim(1, 64), 4, 6, 6)])


def config(folder: Path, count: int = 64, **options: Any) -> LowerConfig:
    feeds, labels = pictures(count)
    data = store(folder, feeds, labels)
    return LowerConfig(
        quantization="qat-int8", calibration=data, options={"learning_rate": 0.01, "distill": 0.0, **options}
    )


def accuracy(program: Any) -> float:
    feeds, labels = pictures(64, seed=5)
    run = program.module(check_guards=False)
    with torch.no_grad():
        right = [int(run(torch.from_numpy(f["x0"]))[0].argmax()) == k[0] for f, k in zip(feeds, labels, strict=True)]
    return sum(right) / len(right)


@pytest.mark.slow
def test_training_improves_the_float_weights_for_unseen_samples(tmp_path: Path) -> None:
    given = model()
    heard: list[str] = []
    tuned = fine_tune(given, config(tmp_path, epochs=12, batch=16), heard.append)
    assert given.program is not None
    assert accuracy(given.program) < 0.5 < 0.65 < accuracy(tuned.program)
    assert len(heard) == 12 and "cross entropy" in heard[0]
    assert tuned.signature == given.signature and tuned.module is None


def test_pitfall_q_13_the_stages_are_told_in_one_metric(tmp_path: Path) -> None:
    tuned = fine_tune(model(), config(tmp_path, epochs=6, batch=16))
    (told,) = [w for w in tuned.warnings if w.code == "qat_stages"]
    found = re.fullmatch(
        r"top-1 on 64 of the training samples: float (.+), fake-quantized (.+), converted (.+)\.", told.message
    )
    assert found
    float_, fake_quantized, converted = map(float, found.groups())
    assert fake_quantized > float_ + 0.2 and abs(converted - fake_quantized) <= 2 / 64


def kept(tmp_path: Path, share: float) -> float:
    """Share of unseen pictures whose class stays, after training with labels that mean nothing."""
    given = model()
    feeds, _ = pictures(64)
    data = store(tmp_path, feeds, [[int(np.random.default_rng([7, i]).integers(4))] for i in range(64)])
    options = {"learning_rate": 0.01, "epochs": 4, "batch": 16, "distill": share}
    tuned = fine_tune(given, LowerConfig(quantization="qat-int8", calibration=data, options=options))
    programs: list[Any] = [given.program, tuned.program]
    runs = [program.module(check_guards=False) for program in programs]
    unseen = [torch.from_numpy(feed["x0"]) for feed in pictures(64, seed=5)[0]]
    with torch.no_grad():
        same = [len({int(run(x)[0].argmax()) for run in runs}) == 1 for x in unseen]
    return sum(same) / len(same)


@pytest.mark.slow
def test_distillation_keeps_what_the_net_knows_where_labels_lead_astray(tmp_path: Path) -> None:
    """Few samples learnt by heart cost a net of 90.5 % half a point; static int8 costs it nothing."""
    assert kept(tmp_path / "labels", 0.0) < 0.7 < 0.9 < kept(tmp_path / "distilled", 1.0)


@pytest.mark.slow
def test_the_tuned_file_computes_what_the_trained_graph_does(tmp_path: Path) -> None:
    lowered = RUNTIME.lower(model(), config(tmp_path, epochs=12, batch=16), tmp_path / "q.pte")
    assert {layer.precision for layer in lowered.layers} == {"int8"} and lowered.delegated_fraction == 1.0
    assert "qat_stages" in [w.code for w in lowered.warnings]
    runner = RUNTIME.load(lowered.path, model().signature)
    feeds, labels = pictures(64, seed=5)
    right = [int(runner.run([f["x0"]])[0].argmax()) == k[0] for f, k in zip(feeds, labels, strict=True)]
    assert sum(right) / 64 > 0.65


@pytest.mark.slow
def test_the_model_stays_as_it_was_and_training_is_repeatable(tmp_path: Path) -> None:
    given = model()
    assert given.program is not None
    before = {name: value.clone() for name, value in given.program.state_dict.items()}
    settings = config(tmp_path, epochs=1, batch=16)
    first, second = fine_tune(given, settings), fine_tune(given, settings)
    assert all(torch.equal(before[name], value) for name, value in given.program.state_dict.items())
    assert first.program is not None and second.program is not None
    assert first.program.state_dict.keys() >= {"first.weight", "head.weight"}
    for name, value in first.program.state_dict.items():
        assert torch.equal(value, second.program.state_dict[name])
    other = fine_tune(given, replace(settings, seed=1))
    assert other.program is not None
    assert not torch.equal(other.program.state_dict["head.weight"], first.program.state_dict["head.weight"])


@pytest.mark.slow
def test_pitfall_q_11_stopped_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    settings = config(tmp_path, epochs=2, batch=16)
    whole = Trainer(model(), settings)
    whole.train()
    first = Trainer(model(), settings)
    first.train(until=3)
    torch.save(first.state(), tmp_path / "state.pt")
    second = Trainer(model(), settings)
    second.load(torch.load(tmp_path / "state.pt", weights_only=True))
    second.train()
    assert second.step == whole.step == whole.steps == 8
    wanted = whole.prepared.state_dict()
    for name, value in second.prepared.state_dict().items():
        assert torch.equal(value, wanted[name]), name


def test_pitfall_q_11_zero_points_stay_within_int8(tmp_path: Path) -> None:
    """Activations far from zero."""
    feeds, labels = pictures(16)
    data = store(tmp_path, [{"x0": f["x0"] + 1000} for f in feeds], labels)
    options = {"epochs": 1, "batch": 8}
    trainer = Trainer(model(), LowerConfig(quantization="qat-int8", calibration=data, options=options))
    trainer.train()
    trainer.finish()
    points = [v for name, v in trainer.prepared.state_dict().items() if name.endswith("zero_point")]
    assert points and all(int(v.min()) >= -128 and int(v.max()) <= 127 for v in points)


@pytest.mark.slow
def test_a_fixed_batch_is_trained_by_adding_up_gradients(tmp_path: Path) -> None:
    """One sample at a time: the same way downhill."""
    settings = config(tmp_path, 16, epochs=1, batch=8, learning_rate=1e-3)
    start = fine_tune(model(), replace(settings, options={**settings.options, "learning_rate": 0.0})).program
    stacked, single = (fine_tune(model(batch=b), settings).program for b in (True, False))
    assert start is not None and stacked is not None and single is not None
    moves = [(p.state_dict["head.weight"] - start.state_dict["head.weight"]).flatten() for p in (stacked, single)]
    assert torch.cosine_similarity(*moves, dim=0) > 0.8


class Explodes(nn.Module):
    """Fine for small inputs, infinite for large ones."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) / (x.amax((1, 2, 3)).unsqueeze(1) < 50).to(x.dtype)


def test_pitfall_q_10_a_bad_sample_stops_training_and_is_named(tmp_path: Path) -> None:
    feeds, labels = pictures(32)
    settings = config(tmp_path / "a", 32, epochs=1, batch=8)
    third = np.random.default_rng([settings.seed, 0]).permutation(32)[16:24]
    feeds[int(third[1])]["x0"][0, 0, 0, 0] = np.nan
    settings = replace(settings, calibration=store(tmp_path / "b", feeds, labels))
    good, bad = Trainer(model(), settings), Trainer(model(), settings)
    good.train(until=2)
    warned = bad.train()
    assert warned is not None and "step 3" in warned.message and "sample" in warned.message
    assert torch.equal(bad.prepared.state_dict()["head.weight"], good.prepared.state_dict()["head.weight"])


def test_pitfall_q_10_the_layer_is_named(tmp_path: Path) -> None:
    feeds, labels = pictures(8)
    for feed in feeds:
        feed["x0"][0, 0, 0, 0] = 60.0
    data = store(tmp_path, feeds, labels)
    with pytest.raises(InputError) as caught:
        fine_tune(model(Explodes(), batch=False), LowerConfig(quantization="qat-int8", calibration=data))
    assert caught.value.code == "qat_diverged" and "div" in caught.value.message


def test_labels_are_needed(tmp_path: Path) -> None:
    data = store(tmp_path, pictures(4)[0])
    with pytest.raises(InputError) as caught:
        fine_tune(model(), LowerConfig(quantization="qat-int8", calibration=data))
    assert caught.value.code == "no_labels"


CASES: dict[str, tuple[nn.Module, Any, str]] = {
    "softmax": (Net(nn.Softmax(1)), [2], "cross entropy"),
    "log softmax": (Net(nn.LogSoftmax(1)), [2], "cross entropy"),
    "regression": (Net(), [[0.5, 1.0, -1.0, 2.0]], "mean squared error"),
    "one score": (nn.Sequential(Net(), nn.Linear(4, 1)), [1], "cross entropy"),
    "one probability": (nn.Sequential(Net(), nn.Linear(4, 1), nn.Sigmoid()), [1], "cross entropy"),
    "pixels": (nn.Conv2d(4, 5, 1), np.arange(36).reshape(1, 6, 6) % 5, "cross entropy"),
}


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.slow
def test_the_loss_follows_from_output_and_label(case: str, share: float, tmp_path: Path) -> None:
    net, label, loss = CASES[case]
    data = store(tmp_path, noise([(1, 4, 6, 6)], 4), [label] * 4)
    options = {"epochs": 8, "batch": 4, "learning_rate": 0.01, "distill": share}
    heard: list[str] = []
    fine_tune(
        model(net, batch=False), LowerConfig(quantization="qat-int8", calibration=data, options=options), heard.append
    )
    values = [float(text.rpartition(" ")[2]) for text in heard]
    assert loss in heard[0] and all(map(math.isfinite, values)) and values[-1] < values[0]


def test_labels_that_fit_nothing_are_told_with_the_outputs(tmp_path: Path) -> None:
    data = store(tmp_path, noise([(1, 4, 6, 6)], 4), [[[1, 2, 3]]] * 4)
    with pytest.raises(InputError) as caught:
        fine_tune(model(batch=False), LowerConfig(quantization="qat-int8", calibration=data))
    assert caught.value.code == "label_mismatch" and "y0 [1, 4]" in caught.value.message


class Flat(nn.Module):
    """Rows of six numbers; with ``whole`` they are one sequence without a batch."""

    def __init__(self, out: int, whole: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.o, self.whole = nn.Linear(6, 16), nn.Linear(16, out), whole

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x).relu()
        return self.o(y.mean(0, keepdim=True) if self.whole else y)


def rows_model(net: nn.Module) -> Model:
    many = torch.export.Dim("rows", min=1, max=64)
    return model_of(net, (torch.randn(9, 6),), dynamic=({0: many},), dims=[(Dim(1, 64), 6)])


def test_a_score_between_0_and_1_is_no_probability(tmp_path: Path) -> None:
    net, feeds = Flat(1), noise([(1, 6)], 24)
    with torch.no_grad():
        net.o.bias -= net(torch.cat([torch.from_numpy(feed["x0"]) for feed in feeds])).mean()
        scores = [float(net(torch.from_numpy(feed["x0"]))) for feed in feeds]
    first = next(i for i, score in enumerate(scores) if 0 < score < 0.5)
    order = [first, *(i for i in range(24) if i != first)]
    data = store(tmp_path, [feeds[i] for i in order], [[int(scores[i] > 0)] for i in order])
    trainer = Trainer(rows_model(net), LowerConfig(quantization="qat-int8", calibration=data))
    assert trainer.goal.scale == "logits"
    assert trainer.judge(trainer.prepared, rounded=False) == 1.0


def test_one_sequence_without_a_batch_is_trained_alone(tmp_path: Path) -> None:
    data = store(tmp_path, noise([(9, 6)], 12), [[i % 4] for i in range(12)])
    settings = LowerConfig(quantization="qat-int8", calibration=data, options={"epochs": 1})
    trainer = Trainer(rows_model(Flat(4, whole=True)), settings)
    assert trainer.train() is None


def test_pixels_without_a_class_are_left_out(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    feeds = noise([(1, 4, 6, 6)], 4)
    with torch.no_grad():
        right = [net(torch.from_numpy(feed["x0"])).argmax(1).numpy() for feed in feeds]
    for label, none in zip(right, (255, -1, -100), strict=False):
        label[:, 3:] = none
    right[3][:] = 255
    settings = LowerConfig(quantization="qat-int8", calibration=store(tmp_path, feeds, right), options={"distill": 0.0})
    trainer = Trainer(model_of(net, (torch.randn(1, 4, 6, 6),)), settings)
    assert trainer.judge(trainer.prepared, rounded=False) == 1.0
    assert trainer.train() is None


def test_a_label_beyond_the_classes_is_named(tmp_path: Path) -> None:
    labels = [[i % 4] for i in range(40)]
    labels[37] = [9]
    data = store(tmp_path, noise([(1, 4, 6, 6)], 40), labels)
    with pytest.raises(InputError, match=r"sample 37: the label is 9, and there are 4 classes") as caught:
        Trainer(model(), LowerConfig(quantization="qat-int8", calibration=data))
    assert caught.value.code == "label_out_of_range"


ROWS = np.arange(24) % 4
HOT = np.eye(4, dtype=np.float32)[ROWS]


@pytest.mark.parametrize(
    "labels",
    [ROWS[:, None, None], HOT[:, None], HOT.astype(np.int64)[:, None], HOT[:, None] > 0, (0.9 * HOT + 0.025)[:, None]],
    ids=["column", "one-hot", "one-hot integers", "one-hot booleans", "smoothed"],
)
def test_each_form_of_class_labels_is_the_same_goal(labels: np.ndarray, tmp_path: Path) -> None:
    """A column was refused, and one-hot rows pulled the logits themselves towards 0 and 1."""
    feeds, numbers = noise([(1, 4, 6, 6)], 24), [[int(k)] for k in ROWS]
    plain = _loss_and_score(store(tmp_path / "plain", feeds, numbers))
    found = _loss_and_score(store(tmp_path / "other", feeds, list(labels)))
    assert found[1] == plain[1]
    assert math.isclose(found[0], plain[0], rel_tol=1e-5 if set(np.unique(labels)) <= {0, 1, 2, 3} else 0.2)


def _loss_and_score(data: Path) -> tuple[float, float]:
    trainer = Trainer(model(), LowerConfig(quantization="qat-int8", calibration=data, options={"distill": 0.0}))
    samples = [trainer.store[i] for i in range(24)]
    with torch.no_grad():
        loss = float(trainer.goal.loss(trainer._outputs(trainer.prepared, samples), trainer._label(samples)))
    return loss, trainer.judge(trainer.prepared, rounded=False)


def test_a_net_that_answers_the_numbers_themselves_is_no_classifier(tmp_path: Path) -> None:
    feeds = noise([(1, 6)], 24)
    net = Flat(4)
    with torch.no_grad():
        net.o.weight *= 0.01
        net.o.bias[:] = torch.tensor([0.7, 0.1, 0.1, 0.1])
    shares = [np.float32([[0.7, 0.1, 0.1, 0.1]])] * 24
    trainer = Trainer(rows_model(net), LowerConfig(quantization="qat-int8", calibration=store(tmp_path, feeds, shares)))
    assert trainer.goal.kind == "values"


def test_whole_numbers_that_are_no_classes_are_told_with_their_range(tmp_path: Path) -> None:
    data = store(tmp_path, noise([(1, 6)], 24), [[2 * (i % 2) - 1] for i in range(24)])
    with pytest.raises(InputError, match=r"int64\[1\] from -1 to 1") as caught:
        Trainer(rows_model(Flat(1)), LowerConfig(quantization="qat-int8", calibration=data))
    assert "0 or 1 for a single score" in str(caught.value.why)
