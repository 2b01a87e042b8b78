"""Calibration reads samples one by one, and leaves no trace behind."""

from __future__ import annotations

import resource
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.artifacts import Model
from edgesdk.data import Store
from edgesdk.quantize._pt2e import _calibrate as calibrate
from edgesdk.quantize._pt2e import _graph as graphs
from edgesdk.quantize._pt2e._annotate import Wishes, quantizer
from tests.quantize.pt2e.helpers import lower, noise, store
from tests.runtimes.executorch_nets import RUNTIME, model_of

COUNT = """
import sys, resource
from pathlib import Path
from tests.quantize.pt2e.test_streaming import observed
sys.stdout.write(str(observed(Path(sys.argv[1]), int(sys.argv[2]))))
"""
SIDE = 192


def net() -> nn.Module:
    """Activations of 2.4 MB each, so that keeping those of some samples would show."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1))


def observed(folder: Path, count: int) -> int:
    """Calibrate and return by how many bytes the process's peak grew during it, after one sample of warming up."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Model = model_of(net(), (torch.randn(1, 1, SIDE, SIDE),))
        assert model.program is not None
        prepared = prepare_pt2e(graphs.module_of(model.program), quantizer(Wishes())[0])
        samples = Store(folder)
        calibrate.observe(prepared, model, samples.first(4))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert calibrate.observe(prepared, model, samples.first(count)) == count
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


@pytest.mark.slow
def test_pitfall_q_19_memory_does_not_grow_with_the_number_of_samples(tmp_path: Path) -> None:
    feeds = [{"x0": np.random.default_rng(i).standard_normal((1, 1, SIDE, SIDE)).astype(np.float32)} for i in range(64)]
    data = store(tmp_path / "c", feeds)
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", COUNT, str(data), "64"], cwd=root, capture_output=True, text=True, check=True
    )
    # 60 more samples are 9 MB of mapped file and would be 300 MB of activations.
    assert int(ran.stdout) < 40 << 20


def test_only_as_many_samples_as_asked_are_read(tmp_path: Path) -> None:
    """The third sample would double the range."""
    feeds = noise([(1, 3, 6, 6)], 3)
    feeds[2] = {"x0": feeds[2]["x0"] * 1000}
    case = lower(nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 6, 6),), tmp_path, "static-int8", feeds, options={"samples": 2})
    assert case.snr(feeds[:2]) > 30


def test_no_warning_of_torchao_reaches_the_user_and_globals_stay(tmp_path: Path) -> None:
    engine, threads = torch.backends.quantized.engine, torch.get_num_threads()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        case = lower(nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 6, 6),), tmp_path, "static-int8")
    assert not [w for w in heard if "torchao" in str(w.filename) or "deprecat" in str(w.message).lower()]
    assert (torch.backends.quantized.engine, torch.get_num_threads()) == (engine, threads)
    assert RUNTIME.load(case.lowered.path, case.model.signature)
