"""Memory and disk: nothing grows with the number of samples, and a full disk is seen before it is full."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from edgesdk.data import Store
from edgesdk.errors import InputError

from .helpers import GREY, facts, smooth, written

_PEAK = """
import resource, sys
import numpy as np
from edgesdk.artifacts import Dim, Signature, TensorSpec
from edgesdk.data import ModelFacts, Store, check_samples, write_samples
from edgesdk.metrics import Agreement, Fidelity, choose
from pathlib import Path
n = Dim(1, 8, "n")
known = ModelFacts(Signature((TensorSpec("input", "float32", (n, 3, 64, 64)),), (TensorSpec("y", "float32", (n, 10)),)))
text, folder = sys.argv[1], Path(sys.argv[2])
write_samples(text, known, folder, limit=int(sys.argv[3]), balanced=True)
store = Store(folder)
check_samples(store, known, "calibration")
metric, same, close = choose(store, known.signature), Agreement(known.signature.outputs), Fidelity("y")
for sample in store:
    out = {"y": sample.feed["input"].reshape(1, -1)[:, :10]}
    metric.update(out, sample.label, sample.where)
    same.update(out, out, sample.where)
    close.update(out["y"], out["y"])
# Anonymous memory: pages of the mapped file can be dropped at any time and don't count.
peak = [line for line in open("/proc/self/status") if line.startswith(("VmHWM", "RssFile"))]
print(sum(int(line.split()[1]) * (1 if line.startswith("VmHWM") else -1) for line in peak))
"""


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
@pytest.mark.slow
def test_pitfall_q_19_memory_is_constant_in_the_number_of_samples(tmp_path: Path, save) -> None:
    count = 1000
    noise = (np.random.default_rng(0).random((count, 3, 64, 64)) * 255).round().astype(np.uint8)
    save(tmp_path / "a.npz", input=noise, label=np.arange(count) % 10)  # 49 MB of float32 when written
    peaks = []
    for limit in (64, count):
        args = [sys.executable, "-c", _PEAK, str(tmp_path / "a.npz"), str(tmp_path / "s"), str(limit)]
        done = subprocess.run(args, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 12_000, f"kB {peaks}"


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12, (256 << 20) + 9999))
    np.savez(tmp_path / "a.npz", input=smooth(40, 1, 8, 8))  # 10240 bytes
    with pytest.raises(InputError) as caught:
        written(tmp_path / "a.npz", facts(), tmp_path)
    assert caught.value.code == "no_space" and caught.value.details["needed"] == 10240
    assert "10.2 kB are needed beside the 268 MB that stay free" in caught.value.message
    assert "TMPDIR" in caught.value.fix
    monkeypatch.setenv("EDGESDK_CACHE_DIR", str(tmp_path))
    with pytest.raises(InputError, match=r"EDGESDK_CACHE_DIR=FOLDER"):
        written(tmp_path / "a.npz", facts(), tmp_path)
    assert not list(tmp_path.glob("store*"))
    info, _ = written(tmp_path / "a.npz", facts(), tmp_path, limit=39)
    assert info.bytes == 39 * 256


def test_a_failed_run_leaves_the_earlier_store_as_it_was(tmp_path: Path) -> None:
    x = smooth(40, 1, 8, 8)
    np.savez(tmp_path / "a.npz", input=x)
    written(tmp_path / "a.npz", facts(), tmp_path)
    np.save(tmp_path / "b.npy", x[:, :, :4])
    with pytest.raises(InputError):
        written(tmp_path / "b.npy", facts(GREY), tmp_path)
    assert len(Store(tmp_path / "store")) == 40 and not list(tmp_path.glob("*.part"))
