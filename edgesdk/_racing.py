"""Two lowered files against each other on this machine, in turns, so that whatever else runs here meets both alike."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgesdk.evaluation import Race

if TYPE_CHECKING:
    from edgesdk.runtimes import Runner

    Array = np.ndarray

_BLOCK_S = 0.03
_BLOCKS = 24
_LONGEST_S = 20.0
_RESAMPLES = 2000


def race(quantized: Runner, twin: Runner, feeds: Sequence[Sequence[Array]], threads: int) -> Race:
    """Time both in alternating blocks of calls over the same inputs.

    The interval is a bootstrap over pairs of blocks (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, ch. 13):
    single calls of one process are no independent samples.
    """
    for _ in range(3):
        for runner in (quantized, twin):
            runner.run(feeds[0])
    calls = _calls(twin, feeds)
    ours: list[float] = []
    theirs: list[float] = []
    begin = time.perf_counter()
    for block in range(_BLOCKS):
        pair = ((quantized, ours), (twin, theirs))
        for runner, times in pair if block % 2 else reversed(pair):  # neither always goes first
            times.append(_block(runner, feeds, calls))
        if time.perf_counter() - begin > _LONGEST_S and block >= 4:
            break
    logs = np.log(np.array(ours)) - np.log(np.array(theirs))
    rng = np.random.default_rng(0)
    draws = np.median(logs[rng.integers(0, len(logs), (_RESAMPLES, len(logs)))], axis=1)
    low, high = np.exp(np.quantile(draws, (0.025, 0.975)))
    return Race(
        ratio=float(np.exp(np.median(logs))), low=float(low), high=float(high),
        float_p50=1e3 * float(np.median(theirs)), p50=1e3 * float(np.median(ours)), p90=1e3 * float(np.quantile(ours, 0.9)),
        where=f"{platform.machine()} host, {threads} thread{'s' if threads > 1 else ''}", rounds=len(ours),
    )  # fmt: skip


def _calls(runner: Runner, feeds: Sequence[Sequence[Array]]) -> int:
    begin = time.perf_counter()
    runner.run(feeds[0])
    return max(1, int(_BLOCK_S / max(1e-6, time.perf_counter() - begin)))


def _block(runner: Runner, feeds: Sequence[Sequence[Array]], calls: int) -> float:
    """Seconds per call."""
    begin = time.perf_counter()
    for call in range(calls):
        runner.run(feeds[call % len(feeds)])
    return (time.perf_counter() - begin) / calls
