"""``--calibration`` and ``--eval`` into a store: opened by kind, chosen, shaped, written while they stream in."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgesdk import units
from edgesdk._disk import elsewhere
from edgesdk.artifacts import Warn
from edgesdk.data._choose import choose_rows, use_order
from edgesdk.data._facts import ModelFacts, SamplesInfo
from edgesdk.data._locate import DataSource, locate_data, unreadable
from edgesdk.data._readers import Reader
from edgesdk.data._shape import Shaper, batch_size
from edgesdk.data._store import Sample, StoreWriter
from edgesdk.errors import InputError

Report = Callable[[str, "float | None"], None]
RESERVE = 256 << 20
"""Bytes that are left free on the disk."""
MAX_STREAM = 1_000_000
"""Samples read of a stream without an end when no limit is given."""
_EVERY_S = 0.2  # between two words of progress
_LOOK = 64  # samples between two looks at the free space


def write_samples(
    text: str,
    model_facts: ModelFacts,
    folder: Path,
    *,
    limit: int | None = None,
    seed: int = 0,
    balanced: bool = False,
    report: Report = lambda text, fraction: None,
) -> SamplesInfo:
    """Read TEXT into a store at ``folder``.

    A sample is a complete call of the model. Rows get a batch dimension of 1, or are put together where the model takes
    a fixed batch. Without ``limit`` all rows are written.

    Args:
        text: what the user typed after ``--calibration`` or ``--eval``.
        folder: where the store goes; nothing is left there when this fails.
        limit: most samples to write. Of a stream without a known length the first ones are taken.
        seed: of the selection.
        balanced: select evenly over the classes, and mix the order so that the first part is a fair selection. A stateful
            model's samples are neither selected nor mixed.
        report: told the progress.

    Raises:
        InputError: the data can't be read, don't fit the model, or the disk has no room.
        MissingToolError: pyarrow is needed.
    """
    source = locate_data(text)
    reader = open_reader(source, model_facts, seed)
    work = folder.with_name(folder.name + ".part")
    shutil.rmtree(work, ignore_errors=True)
    try:
        info = _Writing(reader, source, model_facts, work, report).run(limit, seed, balanced)
        shutil.rmtree(folder, ignore_errors=True)
        work.replace(folder)
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_space(folder, None, None) from exc
        raise unreadable(Path(str(exc.filename or source.path)), exc) from exc
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return info


def open_reader(source: DataSource, facts: ModelFacts, seed: int = 0) -> Reader:
    """The reader of a located source.

    Raises:
        InputError: see :func:`write_samples`.
    """
    if not facts.signature.inputs:
        raise InputError(
            "no_inputs", "The model takes no inputs, so samples can't feed it.", why="It always answers the same.",
            fix="Leave --calibration and --eval out.",
        )  # fmt: skip
    if source.kind == "npz":
        from edgesdk.data._npz import NpzReader

        return NpzReader(source.path, facts)
    if source.kind == "npy":
        from edgesdk.data._npz import NpyReader

        return NpyReader(source.path, facts)
    if source.kind == "csv":
        from edgesdk.data._csv import CsvReader

        return CsvReader(source.path, facts)
    if source.kind == "parquet":
        from edgesdk.data._parquet import ParquetReader

        return ParquetReader(source.path, facts)
    if source.kind == "python":
        from edgesdk.data._python import PythonReader

        return PythonReader(source.path, source.member, facts, seed)
    from edgesdk.data._files import FilesReader

    return FilesReader(source, facts)


class _Writing:
    """One run: what was counted while the samples went by."""

    def __init__(self, reader: Reader, source: DataSource, facts: ModelFacts, folder: Path, report: Report) -> None:
        self._reader, self._source, self._facts, self._folder, self._report = reader, source, facts, folder, report
        self._hash = hashlib.sha256()
        self._numbers: list[int | None] = []
        self._bytes = 0
        self._labelled = 0
        self._told = 0.0
        self._warnings = list(reader.warnings)

    def run(self, limit: int | None, seed: int, balanced: bool) -> SamplesInfo:
        chosen = self._choose(limit, seed, balanced)
        shaper = Shaper(self._facts.signature)
        expected = self._expected(chosen, limit)
        writer = StoreWriter(self._folder)
        with writer, contextlib.closing(self._reader.rows(chosen)) as rows:
            for row in rows:
                for sample in shaper.add(row):
                    self._take(sample, writer, expected)
                    if limit is not None and len(self._numbers) >= limit:
                        break
                if len(self._numbers) >= (MAX_STREAM if limit is None else limit):
                    break
            shaper.finish()
            if balanced and not self._facts.stateful:
                order = use_order(self._numbers, seed=seed)
                writer.reorder(order)
                self._hash.update(repr(order).encode())
            writer.note({"from_bytes": sorted(shaper.from_bytes), "kind": self._source.kind})
        self._warn(shaper, limit, len(self._numbers))
        classes = Counter(number for number in self._numbers if number is not None)
        return SamplesInfo(
            count=len(self._numbers),
            labelled=bool(self._numbers) and self._labelled == len(self._numbers),
            classes=dict(sorted(classes.items())),
            kind=self._source.kind,
            available=self._reader.count,
            bytes=self._bytes,
            warnings=tuple(self._warnings),
            fingerprint=self._hash.hexdigest(),
        )

    def _choose(self, limit: int | None, seed: int, balanced: bool) -> list[int] | None:
        if self._reader.count is None:
            return None
        if self._reader.count == 0:
            raise InputError(
                "no_samples", f"{self._source.path} holds no samples.", why="Its arrays or its table have no rows.",
                fix="Give 100 to 500 typical inputs.",
            )  # fmt: skip
        # A row may hold several samples (a batch), never less than its share of one.
        most = None if limit is None else limit * batch_size(self._facts.signature)
        return choose_rows(
            self._reader.count, self._reader.classes, most, seed=seed, balanced=balanced, ordered=self._facts.stateful
        )

    def _expected(self, chosen: list[int] | None, limit: int | None) -> int | None:
        return limit if chosen is None else max(1, len(chosen) // batch_size(self._facts.signature))

    def _take(self, sample: Sample, writer: StoreWriter, expected: int | None) -> None:
        size = sum(array.nbytes for array in sample.feed.values()) + (
            0 if sample.label is None else sample.label.nbytes
        )
        if len(self._numbers) % _LOOK == 0:
            left = 1 if expected is None else max(1, expected - len(self._numbers))
            self._check_space(size * (left if expected else _LOOK))
        writer.append(sample)
        self._bytes += size
        self._digest(sample)
        self._numbers.append(_class_of(sample.label))
        self._labelled += sample.label is not None
        now = time.monotonic()
        if now - self._told > _EVERY_S:
            self._told = now
            count = len(self._numbers)
            self._report(f"reading samples: {count}", min(1.0, count / expected) if expected else None)

    def _digest(self, sample: Sample) -> None:
        parts = [*sorted(sample.feed.items()), *([] if sample.label is None else [("\0label", sample.label)])]
        for name, array in parts:
            self._hash.update(f"{name}\0{array.dtype.str}{array.shape}\n".encode())
            self._hash.update(np.ascontiguousarray(array).data)

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self._folder).free
        if needed + RESERVE > free:
            raise _no_space(self._folder, needed, free, endless=self._reader.count is None)

    def _warn(self, shaper: Shaper, limit: int | None, count: int) -> None:
        where = str(self._source.path)
        if shaper.left_out:
            batch = batch_size(self._facts.signature)
            if not count:
                raise InputError(
                    "no_samples", f"{where} holds {shaper.left_out} rows; the model takes batches of {batch}.",
                    why="They fill no batch.", fix="Give more samples, or a model with a batch of 1 or of any size (--input).",
                )  # fmt: skip
            text = f"{where}: {shaper.left_out} rows at the end fill no batch of {batch} and are left out."
            self._warnings.append(Warn("rows_left_out", text))
        if not count:
            raise InputError(
                "no_samples", f"{where} gave no samples.", why="It ended before the first one.",
                fix="Give 100 to 500 typical inputs; a generator can be used up only once, so name a function that makes it.",
            )  # fmt: skip
        if limit is None and count >= MAX_STREAM and self._reader.count is None:
            self._warnings.append(Warn("stream_cut", f"{where}: only the first {MAX_STREAM} samples were read."))


def _class_of(label: np.ndarray | None) -> int | None:
    """The class number of a sample with one."""
    return int(label.reshape(-1)[0]) if label is not None and label.size == 1 and label.dtype.kind == "i" else None


def _no_space(folder: Path, needed: int | None, free: int | None, *, endless: bool = False) -> InputError:
    figures = (
        ""
        if needed is None or free is None
        else f": {units.size(needed)} are needed beside the {units.size(RESERVE)} that stay free for the files to make, and "
        f"{units.size(free)} are free"
    )
    return InputError(
        "no_space", f"The samples don't fit on the disk of {folder.parent}{figures}.",
        why="They are kept there as the model takes them, so that no process holds them in memory.",
        fix="Let the dataset end after some hundred samples, or free some space."
        if endless
        else f"Free some space ('edgesdk cache clean' helps), give fewer samples, or {elsewhere(folder)}.",
        details={} if needed is None else {"needed": needed, "free": free, "reserve": RESERVE},
    )  # fmt: skip
