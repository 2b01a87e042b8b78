"""The APK builder as a module, and one package that the tests of this folder share."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="package")
def tool() -> Any:
    """``tools/build_apk``, which has no suffix to import it by."""
    loader = SourceFileLoader("build_apk", str(ROOT / "tools/build_apk"))
    spec = spec_from_loader("build_apk", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules["build_apk"] = module
    loader.exec_module(module)
    return module


@pytest.fixture(scope="package")
def emitted(tool: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``edgesdk package --target android`` writes for a picture classifier: the folder with bundle and README."""
    return Path(tool.demo_bundle(tmp_path_factory.mktemp("demo"))).parent
