"""Samples in a ``.parquet``, read in small batches: numbers, lists, paths, or pictures kept as bytes."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgesdk.artifacts import TensorSpec
from edgesdk.data._classes import class_numbers
from edgesdk.data._csv import is_file, named_path
from edgesdk.data._facts import ModelFacts
from edgesdk.data._files import cell_file, media_input, prepared
from edgesdk.data._readers import Reader, Row
from edgesdk.data._table import map_columns
from edgesdk.errors import InputError, missing_library

_BATCH = 16


def _open(path: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError as exc:
        raise missing_library("pyarrow", "data", "reading .parquet files") from exc
    import pyarrow

    try:
        return parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError, ValueError) as exc:
        raise _damaged(path, exc) from exc


def _damaged(path: Path, exc: Exception) -> InputError:
    said = (str(exc).splitlines() or [""])[0][:200]
    return InputError(
        "damaged_file", f"{path} can't be read as Parquet.", why=f"{said.rstrip('.')}.",
        fix="Write it again: DataFrame.to_parquet(…)",
    )  # fmt: skip


class ParquetReader(Reader):
    def __init__(self, path: Path, facts: ModelFacts) -> None:
        self._path, self._facts = path, facts
        self._file = _open(path)
        self.count = self._file.metadata.num_rows
        self._columns = map_columns(self._file.schema_arrow.names, facts.signature, str(path))
        self._labels = self._read_labels()

    def _read_labels(self) -> np.ndarray | None:
        """The column of labels, when it holds one number or name per row."""
        import pyarrow

        if len(self._columns.label) != 1:
            return None
        name = self._columns.label[0]
        kind = self._file.schema_arrow.field(name).type
        simple = (pyarrow.types.is_integer, pyarrow.types.is_floating, pyarrow.types.is_boolean,
                  pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_dictionary)  # fmt: skip
        if not any(test(kind) for test in simple):
            return None
        where = f"{self._path}, column '{name}'"
        parts = []
        for number, batch in enumerate(self._batches([name], 4096)):
            if batch.column(0).null_count:
                row = number * 4096 + int(np.flatnonzero(np.asarray(batch.column(0).is_null()))[0])
                raise InputError(
                    "labels_missing", f"{where} is empty in row {row}.", why="Some rows are labelled, so all must be.",
                    fix="Fill the label in, or drop the row.",
                )  # fmt: skip
            parts.append(np.asarray(batch.column(0).to_pylist()))
        if not parts:
            return None
        labels = class_numbers(np.concatenate(parts), self._facts, where)
        if labels.dtype.kind == "i":
            self.classes = labels
        return labels

    def _batches(self, columns: Sequence[str], size: int) -> Iterator[Any]:
        import pyarrow

        try:
            yield from self._file.iter_batches(batch_size=size, columns=list(columns))
        except (pyarrow.ArrowException, OSError) as exc:
            raise _damaged(self._path, exc) from exc

    def rows(self, chosen: Sequence[int] | None) -> Generator[Row, None, None]:
        wanted = None if chosen is None else set(chosen)
        number = -1
        for batch in self._batches(self._columns.all, _BATCH):
            for i in range(batch.num_rows):
                number += 1
                if wanted is None or number in wanted:
                    yield self._row(batch, i, number)

    def _row(self, batch: Any, i: int, number: int) -> Row:
        where = f"{self._path}[{number}]"
        inputs = {}
        for spec in self._facts.signature.inputs:
            columns = self._columns.inputs[spec.name]
            values = [_cell(batch, name, i, where) for name in columns]
            inputs[spec.name] = np.asarray(values) if len(values) > 1 else self._value(values[0], spec, where)
        label: Any = None
        if self._labels is not None:
            label = self._labels[number]
        elif self._columns.label:
            values = [_cell(batch, name, i, where) for name in self._columns.label]
            label = np.asarray(values) if len(values) > 1 else _array(values[0], self._columns.label[0], where)
        return Row(inputs, label, where, flat=True)

    def _value(self, value: Any, spec: TensorSpec, where: str) -> np.ndarray:
        if isinstance(value, dict) and (
            "bytes" in value or "path" in value
        ):  # an image column of Hugging Face's datasets
            value = value["bytes"] if value.get("bytes") is not None else value.get("path")
        if isinstance(value, bytes):
            return self._picture(value, spec, where)
        if isinstance(value, str):
            return cell_file(named_path(value, self._path, where), spec, self._facts, where)
        return _array(value, spec.name, where)

    def _picture(self, data: bytes, spec: TensorSpec, where: str) -> np.ndarray:
        from PIL import Image, UnidentifiedImageError

        if self._facts.preprocess is None or self._facts.preprocess.kind != "image":
            media_input(self._facts, "image", where)
        try:
            with Image.open(io.BytesIO(data)) as image:
                return prepared(image, self._facts)
        except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as exc:
            raise _bad_picture(where, spec) from exc
        except InputError as exc:
            raise _bad_picture(where, spec) from exc


def _bad_picture(where: str, spec: TensorSpec) -> InputError:
    return InputError(
        "image_unreadable", f"{where}: the bytes for input '{spec.name}' can't be read as a picture.",
        why="They are damaged, or no picture.", fix="Drop the row, or store the file's bytes again.",
    )  # fmt: skip


def _cell(batch: Any, name: str, i: int, where: str) -> Any:
    import pyarrow

    value = batch.column(batch.schema.get_field_index(name))[i]
    if not value.is_valid:
        raise InputError(
            "bad_cell",
            f"{where}: column '{name}' is empty.",
            why="A value belongs there.",
            fix="Fill it in, or drop the row.",
        )
    plain = isinstance(value, pyarrow.ListScalar) and pyarrow.types.is_primitive(value.type.value_type)
    if plain and not value.values.null_count:  # much faster than a list of Python numbers
        return value.values.to_numpy(zero_copy_only=False)
    return value.as_py()


def _array(value: Any, column: str, where: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError as exc:
        raise InputError(
            "bad_cell", f"{where}: column '{column}' holds lists of different lengths.", why="They make no array.",
            fix="Pad or cut them to one length.",
        ) from exc  # fmt: skip


def named_files(path: Path) -> list[Path] | None:
    """Existing files that its text cells name; None when pyarrow is absent or the table can't be read."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        return None
    found: dict[Path, None] = {}
    try:
        file = parquet.ParquetFile(path)
        text = (pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_struct)
        columns = [f.name for f in file.schema_arrow if any(test(f.type) for test in text)]
        for batch in file.iter_batches(batch_size=256, columns=columns) if columns else ():
            for column in batch.columns:
                for cell in column:
                    _add_named(cell, path, found)
    except (pyarrow.ArrowException, OSError, ValueError):
        return None
    return list(found)


def _add_named(cell: Any, table: Path, found: dict[Path, None]) -> None:
    value = cell.as_py()
    text = value.get("path") if isinstance(value, dict) else value
    if not isinstance(text, str) or "." not in text or len(text) > 1024 or "\0" in text:
        return
    file = table.parent / text
    if is_file(file):
        found[file] = None
