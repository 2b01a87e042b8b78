"""Weights that aren't needed now lie in a file, and nothing else changes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from edgesdk import _memory


def _anonymous() -> int:
    """Bytes of this process's memory that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_parked_tensors_cost_no_memory_and_keep_their_values() -> None:
    torch.manual_seed(0)
    large = torch.nn.Parameter(torch.randn(16, 1 << 20), requires_grad=False)
    shared = large.detach()[3]
    before, wanted = _anonymous(), large.detach().double().sum()
    with _memory.frugal(True):
        _memory.park([large, large])
        del shared
        assert before - _anonymous() > 48 << 20, "64 MB of weights are in memory still"
        assert large.detach().double().sum() == wanted


def test_parked_tensors_can_be_written_to_and_parked_again() -> None:
    tensor = torch.arange(1 << 16, dtype=torch.float32)
    with _memory.frugal(True):
        _memory.park([tensor])
        tensor[5] = -1.0
        _memory.park([tensor])
    assert tensor[5] == -1.0 and tensor[6] == 6.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.float64, torch.bool])
def test_any_dtype_can_be_parked(dtype: torch.dtype) -> None:
    tensor = torch.arange(1 << 17).reshape(2, -1).to(dtype)
    wanted = tensor.clone()
    with _memory.frugal(True):
        _memory.park([torch.zeros(3), tensor])
    assert tensor.dtype == dtype and torch.equal(tensor, wanted)


def test_odd_tensors_stay_where_they_are() -> None:
    column = torch.randn(512, 512).t()
    empty, sparse = torch.empty(0), torch.eye(300).to_sparse()
    place = column.data_ptr()
    with _memory.frugal(True):
        _memory.park([column, empty, sparse, "text", None])
    assert column.data_ptr() == place


def test_nothing_is_parked_unless_memory_is_to_be_spared() -> None:
    tensor = torch.randn(1 << 16)
    place = tensor.data_ptr()
    with _memory.frugal(False):
        _memory.park([tensor])
    assert tensor.data_ptr() == place
    with pytest.raises(ZeroDivisionError), _memory.frugal(True):
        _ = 1 / 0
    _memory.park([tensor])
    assert tensor.data_ptr() == place


def test_an_array_shares_a_parked_tensors_memory() -> None:
    tensor = torch.arange(1 << 16, dtype=torch.float32)
    with _memory.frugal(True):
        _memory.park([tensor])
    assert np.array_equal(tensor.numpy(), np.arange(1 << 16, dtype=np.float32))
