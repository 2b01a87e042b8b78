"""Which rows are taken when not all are, and in which order they are used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def choose_rows(
    count: int, classes: np.ndarray | None, limit: int | None, *, seed: int, balanced: bool, ordered: bool
) -> list[int]:
    """Row numbers in ascending order.

    Args:
        classes: class number of each row, if known.
        limit: how many rows at most.
        balanced: every class gets equally many rows as far as it has them, so that rare classes are seen.
        ordered: rows follow one another (a stateful model), so the first ones are taken.
    """
    if limit is None or limit >= count:
        return list(range(count))
    if ordered:
        return list(range(limit))
    rng = np.random.default_rng(seed)
    if balanced and classes is not None:
        return sorted(_round_robin(classes, rng)[:limit])
    return sorted(int(i) for i in rng.choice(count, limit, replace=False))


def use_order(classes: Sequence[int | None], *, seed: int) -> list[int]:
    """The order in which samples are used, so that a first part of them is already a fair selection."""
    rng = np.random.default_rng(seed)
    if any(c is None for c in classes):
        return [int(i) for i in rng.permutation(len(classes))]
    return _round_robin(np.asarray(classes, np.int64), rng)


def _round_robin(classes: np.ndarray, rng: np.random.Generator) -> list[int]:
    """All positions: one of each class, then another of each, at random within the class."""
    turn = np.zeros(len(classes), np.int64)
    for value in np.unique(classes):
        members = np.flatnonzero(classes == value)
        turn[rng.permutation(members)] = np.arange(len(members))
    return [int(i) for i in np.lexsort((rng.random(len(classes)), turn))]
