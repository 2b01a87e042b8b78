"""Signatures, data and short cuts for the tests of samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from edgesdk.artifacts import Dim, Signature, TensorSpec
from edgesdk.data import ModelFacts, SamplesInfo, Store, check_samples, write_samples
from edgesdk.preprocess import AudioSpec, PreprocessSpec

N = Dim(1, 8, "n")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def signature(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...] | None = None) -> Signature:
    return Signature(inputs, outputs or (TensorSpec("scores", "float32", (N, 10)),))


GREY = signature(TensorSpec("input", "float32", (N, 1, 8, 8)))
RGB = signature(TensorSpec("input", "float32", (1, 3, 16, 16)), outputs=(TensorSpec("scores", "float32", (1, 4)),))
FIXED = signature(TensorSpec("input", "float32", (4, 1, 8, 8)), outputs=(TensorSpec("scores", "float32", (4, 10)),))
TEXT = signature(TensorSpec("ids", "int32", (N, Dim(1, 16, "t"))), TensorSpec("mask", "int64", (N, Dim(1, 16, "t"))))
SEGMENT = signature(
    TensorSpec("input", "float32", (1, 3, 16, 16)), outputs=(TensorSpec("out", "float32", (1, 5, 16, 16)),)
)
REGRESS = signature(TensorSpec("x", "float32", (N, 3)), outputs=(TensorSpec("y", "float32", (N, 1)),))
SOUND = signature(TensorSpec("wave", "float32", (1, 800)))


def facts(sig: Signature = GREY, **more: Any) -> ModelFacts:
    return ModelFacts(sig, **more)


def picture_facts(sig: Signature = RGB, labels: tuple[str, ...] | None = None, **how: Any) -> ModelFacts:
    size, channels = (16, 3) if sig is not GREY else (8, 1)
    spec = PreprocessSpec.from_options(size, channels=channels, **how).bind(sig.inputs)
    return ModelFacts(sig, spec, labels)


def sound_facts() -> ModelFacts:
    return ModelFacts(SOUND, AudioSpec(samples=800).bind(SOUND.inputs))


def smooth(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Float32 pictures between 0 and 1 whose neighbours are alike, as those of photos."""
    rng = np.random.default_rng(seed)
    along, across = np.linspace(0, 3, shape[-1]), np.linspace(0, 3, shape[-2])[:, None]
    phase = rng.uniform(0, 6, (count, *([1] * len(shape))))
    waves = 0.5 + 0.45 * np.sin(along + phase) * np.cos(across + phase / 2)
    return np.broadcast_to(waves, (count, *shape)).astype(np.float32)


def folder_of_pictures(folder: Path, classes: dict[str, int], size: int = 16) -> Path:
    rng = np.random.default_rng(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            pixels = (smooth(1, 3, size, size, seed=int(rng.integers(1 << 30)))[0].transpose(1, 2, 0) * 255).astype(
                "u1"
            )
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def written(path: Path | str, known: ModelFacts, folder: Path, **options: Any) -> tuple[SamplesInfo, Store]:
    target = folder / "store"
    info = write_samples(str(path), known, target, **options)
    return info, Store(target)


def codes(path: Path | str, known: ModelFacts, folder: Path, role: str = "calibration") -> list[str]:
    """Codes of the warnings that a user gets to see for these data."""
    info, store = written(path, known, folder)
    found = check_samples(store, known, role)  # type: ignore[arg-type]
    return [warn.code for warn in (*info.warnings, *found)]


def messages(path: Path | str, known: ModelFacts, folder: Path, role: str = "calibration") -> str:
    _, store = written(path, known, folder)
    return "\n".join(warn.message for warn in check_samples(store, known, role))  # type: ignore[arg-type]
