"""Two files in turns: which is slower, and how sure that is."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest

from edgesdk._racing import race
from edgesdk.evaluation import Race
from edgesdk.runtimes import Runner

FEEDS = [[np.zeros(1, np.float32)]]


class Spin(Runner):
    """Takes a given time of CPU."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return []


@pytest.mark.parametrize(("ours", "slower"), [(0.004, True), (0.001, False)])
def test_twice_and_half_the_time_are_told_apart(ours: float, slower: bool) -> None:
    found = race(Spin(ours), Spin(0.002), FEEDS, threads=1)
    assert found.slower is slower
    assert found.low <= found.ratio <= found.high and "host" in found.where and "1 thread" in found.where


def test_what_an_interval_does_not_settle_is_not_called_slower() -> None:
    unsure = Race(ratio=1.2, low=0.9, high=1.6, float_p50=1.0, p50=1.2, p90=1.5, where="host", rounds=24)
    hair = Race(ratio=1.03, low=1.01, high=1.05, float_p50=1.0, p50=1.03, p90=1.1, where="host", rounds=24)
    bursts = Race(ratio=1.3, low=1.1, high=1.4, float_p50=1.5, p50=1.3, p90=1.5, where="host", rounds=24)
    assert not unsure.slower and not hair.slower and not bursts.slower
