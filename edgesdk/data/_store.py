"""Samples on disk, as the model takes them: written once while they stream in, read by every worker without a copy.

A folder with ``samples.bin`` (the arrays one after the other, each at a multiple of 64 bytes) and ``index.json``. Shapes
may differ from sample to sample (texts, sounds). Reading maps one array at a time: pages of a file that stays mapped count as
the process's memory, which would grow with the number of samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

Feed = dict[str, "np.ndarray"]
_ALIGN = 64
_MAPPED = 1 << 16
"""Bytes from which an array is mapped; smaller ones (labels, which callers collect) are read: a process has 65,530 maps."""
_LABEL = "label"


@dataclass(frozen=True)
class Sample:
    """One call of the model.

    Attributes:
        feed: inputs by name, batch dimension included (of size 1, unless the signature fixes another).
        label: what the call should answer: an integer array [batch] for classes, or an array of the output's shape for
            regression and segmentation; None when the data carry none.
        where: the file or row it came from, for messages.
    """

    feed: Feed
    label: np.ndarray | None
    where: str


class StoreWriter:
    """Writes a store sample by sample; use it as a context manager. Without a clean exit no index is written."""

    def __init__(self, folder: Path, facts: Mapping[str, Any] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._facts = dict(facts or {})
        self._samples: list[dict[str, Any]] = []
        self._file = (folder / "samples.bin").open("wb")

    def append(self, sample: Sample) -> None:
        entry: dict[str, Any] = {"where": sample.where, "feed": {k: self._put(v) for k, v in sample.feed.items()}}
        if sample.label is not None:
            entry[_LABEL] = self._put(sample.label)
        self._samples.append(entry)

    def reorder(self, order: Sequence[int]) -> None:
        """Samples are read in this order instead of that in which they were appended."""
        self._samples = [self._samples[index] for index in order]

    def note(self, facts: Mapping[str, Any]) -> None:
        """Add to what readers find in :attr:`Store.facts`."""
        self._facts.update(facts)

    def _put(self, array: np.ndarray) -> list[Any]:
        array = np.asarray(array, order="C")
        self._file.write(b"\0" * (-self._file.tell() % _ALIGN))
        begin = self._file.tell()
        self._file.write(array.tobytes())
        return [begin, array.dtype.str, list(array.shape)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is None:
            document = {"facts": self._facts, "samples": self._samples}
            (self._folder / "index.json").write_text(json.dumps(document))


class Store:
    """Reads what a :class:`StoreWriter` wrote. Arrays are read-only."""

    def __init__(self, folder: Path) -> None:
        document = json.loads((folder / "index.json").read_text())
        self.facts: Mapping[str, Any] = document["facts"]
        self._samples = document["samples"]
        self._path = folder / "samples.bin"

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def labelled(self) -> bool:
        return bool(self._samples) and all(_LABEL in entry for entry in self._samples)

    def __getitem__(self, index: int) -> Sample:
        entry = self._samples[index]
        feed = {name: self._get(*place) for name, place in entry["feed"].items()}
        return Sample(feed, self._get(*entry[_LABEL]) if _LABEL in entry else None, entry["where"])

    def __iter__(self) -> Iterator[Sample]:
        return (self[index] for index in range(len(self)))

    def first(self, count: int) -> Iterator[Sample]:
        """The first ``count`` samples, or all when there are fewer."""
        return (self[index] for index in range(min(count, len(self))))

    def _get(self, begin: int, dtype: str, shape: list[int]) -> np.ndarray:
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        array: np.ndarray
        if count * kind.itemsize < _MAPPED:
            array = np.fromfile(self._path, kind, count, offset=begin).reshape(shape)
            array.flags.writeable = False
        else:
            array = np.asarray(np.memmap(self._path, kind, "r", begin, tuple(shape)))
        return array
