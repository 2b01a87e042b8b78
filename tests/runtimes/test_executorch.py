"""What users rely on from the ExecuTorch runtime: right answers, in order, with the facts about the file."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.artifacts import Model
from edgesdk.errors import EdgeError, InputError, UnsupportedError
from edgesdk.runtimes import LowerConfig
from edgesdk.runtimes.executorch import check_environment
from tests.runtimes.executorch_nets import RUNTIME, Attention, Built, Dim, TinyCnn, build, difference, flat, nets

# Float kernels of two libraries add in another order: 1e-6 per layer, and these nets have up to ten.
CLOSE = 1e-5
X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    return y, y


class Parameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("index", torch.arange(3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.weight, x * self.weight, self.index


ODD: dict[str, tuple[nn.Module | Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "the same tensor twice": (twice, (X,)),
    "an input as output": (lambda x: (x, x + 1), (X,)),
    "nothing but the input": (lambda x: x, (X,)),
    "a constant": (lambda x: (torch.ones(3), x + 1), (X,)),
    "parameters and buffers": (Parameters(), (X,)),
    "an unused input": (lambda x, y: x + 1, (X, torch.ones(2))),
    "views of the input": (lambda x: (x.reshape(-1), x.t(), x[1:], x[:, None].expand(2, 4, 3)), (X,)),
    "integers": (lambda i: (i + 1, i // 2, i.sum(), i > 1, i.float()), (torch.arange(6).reshape(2, 3),)),
    "remainders with signs": (
        lambda i, d: (i % 5, i % -5, torch.remainder(i, d), torch.remainder(17, d), i.float() % 5),
        (torch.cat([torch.arange(-12, 12), torch.tensor([2**60 + 7])]), torch.arange(25) % 2 * 10 - 3),
    ),
    "an RReLU": (nn.RReLU(0.1, 0.4).eval(), (X,)),
    "small integers and booleans": (
        lambda a, b, c: (a + 1, b // 2, ~c),
        (torch.arange(6, dtype=torch.int32), torch.arange(6, dtype=torch.uint8), torch.tensor([True, False])),
    ),
    "scalars": (lambda x, s: (x * s, x.sum(), s + 1), (X, torch.tensor(2.5))),
    "an index": (lambda x: (x.argmax(1), x.max(1).values), (X,)),
    "an empty tensor": (lambda x: (x[:0], x + 1), (X,)),
    "halves": (lambda x: x * 2 + 1, (X.half(),)),
    "doubles": (lambda x: x @ x.T, (X.double(),)),
    "an embedding": (nn.Embedding(10, 4), (torch.tensor([[1, 2, 3]]),)),
}


@pytest.mark.parametrize("case", sorted(ODD))
def test_outputs_come_back_right_and_in_order(case: str, tmp_path: Path) -> None:
    net, inputs = ODD[case]
    assert build(net, inputs, tmp_path).error() <= CLOSE


def test_bfloat16_is_handed_over_as_float32(tmp_path: Path) -> None:
    (got,) = build(lambda x: x.bfloat16() * 2, (X,), tmp_path).run()
    assert got.dtype == np.float32
    assert np.array_equal(got, 2 * X.numpy())  # these values are exact in bfloat16


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Built:
    net, inputs = nets()["cnn"]
    return build(net, inputs, tmp_path_factory.mktemp("cnn"))


def test_a_cnn_runs_in_the_delegate(cnn: Built) -> None:
    assert cnn.error() <= CLOSE
    lowered = cnn.lowered
    assert (lowered.rung, lowered.delegated_fraction, lowered.delegates) == ("full", 1.0, 2)
    assert lowered.leftovers == {"aten::mean.dim": 1}
    assert lowered.planned_bytes is not None and lowered.planned_bytes > 12 * 12 * 3 * 4
    assert lowered.id == "executorch-xnnpack-none" and lowered.min_runtime[0].isdigit() and not lowered.warnings
    assert sorted(p.name for p in lowered.path.parent.iterdir()) == ["net.pte"]


def test_the_file_is_the_same_every_time(cnn: Built, tmp_path: Path) -> None:
    again = RUNTIME.lower(cnn.model, LowerConfig(), tmp_path / "again.pte")
    assert again.path.read_bytes() == cnn.lowered.path.read_bytes()


def test_lowering_leaves_the_model_alone(cnn: Built, tmp_path: Path) -> None:
    program = cnn.model.program
    assert program is not None
    graph, names = str(program.graph), sorted(program.state_dict)
    RUNTIME.lower(cnn.model, LowerConfig(backend="portable"), tmp_path / "p.pte")
    assert (str(program.graph), sorted(program.state_dict)) == (graph, names)


def test_outputs_belong_to_the_caller(cnn: Built) -> None:
    runner = cnn.runner()
    first = runner.run([cnn.inputs[0].numpy()])[0]
    kept = first.copy()
    runner.run([np.zeros_like(cnn.inputs[0].numpy())])
    assert np.array_equal(first, kept) and first.flags.c_contiguous and first.flags.writeable


@pytest.mark.parametrize("view", ["transposed", "sliced", "expanded", "read_only", "one_channel"])
def test_pitfall_e_09_other_memory_orders_are_read_rightly(view: str, cnn: Built, tmp_path: Path) -> None:
    array = cnn.inputs[0].numpy()
    if view == "one_channel":
        net = nn.Conv2d(1, 2, 3)
        one = build(net, (torch.randn(1, 1, 5, 6),), tmp_path)
        picture = np.asfortranarray(one.inputs[0].numpy())
        assert difference(one.runner().run([picture])[0], net(one.inputs[0])) <= CLOSE
        return
    given = {
        "transposed": np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        "sliced": np.repeat(array, 2, axis=3)[..., ::2],
        "expanded": np.broadcast_to(array[:, :1], array.shape),
        "read_only": array.copy(),
    }[view]
    given.flags.writeable = False
    wanted = cnn.net(torch.from_numpy(given.copy("C")))
    assert difference(cnn.runner().run([given])[0], wanted) <= CLOSE


@pytest.mark.slow
def test_pitfall_e_09_weights_in_another_order(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)).to(memory_format=torch.channels_last)
    assert build(net, (torch.randn(1, 3, 6, 6),), tmp_path).error() <= CLOSE


@pytest.mark.parametrize("where", ["input", "weight"])
@pytest.mark.slow
def test_pitfall_e_09_numpys_new_axis_has_no_stride(where: str, tmp_path: Path) -> None:
    """``array[:, None]`` has the stride 0 in its new dimension: every grey picture from NumPy looks like this."""
    odd = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 6, 6)).astype(np.float32)[:, None])
    assert 0 in odd.stride()
    if where == "input":
        assert build(nn.Conv2d(1, 2, 3), (odd,), tmp_path).error() <= CLOSE
        return
    net = nn.Conv2d(1, 2, 3)
    net.weight = nn.Parameter(torch.from_numpy(np.ones((2, 3, 3), np.float32)[:, None]))
    assert 0 in net.weight.stride()
    assert build(net, (torch.randn(1, 1, 6, 6),), tmp_path).error() <= CLOSE


def test_a_batch_of_sixteen_and_more_is_planned_for(tmp_path: Path) -> None:
    """PyTorch's choice among its own convolution kernels cuts batches to 15 when the graph is traced again."""
    dims = ({0: torch.export.Dim("batch", min=1, max=24)},)
    net = TinyCnn().eval()
    built = build(net, (torch.randn(2, 3, 12, 12),), tmp_path, dynamic=dims, dims=[(Dim(1, 24, "batch"), 3, 12, 12)])
    for batch in (1, 15, 16, 24):
        given = torch.randn(batch, 3, 12, 12)
        assert difference(built.runner().run([given.numpy()])[0], net(given)) <= CLOSE


def test_pitfall_e_11_the_delegate_is_in_the_file_or_the_user_is_told(cnn: Built, tmp_path: Path) -> None:
    assert b"XnnpackBackend" in cnn.lowered.path.read_bytes()
    portable = RUNTIME.lower(cnn.model, LowerConfig(backend="portable"), tmp_path / "p.pte")
    assert b"XnnpackBackend" not in portable.path.read_bytes()
    assert (portable.rung, portable.delegated_fraction, portable.delegates) == ("portable", 0.0, 0)
    doubles = build(nn.Linear(4, 4).double(), (torch.randn(2, 4).double(),), tmp_path)
    assert {w.code for w in doubles.lowered.warnings} >= {"low_delegation", "float64"}


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((1, 3, 12, 13), np.float32), ["x0", "float32[1,3,12,13]", "float32[1,3,12,12]"]),
        (np.zeros((3, 12, 12), np.float32), ["x0", "float32[3,12,12]"]),
        (np.zeros((1, 3, 12, 12), np.float64), ["x0", "float64", "float32"]),
    ],
)
def test_pitfall_e_12_another_size_rank_or_dtype_in_words(array: np.ndarray, words: list[str], cnn: Built) -> None:
    with pytest.raises(InputError) as caught:
        cnn.runner().run([array])
    assert caught.value.code == "shape_mismatch"
    assert all(word in caught.value.message for word in words)
    assert "--input" in caught.value.fix


def test_too_few_inputs_are_refused(tmp_path: Path) -> None:
    built = build(lambda x, y: x + y, (X, X), tmp_path)
    with pytest.raises(InputError, match=r"takes 2 inputs, 1 were given"):
        built.runner().run([X.numpy()])


class Counter(nn.Module):
    """State that starts at values other than zero, of two dtypes, one of them not saved in checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("level", torch.full((1,), 7.0))
        self.register_buffer("steps", torch.tensor([5, 6]), persistent=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.level.add_(0.5)
        self.steps.add_(2)
        return self.linear(x) + self.level, self.steps * 1


class Window(nn.Module):
    """A streaming net: the last four frames, shifted in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frames", torch.randn(1, 4, 3))
        self.conv = nn.Conv1d(4, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.frames.copy_(torch.cat([self.frames[:, :, 1:], x], 2))
        return self.conv(self.frames)


class Cache(nn.Module):
    """Keys of a decoder, written at a position."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.randn(4, 3))
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys[position] = self.linear(x)
        return self.keys.sum(0), self.keys


@pytest.mark.parametrize("kind", [Counter, Window, Cache])
def test_state_begins_right_persists_and_is_reset(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(2)
    feeds = {
        Counter: [(torch.randn(2, 3),) for _ in range(3)],
        Window: [(torch.randn(1, 4, 1),) for _ in range(3)],
        Cache: [(torch.randn(1, 3), torch.tensor([i])) for i in (2, 0, 3)],
    }[kind]
    net = kind()
    fresh = copy.deepcopy(net)
    runner = build(net, feeds[0], tmp_path).runner()
    for _ in range(2):
        twin = copy.deepcopy(fresh)
        for feed in feeds:
            got = runner.run([t.numpy() for t in feed])
            assert max(map(difference, got, flat(twin(*feed)))) <= CLOSE
        runner.reset()


def test_dynamic_batch_at_least_middle_and_greatest(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=8)
    built = build(
        TinyCnn(), (torch.randn(2, 3, 12, 12),), tmp_path, dynamic=({0: batch},), dims=[(Dim(1, 8), 3, 12, 12)]
    )
    for size in (1, 3, 8):
        assert built.error(torch.randn(size, 3, 12, 12)) <= CLOSE
    with pytest.raises(InputError, match=r"at most float32\[8,3,12,12\]"):
        built.run(torch.randn(9, 3, 12, 12))


@pytest.mark.slow
def test_dynamic_length_of_an_attention_net(tmp_path: Path) -> None:
    length = torch.export.Dim("length", min=2, max=20)
    built = build(Attention(), (torch.randn(1, 6, 16),), tmp_path, dynamic=({1: length},), dims=[(1, Dim(2, 20), 16)])
    for size in (2, 7, 20):
        assert built.error(torch.randn(1, size, 16)) <= CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "depthwise", "upsample", "lstm", "masked_attention"])
def test_nets_of_other_kinds(name: str, tmp_path: Path) -> None:
    net, inputs = nets()[name]
    built = build(net, inputs, tmp_path)
    assert built.error() <= CLOSE
    assert built.lowered.delegated_fraction == 1.0


@pytest.mark.parametrize("name", ["cnn", pytest.param("attention", marks=pytest.mark.slow)])
def test_half_precision_inside_keeps_the_signature(name: str, tmp_path: Path) -> None:
    net, inputs = nets()[name]
    half = build(net, inputs, tmp_path, LowerConfig(quantization="fp16"))
    # 2⁻¹¹ of relative error per rounding and values around 1; float32 kernels would be a thousand times nearer.
    assert 1e-6 < half.error() < 1e-2
    assert half.lowered.id == "executorch-xnnpack-fp16"


def test_half_precision_halves_the_weights(tmp_path: Path) -> None:
    net, inputs = nn.Linear(128, 256), (torch.randn(1, 128),)
    sizes = [
        build(net, inputs, tmp_path, LowerConfig(quantization=q)).lowered.path.stat().st_size for q in ("none", "fp16")
    ]
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "delegate"), [("coreml", "CoreMLBackend"), ("vulkan", "VulkanBackend")])
def test_back_ends_of_phones_hold_their_delegate(backend: str, delegate: str, cnn: Built, tmp_path: Path) -> None:
    lowered = RUNTIME.lower(cnn.model, LowerConfig(backend=backend), tmp_path / "net.pte")
    assert delegate.encode() in lowered.path.read_bytes()
    assert lowered.delegated_fraction == 1.0 and backend not in RUNTIME.runs_here
    with pytest.raises(UnsupportedError) as caught:
        RUNTIME.load(lowered.path, cnn.model.signature)
    assert caught.value.code == "backend_missing" and delegate in caught.value.message


def test_a_back_end_that_upstream_removed(cnn: Built, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="MPS") as caught:
        RUNTIME.lower(cnn.model, LowerConfig(backend="mps"), tmp_path / "net.pte")
    assert "--backend coreml" in caught.value.fix


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "missing"])
def test_damaged_files_are_named(damage: str, cnn: Built, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, data = tmp_path / "bad.pte", cnn.lowered.path.read_bytes()
    if damage != "missing":
        path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "other": b"PK\x03\x04" + data[4:]}[damage])
    with pytest.raises(InputError, match=r"bad\.pte"):
        RUNTIME.load(path, cnn.model.signature)
    assert capfd.readouterr().err == ""


def test_the_library_does_not_chatter(cnn: Built, capfd: pytest.CaptureFixture[str]) -> None:
    runner = cnn.runner()
    runner.run([cnn.inputs[0].numpy()])
    runner.close()
    assert capfd.readouterr().err == ""


def test_models_without_a_program_say_why(tmp_path: Path) -> None:
    reason = UnsupportedError("control_flow", "The model branches on data.", why="It does.", fix="Use torch.cond.")
    model = build(lambda x: x + 1, (X,), tmp_path).model
    with pytest.raises(UnsupportedError, match="branches on data"):
        RUNTIME.lower(Model(model.source, model.signature, no_program=reason), LowerConfig(), tmp_path / "n.pte")


def test_pitfall_e_14_the_environment_is_in_order() -> None:
    assert check_environment() == ()


def test_errors_are_ours(cnn: Built) -> None:
    with pytest.raises(EdgeError):
        cnn.runner().run([np.zeros((2, 2), np.complex64)])


@pytest.mark.slow
def test_threads_asked_for_while_a_program_is_open_do_not_end_the_process(tmp_path: Path) -> None:
    """One pool serves the process, and open programs point into it: a new one under them is a segmentation fault."""
    import subprocess
    import sys

    built = build(TinyCnn(), (torch.randn(1, 3, 12, 12),), tmp_path)
    code = (
        "import sys, numpy as np\nfrom pathlib import Path\nfrom edgesdk.artifacts import Signature, TensorSpec\n"
        "from edgesdk.runtimes import find\nx = np.ones((1, 3, 12, 12), np.float32)\n"
        "spec = Signature((TensorSpec('x', 'float32', (1, 3, 12, 12)),), ())\n"
        "runners = [find('executorch').load(Path(sys.argv[1]), spec, threads=n) for n in (2, 1, 3)]\n"
        "for _ in range(20):\n    for runner in runners: runner.run([x])\n"
        "first = runners[0].run([x])[0]\nfor runner in runners: runner.close()\n"
        "again = find('executorch').load(Path(sys.argv[1]), spec, threads=1)\n"
        "assert np.allclose(again.run([x])[0], first, atol=1e-5)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(built.lowered.path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
