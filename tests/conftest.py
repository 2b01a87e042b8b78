"""What every test has around it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

_GRAPHS = {"importing", "quantize", "runtimes"}
"""Folders whose tests leave graphs behind: cycles that hold megabytes."""


def pytest_configure() -> None:
    gc.set_threshold(50_000)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries report what is still there at the end


@pytest.fixture(autouse=True, scope="module")
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let go of what the tests of one module left behind; see :func:`_frozen`."""
    yield
    if _GRAPHS & set(request.path.parts):
        gc.unfreeze()
        gc.collect()


@pytest.fixture(autouse=True)
def _frozen() -> None:
    """Put what exists beyond the collector's reach.

    A process that tests has loaded everything, so each of the collections that the code asks for would take half a second.
    """
    gc.freeze()
