"""Memory that runs out says nothing of the model: it ends a lowering, and is no reason for a lesser file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edgesdk.runtimes import LowerConfig, _et_lower, _onnx_check, _ts_lower, find
from tests.runtimes.executorch_nets import Calls, model_of


def exhausted(*args: Any, **more: Any) -> Any:
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 17 bytes")


@pytest.mark.parametrize(
    ("runtime", "place", "name"), [("executorch", _et_lower, "_make"), ("onnx", _onnx_check, "agrees")]
)
def test_no_lesser_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, place: Any, name: str
) -> None:
    model = model_of(Calls(nn.functional.relu), (torch.zeros(1, 4),))
    monkeypatch.setattr(place, name, exhausted)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        find(runtime).lower(model, LowerConfig(), tmp_path / "net.bin")
    assert not list(tmp_path.iterdir())


def test_a_script_is_frozen_or_the_lowering_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    script: Any = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))  # type: ignore[no-untyped-call]
    monkeypatch.setattr(torch.jit, "freeze", exhausted)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        _ts_lower._from_script(script, LowerConfig())
