"""Samples in a ``.csv``, read line by line: numbers, lists of numbers, or paths of files relative to the table."""

from __future__ import annotations

import csv
import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgesdk.artifacts import TensorSpec
from edgesdk.data._classes import class_numbers
from edgesdk.data._facts import ModelFacts
from edgesdk.data._files import cell_file
from edgesdk.data._readers import Reader, Row
from edgesdk.data._table import Columns, map_columns
from edgesdk.errors import InputError

MAX_CELL = 16 << 20


class CsvReader(Reader):
    """Two passes: one counts the rows and reads the labels, the other reads the chosen rows."""

    def __init__(self, path: Path, facts: ModelFacts) -> None:
        self._path, self._facts = path, facts
        header = next((cells for _, cells in _lines(path)), None)
        if header is None:
            raise _bad(path, 1, "the file holds no line")
        self._header = [name.strip() for name in header]
        if all(_number(name) is not None for name in self._header):
            raise InputError(
                "no_header", f"{path} begins with numbers instead of the names of its columns.",
                why="Columns are found by the model's input names.",
                fix=f"Write a first line: {_example(facts)}",
            )  # fmt: skip
        self._columns: Columns = map_columns(self._header, facts.signature, str(path))
        self._at = {name: i for i, name in enumerate(self._header)}
        self._labels = self._first_pass()

    def _first_pass(self) -> np.ndarray | None:
        wanted, values, count = self._columns.label, [], 0
        for _, cells in self._data():
            count += 1
            if len(wanted) == 1:
                values.append(cells[self._at[wanted[0]]].strip())
        self.count = count
        if len(wanted) != 1 or not values or any(word.startswith("[") for word in values):
            return None
        if not all(values):
            line = next(n for n, word in enumerate(values) if not word)
            raise InputError(
                "labels_missing", f"{self._path}: row {line} has an empty 'label'.", why="Some rows are labelled, so all must be.",
                fix="Fill the label in, or drop the row.",
            )  # fmt: skip
        labels = class_numbers(np.asarray(values, np.str_), self._facts, f"{self._path}, column 'label'")
        if labels.dtype.kind == "i":
            self.classes = labels
        return labels

    def _data(self) -> Iterator[tuple[int, list[str]]]:
        lines = _lines(self._path)
        next(lines, None)
        for line, cells in lines:
            if len(cells) != len(self._header):
                raise _bad(self._path, line, f"it has {len(cells)} cells, the header {len(self._header)}")
            yield line, cells

    def rows(self, chosen: Sequence[int] | None) -> Generator[Row, None, None]:
        wanted = None if chosen is None else iter([*chosen, -1])
        following = next(wanted) if wanted else 0
        for number, (line, cells) in enumerate(self._data()):
            if following < 0:
                return
            if wanted is not None:
                if number != following:
                    continue
                following = next(wanted)
            where = f"{self._path}, line {line}"
            inputs = {spec.name: self._value(spec, cells, where) for spec in self._facts.signature.inputs}
            yield Row(inputs, self._label(number, cells, where), where, flat=True)

    def _value(self, spec: TensorSpec, cells: list[str], where: str) -> np.ndarray:
        columns = self._columns.inputs[spec.name]
        if len(columns) > 1:
            return numbers([cells[self._at[c]] for c in columns], columns, where, spec.dtype)
        text = cells[self._at[columns[0]]].strip()
        if text.startswith("["):
            return _list(text, columns[0], where)
        if _number(text) is not None or not text:
            return np.asarray(numbers([text], columns, where, spec.dtype)[0])
        return cell_file(named_path(text, self._path, where), spec, self._facts, where)

    def _label(self, number: int, cells: list[str], where: str) -> Any:
        if self._labels is not None:
            return self._labels[number]
        columns = self._columns.label
        if not columns:
            return None
        if len(columns) == 1:
            return _list(cells[self._at[columns[0]]].strip(), columns[0], where)
        return numbers([cells[self._at[c]] for c in columns], columns, where, "float32")


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines with their number (of the cell's last line, from 1), blank ones left out."""
    before = csv.field_size_limit(MAX_CELL)
    line = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline(1 << 20)
            file.seek(0)
            delimiter = max(",;\t", key=head.count)
            reader = csv.reader(file, delimiter=delimiter)
            for cells in reader:
                line = reader.line_num
                if cells and any(cell.strip() for cell in cells):
                    yield line, cells
    except UnicodeDecodeError as exc:
        raise _bad(path, line + 1, "it is no UTF-8 text") from exc
    except csv.Error as exc:
        raise _bad(path, line + 1, str(exc)) from exc
    finally:
        csv.field_size_limit(before)


def _bad(path: Path, line: int, what: str) -> InputError:
    return InputError(
        "bad_table", f"{path}, line {line} can't be read: {what}.",
        why="A table has a line of column names, and as many cells in every line, separated by the same sign.",
        fix="Correct the line; texts with commas stand in double quotes.",
    )  # fmt: skip


def numbers(cells: Sequence[str], columns: Sequence[str], where: str, dtype: str) -> np.ndarray:
    """Cells as numbers: int64 when all of them are whole numbers in writing and the input takes integers, else float64.

    Raises:
        InputError: ``bad_cell``, with the column.
    """
    if dtype.startswith(("int", "uint", "bool")):
        try:
            return np.asarray([int(cell) for cell in cells], np.int64)
        except (ValueError, OverflowError):
            words = {"true": 1, "false": 0}
            if all(cell.strip().lower() in words for cell in cells):
                return np.asarray([words[cell.strip().lower()] for cell in cells], np.int64)
    values = [_number(cell) for cell in cells]
    if None in values:
        at = values.index(None)
        what = "is empty" if not cells[at].strip() else f"holds {cells[at].strip()[:40]!r}, which is no number"
        raise InputError(
            "bad_cell", f"{where}: column '{columns[at]}' {what}.", why="A number belongs there.",
            fix="Fill it in, or drop the row.",
        )  # fmt: skip
    return np.asarray(values, np.float64)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _list(text: str, column: str, where: str) -> np.ndarray:
    try:
        found = np.asarray(json.loads(text))
    except (ValueError, RecursionError) as exc:
        raise InputError(
            "bad_cell", f"{where}: column '{column}' holds no readable list.", why=f"{exc}."[:200],
            fix="Write it as [1, 2, 3], nested lists of equal lengths for more dimensions.",
        ) from exc  # fmt: skip
    return found


def named_path(text: str, table: Path, where: str) -> Path:
    """A path in a cell, relative to the table.

    Raises:
        InputError: it is an address on the web, or can't be a path.
    """
    if "://" in text[:12]:
        raise InputError(
            "not_a_file", f"{where} names {text[:80]!r}.", why="Nothing is downloaded.",
            fix="Download the files, and write their paths relative to the table.",
        )  # fmt: skip
    if "\0" in text or len(text) > 4096:
        raise InputError(
            "bad_cell", f"{where} holds {text[:40]!r}, which is neither a number nor a path.", why="It can't be a file.",
            fix="Correct the cell.",
        )  # fmt: skip
    return table.parent / text


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no file's name can be that long
        return False


def named_files(path: Path) -> list[Path]:
    """Existing files that cells of the table name, in order of appearance, each once."""
    found: dict[Path, None] = {}
    try:
        for _, cells in _lines(path):
            for cell in cells:
                text = cell.strip()
                if "." not in text or len(text) > 1024 or "\0" in text or text[0] in "[{" or _number(text) is not None:
                    continue
                file = path.parent / text
                if file not in found and is_file(file):
                    found[file] = None
    except InputError:  # reading will tell, with the line; the table's own bytes are hashed already
        return list(found)
    return list(found)


def _example(facts: ModelFacts) -> str:
    spec = facts.signature.inputs[0]
    return f"{spec.name}_0,{spec.name}_1,…,label"
