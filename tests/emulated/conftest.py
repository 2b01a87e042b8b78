from __future__ import annotations

import pytest

from edgesdk import emulated


@pytest.fixture(scope="session")
def phone() -> None:
    """The emulated phone, set up by ``tools/emulated``; a test that needs it fails without it rather than passing unseen."""
    for runtime in emulated.RUNTIMES:
        said = emulated.missing(runtime)
        assert said is None, said
