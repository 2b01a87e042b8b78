"""Which variant load() takes, and what it says about the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import edgesdk
from edgesdk.artifacts import Signature
from edgesdk.errors import MissingToolError, UnsupportedError, UsageError
from edgesdk.runtimes import Runner, find
from tests.nets import (
    several,
    variant,
)

COREML = variant("executorch", "c.pte", backend="coreml")
LATER = variant("future", "f.bin")
NULL = variant("null", "net.null")
TOO_NEW = variant("onnx", "o.onnx", runtime_version={"min": "99.1"})
TOO_OLD = variant("torchscript", "t.ptl", runtime_version={"max": "1.9"})


def test_the_first_variant_that_runs_here_is_taken(tmp_path: Path) -> None:
    with edgesdk.load(several(tmp_path, COREML, LATER, TOO_NEW, TOO_OLD, NULL)) as session:
        assert session.variant.id == "null-none"


def test_when_none_runs_every_reason_is_given(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        edgesdk.load(several(tmp_path, COREML, LATER, TOO_NEW, TOO_OLD))
    for words in (
        "'coreml' don't run on this machine",
        "no runtime 'future'",
        "onnx 99.1 or newer",
        "torchscript 1.9 or older",
    ):
        assert words in caught.value.why


def test_a_variant_asked_for_by_name(tmp_path: Path) -> None:
    path = several(tmp_path, COREML, LATER, TOO_NEW, NULL)
    edgesdk.load(path, "null-none").close()
    for name in ("executorch-coreml-none", "future-none", "onnx-none"):
        with pytest.raises(UnsupportedError, match=name):
            edgesdk.load(path, name)
    with pytest.raises(UsageError, match="nul-none") as caught:
        edgesdk.load(path, "nul-none")
    assert "Did you mean 'null-none'?" in caught.value.why and "future-none" in caught.value.why


def test_a_missing_engine_gives_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = several(tmp_path, variant("onnx", "o.onnx"))
    monkeypatch.setattr(type(find("onnx")), "missing", lambda self: "onnxruntime is not installed.")
    for name in (None, "onnx-none"):
        with pytest.raises(MissingToolError, match=r"onnxruntime is not installed.*pip install 'edgesdk\[onnx\]'"):
            edgesdk.load(path, name)


def test_no_threads_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="threads=0"):
        edgesdk.load(several(tmp_path, NULL), threads=0)


def test_a_runtime_that_takes_threads_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    load = type(find("null")).load

    def with_threads(self: Any, path: Path, signature: Signature, *, threads: int | None = None) -> Runner:
        asked.append(threads)
        return load(self, path, signature)

    monkeypatch.setattr(type(find("null")), "load", with_threads)
    edgesdk.load(several(tmp_path, NULL), threads=3).close()
    edgesdk.load(several(tmp_path, NULL)).close()
    assert asked == [3, None]
