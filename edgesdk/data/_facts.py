"""What the data side needs to know of a model, and what it tells about the samples that it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgesdk.artifacts import Model, Signature, Warn

if TYPE_CHECKING:
    from edgesdk.preprocess import PreprocessSpec


NO_TABLE = (0, 2)
"""The importer's range for a number that indexes no table it could find: it says what is safe to feed, not what is allowed."""


@dataclass(frozen=True)
class ModelFacts:
    """The part of a model that decides how samples are read.

    Attributes:
        signature: named inputs and outputs with shapes and dtypes.
        preprocess: how pictures or sounds become the input that ``preprocess.input`` names, if known.
        labels: class names in the order of the class numbers, if known.
        stateful: calls change later calls, so the samples' order means something and is kept.
        int_ranges: for integer inputs, the half-open range of values that are safe to feed, by name.
    """

    signature: Signature
    preprocess: PreprocessSpec | None = None
    labels: tuple[str, ...] | None = None
    stateful: bool = False
    int_ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def of(model: Model) -> ModelFacts:
        known = {name: limits for name, limits in model.int_ranges.items() if limits != NO_TABLE}
        return ModelFacts(model.signature, model.preprocess, model.labels, model.stateful, known)


@dataclass(frozen=True)
class SamplesInfo:
    """What :func:`write_samples` wrote.

    Attributes:
        count: samples (calls of the model).
        labelled: every sample carries a label.
        classes: samples per class number, when the labels are class numbers; else empty.
        kind: what was read: ``npz npy images arrays sounds csv parquet python``.
        available: rows that the data hold; None when only reading to the end would tell.
        bytes: of the store on disk.
        warnings: what the user should know.
        fingerprint: sha256 over the samples and their order, labels included; equal data give equal fingerprints.
    """

    count: int
    labelled: bool
    classes: Mapping[int, int]
    kind: str
    available: int | None
    bytes: int
    warnings: tuple[Warn, ...]
    fingerprint: str
