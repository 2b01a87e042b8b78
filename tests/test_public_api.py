"""The names that edgesdk promises: sorted, true, and free of heavy imports."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import edgesdk


def test_all_is_sorted() -> None:
    assert edgesdk.__all__ == sorted(edgesdk.__all__)


@pytest.mark.parametrize("name", edgesdk.__all__)
def test_a_promised_name_is_there(name: str) -> None:
    value = getattr(edgesdk, name)
    assert not isinstance(value, types.ModuleType), f"edgesdk.{name} is a module, not what it promises"


def test_dir_shows_what_is_public() -> None:
    assert dir(edgesdk) == edgesdk.__all__


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pakage'"):
        edgesdk.pakage  # noqa: B018


def test_importing_a_step_first_does_not_hide_a_name() -> None:
    """``import edgesdk.runtimes`` sets an attribute ``runtimes`` on the package: the module, not the function."""
    code = "import edgesdk, edgesdk.api, edgesdk.pipeline, edgesdk.inspection, edgesdk.fidelity; print(callable(edgesdk.inspect), callable(edgesdk.verify))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_import_is_light() -> None:
    code = "import sys, edgesdk; print([m for m in ('torch', 'numpy', 'pydantic', 'rich', 'onnx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
