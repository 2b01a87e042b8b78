"""What every runtime owes its callers, over all of them: lower, load, run, reset, close; other files refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgesdk.artifacts import Lowered, Model
from edgesdk.errors import EdgeError, InputError, UnsupportedError
from edgesdk.runtimes import EdgeRuntime, LowerConfig, runtimes
from tests.runtimes import graphs

RUNTIMES = sorted(runtimes())


class Two(torch.nn.Module):
    """Two inputs that must not be swapped, two outputs whose names aren't in alphabetical order."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"zeta": self.linear(left - 2 * right), "alpha": right}


@pytest.fixture(scope="module")
def model() -> Model:
    return graphs.model_of(Two(), (torch.randn(2, 4), torch.randn(2, 4)), [{0: graphs.BATCH}] * 2)


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> EdgeRuntime:
    return runtimes()[request.param]


@pytest.fixture(scope="module")
def lowered(runtime: EdgeRuntime, model: Model, tmp_path_factory: pytest.TempPathFactory) -> Lowered:
    return runtime.lower(model, LowerConfig(), tmp_path_factory.mktemp(runtime.name) / f"net{runtime.suffix}")


def test_a_runtime_describes_itself(runtime: EdgeRuntime) -> None:
    assert runtime.missing() is None
    assert runtime.version()
    assert runtime.suffix.startswith(".")
    assert set(runtime.runs_here) <= set(runtime.backends)
    assert {"none", "fp16"} <= set(runtime.quantizations)


def test_the_file_is_where_it_was_asked_for_and_nothing_else_is(runtime: EdgeRuntime, lowered: Lowered) -> None:
    assert lowered.path.is_file() and lowered.runtime == runtime.name and lowered.id.startswith(runtime.name)
    assert {p.name for p in lowered.path.parent.iterdir()} == {
        lowered.path.name,
        *(p.name for p in lowered.extra_files),
    }
    assert lowered.min_runtime


def test_answers_equal_the_original_s_at_every_size(runtime: EdgeRuntime, lowered: Lowered, model: Model) -> None:
    runner = runtime.load(lowered.path, model.signature)
    for batch in (1, 3, 8, 1):
        given = torch.randn(batch, 4), torch.randn(batch, 4)
        if runtime.name == "null":
            assert not any(array.any() for array in runner.run([t.numpy() for t in given]))
        else:
            assert graphs.difference(runner, model.module, given) < 1e-5  # one small matrix product
    runner.close()


def test_outputs_belong_to_the_caller(runtime: EdgeRuntime, lowered: Lowered, model: Model) -> None:
    runner = runtime.load(lowered.path, model.signature)
    given = [np.ones((2, 4), np.float32), np.ones((2, 4), np.float32)]
    first = runner.run(given)
    kept = [array.copy() for array in first]
    for array in given:
        array *= -7
    runner.run(given)
    runner.reset()
    runner.close()
    assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True))


def test_reset_changes_nothing_for_a_model_without_state(runtime: EdgeRuntime, lowered: Lowered, model: Model) -> None:
    runner = runtime.load(lowered.path, model.signature)
    given = [np.full((2, 4), 0.5, np.float32), np.ones((2, 4), np.float32)]
    before = runner.run(given)
    runner.reset()
    after = runner.run(given)
    runner.close()
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_state_is_kept_and_forgotten_or_refused(runtime: EdgeRuntime, tmp_path: Path) -> None:
    counter = graphs.model_of(graphs.Counter(), (torch.zeros(1, 3),), stateful=True)
    out = tmp_path / f"net{runtime.suffix}"
    try:
        made = runtime.lower(counter, LowerConfig(), out)
    except UnsupportedError as refused:
        assert runtime.name == "onnx" and refused.fix and not out.exists()
        return
    if runtime.name == "null":
        return
    runner = runtime.load(made.path, counter.signature)
    one = np.ones((1, 3), np.float32)
    assert [float(runner.run([one])[1][0, 0]) for _ in range(3)] == [1, 2, 3]
    runner.reset()
    assert float(runner.run([one])[1][0, 0]) == 1
    runner.close()


@pytest.mark.parametrize("content", [b"", b"<html><body>Not found</body></html>", bytes(range(256)) * 8])
def test_other_files_are_refused_in_words(runtime: EdgeRuntime, model: Model, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / f"wrong{runtime.suffix}"
    path.write_bytes(content)
    with pytest.raises(EdgeError) as caught:
        runtime.load(path, model.signature)
    assert isinstance(caught.value, InputError) and "wrong" in caught.value.message
    assert caught.value.why and caught.value.fix


def test_a_missing_file_is_refused_in_words(runtime: EdgeRuntime, model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        runtime.load(tmp_path / f"absent{runtime.suffix}", model.signature)


def test_a_cut_file_is_refused_in_words(runtime: EdgeRuntime, lowered: Lowered, model: Model, tmp_path: Path) -> None:
    path = tmp_path / f"cut{runtime.suffix}"
    data = lowered.path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(EdgeError):
        runtime.load(path, model.signature)
