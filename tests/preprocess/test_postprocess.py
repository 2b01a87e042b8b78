"""Answers are those of torch and torchvision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgesdk.errors import InputError
from edgesdk.preprocess import Postprocess
from edgesdk.preprocess._answers import nms

RNG = np.random.default_rng(3)


def boxes(count: int) -> np.ndarray:
    corner = RNG.uniform(0, 50, (count, 2))
    return np.concatenate([corner, corner + RNG.uniform(0, 30, (count, 2))], axis=1).astype(np.float32)


@pytest.mark.parametrize("seed", range(20))
def test_nms_keeps_what_torchvision_keeps(seed: int) -> None:
    from torchvision.ops import nms as reference

    box = boxes(200)
    scores = RNG.integers(0, 20, 200).astype(np.float32) / 20  # with ties
    box[10] = box[11]
    box[12, 2:] = box[12, :2]
    threshold = seed / 20
    assert nms(box, scores, threshold) == reference(torch.from_numpy(box), torch.from_numpy(scores), threshold).tolist()


def test_boxes_equal_batched_nms() -> None:
    from torchvision.ops import batched_nms

    box, scores, kinds = boxes(150), RNG.uniform(0, 1, 150).astype(np.float32), RNG.integers(0, 4, 150)
    post = Postprocess("boxes", classes="kinds", activation="none", min_score=0.3, iou=0.4, max_boxes=20)
    found = post.apply({"boxes": box[None], "scores": scores[None], "kinds": kinds[None]}, ["a", "b", "c"])
    take = np.nonzero(scores > 0.3)[0]
    kept = batched_nms(*(torch.from_numpy(v[take]) for v in (box, scores, kinds)), 0.4)[:20]
    assert [(b.x0, b.y1, b.label.index) for b in found] == [(box[i, 0], box[i, 3], kinds[i]) for i in take[kept]]
    assert {b.label.name for b in found} <= {"a", "b", "c", "class 3"}


def test_boxes_of_ssd_with_a_background_class() -> None:
    """Scores of several classes for each box: torchvision's detectors in their own post-processing."""
    from torchvision.ops import batched_nms

    box, logits = boxes(60), RNG.normal(0, 2, (60, 5)).astype(np.float32)
    post = Postprocess("boxes", activation="softmax", min_score=0.1, iou=0.5, background=0, max_boxes=300)
    found = post.apply({"boxes": box, "scores": logits})
    scores = torch.softmax(torch.from_numpy(logits).double(), -1)
    rows, columns = torch.nonzero(scores[:, 1:] > 0.1, as_tuple=True)
    columns += 1
    kept = batched_nms(torch.from_numpy(box)[rows], scores[rows, columns].float(), columns, 0.5)
    assert [(b.x0, b.label.index) for b in found] == [(float(box[rows[i], 0]), int(columns[i])) for i in kept]


def test_no_boxes_and_no_candidates() -> None:
    empty = {"boxes": np.zeros((0, 4), np.float32), "scores": np.zeros((0, 3), np.float32)}
    assert Postprocess("boxes").apply(empty) == []
    assert (
        Postprocess("boxes", activation="none").apply({"boxes": boxes(3), "scores": np.zeros((3, 2), np.float32)}) == []
    )


def test_classify_equals_torch() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)) * 5
    for activation, function in (
        ("softmax", lambda x: x.softmax(-1)),
        ("sigmoid", torch.sigmoid),
        ("none", lambda x: x),
    ):
        top = Postprocess("classify", activation=activation, top_k=7).apply({"y": logits.numpy()})  # type: ignore[arg-type]
        values, places = function(logits)[0].topk(7)
        assert [one.index for one in top] == places.tolist()
        assert [one.score for one in top] == pytest.approx(values.tolist(), rel=1e-5)


def test_huge_scores_overflow_neither_softmax_nor_sigmoid() -> None:
    y = {"y": np.array([[1e4, -1e4, 0]], np.float32)}
    for activation in ("softmax", "sigmoid"):
        scores = [one.score for one in Postprocess("classify", activation=activation).apply(y)]  # type: ignore[arg-type]
        assert scores[0] == 1 and np.isfinite(scores).all()


def test_labels_and_fewer_classes_than_top_k() -> None:
    top = Postprocess("classify", top_k=5).apply({"y": np.array([[0.0, 3.0, 1.0]], np.float32)}, ["ant", "bee"])
    assert [one.name for one in top] == ["bee", "class 2", "ant"]


def test_segment_and_embed_equal_torch() -> None:
    planes = torch.randn(1, 6, 9, 7, generator=torch.Generator().manual_seed(1))
    wanted = planes.argmax(1)[0].numpy()
    assert np.array_equal(Postprocess("segment").apply({"out": planes.numpy()}), wanted)
    last = planes.permute(0, 2, 3, 1).contiguous().numpy()
    assert np.array_equal(Postprocess("segment", layout="nhwc").apply({"out": last}), wanted)
    one = Postprocess("segment").apply({"out": planes[:, :1].numpy()})
    assert np.array_equal(one, (planes[0, 0] > 0).int().numpy())
    vector = torch.randn(1, 33, generator=torch.Generator().manual_seed(2)) * 40
    unit = Postprocess("embed").apply({"v": vector.numpy()})
    assert unit == pytest.approx(torch.nn.functional.normalize(vector).numpy(), abs=1e-6)


def test_raw_gives_the_outputs() -> None:
    outputs = {"a": np.zeros(3), "b": np.ones(2)}
    assert Postprocess().apply(outputs) == outputs


@pytest.mark.parametrize(
    ("post", "outputs", "code"),
    [
        (Postprocess("classify", output="logit"), {"logits": np.zeros((1, 3), np.float32)}, "output_unknown"),
        (Postprocess("classify"), {"y": np.zeros((2, 3), np.float32)}, "output_shape"),
        (Postprocess("classify"), {"y": np.float32(1)}, "output_shape"),
        (Postprocess("segment"), {"y": np.zeros((1, 0, 2, 2), np.float32)}, "output_shape"),
        (Postprocess("classify"), {"y": np.array([[np.nan, 1]], np.float32)}, "output_not_finite"),
        (Postprocess("segment"), {"y": np.zeros((1, 3), np.float32)}, "output_shape"),
        (Postprocess("boxes"), {"boxes": np.zeros((4, 5), np.float32), "scores": np.zeros(4, np.float32)}, "output_shape"),
        (Postprocess("boxes"), {"boxes": boxes(4), "scores": np.zeros(6, np.float32)}, "output_shape"),
        (Postprocess("boxes", classes="c"), {"boxes": boxes(4), "scores": np.zeros(4, np.float32), "c": np.zeros(3)}, "output_shape"),
    ],
)  # fmt: skip
def test_outputs_of_another_kind_are_refused(post: Postprocess, outputs: dict[str, np.ndarray], code: str) -> None:
    with pytest.raises(InputError) as caught:
        post.apply(outputs)
    assert caught.value.code == code
