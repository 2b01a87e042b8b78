"""The seam of the readers: each kind of data yields rows, in ascending order, and knows beforehand what it can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgesdk.artifacts import Warn


@dataclass(frozen=True)
class Row:
    """One row of the data as it stands there.

    Attributes:
        inputs: arrays by input name: one sample without its batch dimension, or a complete call with it.
        label: whatever the data say, or None.
        where: the file or row, for messages.
        flat: the values of a table's columns, whose shape says nothing, so they are laid out as the input wants them.
    """

    inputs: dict[str, np.ndarray]
    label: Any
    where: str
    flat: bool = False


class Reader(ABC):
    """Rows of one kind of data.

    Attributes:
        count: how many rows there are; None when only reading tells.
        classes: the class number of each row where that is known without reading the rows; int64 [count].
        warnings: what was noticed while opening.
    """

    count: int | None = None
    classes: np.ndarray | None = None
    warnings: tuple[Warn, ...] = ()

    @abstractmethod
    def rows(self, chosen: Sequence[int] | None) -> Generator[Row, None, None]:
        """The rows with those numbers (ascending), or all. Nothing is kept in memory between rows."""
