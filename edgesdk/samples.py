"""Inputs to compare a lowered file with its original: seeded, structured, at several sizes and over several steps.

Parity on noise alone proves little (a net can be right on noise and wrong on a photo), so float inputs are smooth
pictures, tones and flat areas as well as noise, and a model with a preprocessing spec gets pictures through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgesdk.artifacts import Dim, Signature, TensorSpec

if TYPE_CHECKING:
    from edgesdk.preprocess import PreprocessSpec

Feed = dict[str, "np.ndarray"]

MAX_ELEMENTS = 2**24
"""Largest input made for the upper end of a dynamic dimension, in elements (64 MiB of float32)."""


@dataclass(frozen=True)
class Case:
    """Feeds that one freshly loaded model gets in turn; one feed unless the model is stateful."""

    label: str
    feeds: tuple[Feed, ...]


REAL = "data"
"""Label of the cases that are samples of the user's own data."""


def is_real(case: Case) -> bool:
    return case.label == REAL


def make_cases(
    signature: Signature,
    *,
    int_ranges: Mapping[str, tuple[int, int]],
    preprocess: PreprocessSpec | None = None,
    stateful: bool = False,
    seed: int = 0,
) -> tuple[Case, ...]:
    """Cases that cover the signature: least, middle and greatest sizes, several kinds of content, several steps.

    Args:
        signature: the inputs to feed; every shape must be known.
        int_ranges: half-open ranges of integer inputs by name; others get 0 and 1.
        preprocess: how pictures become the input, if known.
        stateful: calls change later calls, so each case is a sequence.
    """
    rng = np.random.default_rng(seed)
    cases = []
    for label, sizes in _size_sets(signature):
        kinds = range(4 if label in ("static", "middle") else 2)
        feeds = [_feed(signature, sizes, int_ranges, preprocess, kind, rng) for kind in kinds]
        if stateful:
            cases.append(Case(label, tuple(feeds)))
            cases.append(Case(label, tuple(feeds[:2])))  # a second sequence: the state must start anew
        else:
            cases.extend(Case(label, (feed,)) for feed in feeds)
    return tuple(cases)


def _size_sets(signature: Signature) -> list[tuple[str, dict[str, int]]]:
    """Sizes for each symbol of the signature, by label. Dimensions of one symbol always get the same size."""
    dims = {
        _key(spec, i, d): d for spec in signature.inputs for i, d in enumerate(spec.shape or ()) if isinstance(d, Dim)
    }
    if not dims:
        return [("static", {})]
    least = {key: d.min for key, d in dims.items()}
    middle = {key: (d.min + d.max) // 2 for key, d in dims.items()}
    greatest = {key: d.max for key, d in dims.items()}
    for chosen in (middle, greatest):
        while _elements(signature, chosen) > MAX_ELEMENTS and chosen != least:
            chosen.update({key: max(least[key], size // 2) for key, size in chosen.items()})
    named = [("least", least), ("middle", middle), ("greatest", greatest)]
    return [(label, sizes) for i, (label, sizes) in enumerate(named) if sizes not in [s for _, s in named[:i]]]


def _key(spec: TensorSpec, index: int, dim: Dim) -> str:
    return dim.symbol or f"{spec.name}.{index}"


def concrete(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input once every dynamic dimension has a size."""
    return tuple(sizes[_key(spec, i, d)] if isinstance(d, Dim) else d for i, d in enumerate(spec.shape or ()))


def _elements(signature: Signature, sizes: Mapping[str, int]) -> int:
    return max((int(np.prod(concrete(spec, sizes), dtype=np.int64)) for spec in signature.inputs), default=1)


def _feed(
    signature: Signature,
    sizes: Mapping[str, int],
    int_ranges: Mapping[str, tuple[int, int]],
    preprocess: PreprocessSpec | None,
    kind: int,
    rng: np.random.Generator,
) -> Feed:
    feed: Feed = {}
    for spec in signature.inputs:
        shape = concrete(spec, sizes)
        if spec.dtype == "bool":
            feed[spec.name] = _mask(shape, kind, rng)
        elif spec.dtype.startswith(("int", "uint")):
            low, high = int_ranges.get(spec.name, (0, 2))
            feed[spec.name] = np.asarray(rng.integers(low, max(high, low + 1), shape), dtype=spec.dtype)
        else:
            picture = _picture(preprocess, spec, shape, kind, rng) if preprocess else None
            values = picture if picture is not None else _floats(shape, kind, rng)
            feed[spec.name] = np.array(values, dtype=_numpy_dtype(spec.dtype), order="C")
    return feed


def _mask(shape: tuple[int, ...], kind: int, rng: np.random.Generator) -> np.ndarray:
    """Both values in every row of more than one: where all positions are masked, attention answers NaN or fails, and
    whether True means kept or masked isn't known."""
    mask = np.asarray(rng.random(shape) < (0.7, 0.5, 0.9, 0.3)[kind])
    if shape and shape[-1] > 1:
        mask[..., 0], mask[..., -1] = kind % 2 == 0, kind % 2 == 1
    return mask


def _numpy_dtype(name: str) -> str:
    return "float32" if name == "bfloat16" else name


def _picture(
    preprocess: PreprocessSpec, spec: TensorSpec, shape: tuple[int, ...], kind: int, rng: np.random.Generator
) -> np.ndarray | None:
    """A synthetic photo through the model's own preprocessing; None when this input isn't the picture."""
    if kind == 3 or len(shape) != 4 or preprocess.kind != "image":  # one sample stays noise
        return None
    tensor = preprocess.apply(synthetic_photo(96 + 40 * kind, 128, rng))
    if tuple(tensor.shape[1:]) != shape[1:]:
        return None
    return np.repeat(tensor, shape[0], axis=0)


def synthetic_photo(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """uint8 [height, width, 3]: smooth light, a few flat shapes with hard edges, a little sensor noise."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    image = np.stack(
        [127 + 100 * np.sin(x / rng.uniform(9, 40) + c) * np.cos(y / rng.uniform(9, 40)) for c in range(3)], -1
    )
    for _ in range(4):
        top, left = rng.integers(0, height // 2), rng.integers(0, width // 2)
        image[top : top + height // 3, left : left + width // 3] = rng.uniform(0, 255, 3)
    return np.clip(image + rng.normal(0, 4, image.shape), 0, 255).astype(np.uint8)


def _floats(shape: tuple[int, ...], kind: int, rng: np.random.Generator) -> np.ndarray:
    """One kind of content for any rank: smooth and flat areas, tones, uniform 0…1, normal noise."""
    if kind == 2:
        return rng.random(shape)
    if kind == 3 or not shape or shape[-1] < 4:
        return rng.normal(0, 1, shape)
    along = np.arange(shape[-1]) / shape[-1]
    tone = np.sin(2 * np.pi * rng.uniform(1, 8) * along)
    across = np.sin(np.arange(int(np.prod(shape[:-1], dtype=np.int64))) / 7.0).reshape(*shape[:-1], 1)
    values = tone * (0.5 + 0.5 * across) if kind == 1 else np.sign(tone) * 0.7 + across * 0.6
    return values + rng.normal(0, 0.05, shape)


def describe_shapes(cases: tuple[Case, ...]) -> tuple[str, ...]:
    """The distinct input shapes of the cases, as words for a report: ``input[1,3,224,224]``."""
    seen: dict[str, None] = {}
    for case in cases:
        for feed in case.feeds:
            seen[" ".join(f"{name}[{','.join(map(str, a.shape))}]" for name, a in feed.items())] = None
    return tuple(seen)


def save_cases(path: Path, cases: tuple[Case, ...]) -> None:
    """Write cases as an ``.npz``; arrays are named ``CASE.STEP.LABEL.INPUT``."""
    arrays = {
        f"{c}.{s}.{case.label}.{name}": array
        for c, case in enumerate(cases)
        for s, feed in enumerate(case.feeds)
        for name, array in feed.items()
    }
    _save(path, arrays)


def load_cases(path: Path) -> tuple[Case, ...]:
    """Read what :func:`save_cases` wrote."""
    found: dict[int, dict[int, Feed]] = {}
    labels: dict[int, str] = {}
    for key, array in _load(path).items():
        case, step, label, name = key.split(".", 3)
        labels[int(case)] = label
        found.setdefault(int(case), {}).setdefault(int(step), {})[name] = array
    return tuple(Case(labels[c], tuple(found[c][s] for s in sorted(found[c]))) for c in sorted(found))


def save_outputs(path: Path, outputs: Sequence[Sequence[Feed]]) -> None:
    """Write outputs, a list over the steps for each case, as an ``.npz``; arrays are named ``CASE.STEP.OUTPUT``."""
    arrays = {
        f"{c}.{s}.{name}": a
        for c, steps in enumerate(outputs)
        for s, step in enumerate(steps)
        for name, a in step.items()
    }
    _save(path, arrays)


def load_outputs(path: Path) -> list[list[Feed]]:
    """Read what :func:`save_outputs` wrote."""
    found: dict[int, dict[int, Feed]] = {}
    for key, array in _load(path).items():
        case, step, name = key.split(".", 2)
        found.setdefault(int(case), {}).setdefault(int(step), {})[name] = array
    return [[found[c][s] for s in sorted(found[c])] for c in sorted(found)]


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    # A name such as "file" would collide with savez's own parameter, so arrays are numbered and the names kept apart.
    names = np.array(list(arrays), dtype=np.str_)
    np.savez(path, names, *arrays.values())


def _load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as found:
        names = [str(name) for name in found["arr_0"]]
        return {name: found[f"arr_{i + 1}"] for i, name in enumerate(names)}
