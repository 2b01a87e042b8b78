"""Lowered files on emulated arm64: the answers of the host's engines, or within a rounding step of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from edgesdk import emulated
from edgesdk.artifacts import Dim, Signature, TensorSpec
from edgesdk.emulated import EmulatedRunner, _place
from edgesdk.errors import DeviceError, InputError, UnsupportedError, UsageError
from edgesdk.runtimes import LowerConfig, Runner, find
from tests.runtimes import graphs
from tests.runtimes.executorch_nets import build

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("phone")]

RUNTIMES = ["executorch", "onnx"]
# Two float libraries add a few dozen products of magnitude 1 in different orders.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Total(nn.Module):
    """Adds up everything that it was ever given, from 7 on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((1, 3), 7.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 1.0


def cnn() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Hardswish(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5),
    ).eval()  # fmt: skip


def on_both(
    runtime: str, net: nn.Module, example: tuple[torch.Tensor, ...], folder: Path, **more: Any
) -> tuple[EmulatedRunner, Runner, Path, Signature]:
    """The net's file on emulated arm64 and on the host."""
    model = graphs.model_of(net, example, **more)
    made, host = graphs.lowered(runtime, model, folder)
    return emulated.load(runtime, made.path, model.signature, timeout_s=60), host, made.path, model.signature


@pytest.fixture(scope="module", params=RUNTIMES)
def picture(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, EmulatedRunner, Runner, Path, Signature]]:
    folder = tmp_path_factory.mktemp(request.param)
    dynamic = ({0: Dim(1, 4, "n")},)
    arm, host, path, signature = on_both(request.param, cnn(), (torch.randn(2, 3, 9, 9),), folder, dynamic=dynamic)
    yield request.param, arm, host, path, signature
    arm.close()


Picture = tuple[str, EmulatedRunner, Runner, Path, Signature]


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# -- what it answers --------------------------------------------------------------------------------------------------


def test_floats_agree_with_the_host_at_every_size(picture: Picture) -> None:
    _, arm, host, _, _ = picture
    for batch in (1, 4, 2):
        x = noise(batch, 3, 9, 9, seed=batch)
        (got,), (wanted,) = arm.run([x]), host.run([x])
        assert got.dtype == wanted.dtype and got.shape == wanted.shape and got.flags.writeable
        np.testing.assert_allclose(got, wanted, **CLOSE)


def test_the_same_question_has_the_same_answer(picture: Picture) -> None:
    runtime, arm, _, path, signature = picture
    x = noise(2, 3, 9, 9)
    again = emulated.run(runtime, path, signature, [{"in_0": x}] * 2)
    first = arm.run([x])[0]
    assert all(np.array_equal(first, answer["output_0"]) for answer in again)


ODD: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "several inputs and outputs": (lambda x, y: {"sum": x + y, "product": x @ y.T, "first": x}, (X, 2 * X)),
    "memory in another order": (lambda x: (x.t(), x[:, None].expand(2, 4, 3), x.permute(1, 0) * 2), (X,)),
    "int64": (lambda i: (i + 1, i.sum(), i > 1, i.float()), (torch.arange(6).reshape(2, 3),)),
    "int32, uint8, bool": (
        lambda a, b, c: (a + 1, b.float(), ~c),
        (torch.arange(6, dtype=torch.int32), torch.arange(6, dtype=torch.uint8), torch.tensor([True, False])),
    ),
    "int8": (lambda a: (a.float() * 2, a), (torch.arange(-3, 3, dtype=torch.int8),)),
    "float16": (lambda x: x * 2 + 1, (X.half(),)),
    "float64": (lambda x: x * 3 - 1, (X.double(),)),
    "a scalar": (lambda x, s: (x * s, x.sum()), (X, torch.tensor(2.5))),
    "nothing but the input": (lambda x: x * 1, (X,)),
}


@pytest.mark.parametrize("case", sorted(ODD))
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_dtypes_shapes_and_order(runtime: str, case: str, tmp_path: Path) -> None:
    function, example = ODD[case]
    arm, host, _, _ = on_both(runtime, Calls(function), example, tmp_path)
    arrays = [t.numpy() for t in example]
    with arm:
        got, wanted = arm.run(arrays), host.run(arrays)
    assert [(a.dtype, a.shape) for a in got] == [(a.dtype, a.shape) for a in wanted]
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, **CLOSE)


def test_bfloat16_is_rounded_as_torch_does(tmp_path: Path) -> None:
    """Values halfway between two bfloat16 numbers go to the even one, on the way in and inside."""
    x = torch.tensor([1.00390625, 1.01171875, -3.0e38, 1e-40, 2.5])
    arm, host, _, _ = on_both("executorch", Calls(lambda x: x * 2), (x.bfloat16(),), tmp_path)
    with arm:
        assert np.array_equal(arm.run([x.numpy()])[0], host.run([x.numpy()])[0])


def test_state_persists_and_is_forgotten(tmp_path: Path) -> None:
    built = build(Total(), (torch.ones(1, 3),), tmp_path)
    path, signature, host = built.lowered.path, built.model.signature, built.runner()
    one = np.ones((1, 3), np.float32)
    with emulated.load("executorch", path, signature) as arm:
        for round_ in range(2):
            for step in (8.0, 9.0, 10.0):
                assert arm.run([one])[0].ravel().tolist() == host.run([one])[0].ravel().tolist() == [step] * 3, round_
            arm.reset()
            host.reset()
    answers = emulated.run("executorch", path, signature, [{"x0": one}] * 3)
    assert [float(a["y0"][0, 0]) for a in answers] == [8.0, 8.0, 8.0]


def test_feeds_are_taken_one_by_one(picture: Picture) -> None:
    """Not gathered first: a calibration set may be larger than memory."""
    runtime, _, _, path, signature = picture
    taken: list[int] = []

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        for number in range(3):
            taken.append(number)
            # The third is refused, which must be met only after the second ran.
            yield {"in_0": noise(1, 3, 9, 9) if number < 2 else noise(1, 3, 9, 8)}

    with pytest.raises(InputError, match="wants the shape") as refused:
        emulated.run(runtime, path, signature, feeds())
    assert taken == [0, 1, 2] and refused.value.code == "shape_mismatch"


def test_large_tensors_pass_the_pipe(tmp_path: Path) -> None:
    """16 MB each way, many times what a pipe holds."""
    arm, _, _, _ = on_both("onnx", Calls(lambda x: x + 1), (torch.zeros(4, 1024, 1024),), tmp_path)
    x = noise(4, 1024, 1024)
    with arm:
        assert np.array_equal(arm.run([x])[0], x + 1)


# -- int8, which is what it is for ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Signature, list[np.ndarray], nn.Module]:
    return quantized_pte(tmp_path_factory.mktemp("int8"))


Int8 = tuple[Path, Signature, list[np.ndarray], nn.Module]


def test_pitfall_q_22_int8_is_judged_on_arm64(int8: Int8) -> None:
    """ExecuTorch's int8 kernels of both architectures agree to a rounding step of the output."""
    path, signature, samples, float_net = int8
    feeds = [{"x": sample} for sample in samples]
    arm = np.concatenate([a["y"] for a in emulated.run("executorch", path, signature, feeds)])
    host = find("executorch").load(path, signature, threads=1)
    here = np.concatenate([host.run([sample])[0] for sample in samples])
    with torch.no_grad():
        wanted = np.concatenate([float_net(torch.from_numpy(s)).numpy() for s in samples])
    step = np.ptp(wanted) / 255
    assert np.abs(arm - here).max() <= 2 * step  # a rounding inside may move the output by a step
    assert signal_to_noise(wanted, arm) > 20


@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
def test_pitfall_q_22_qdq_of_both_kinds_on_arm64(activations: str, tmp_path: Path) -> None:
    """Asymmetric u8×s8 saturates on x86 without VNNI, never on arm64: there it is as near to the float net as s8×s8."""
    model = graphs.model_of(cnn(), (torch.randn(1, 3, 9, 9),))
    made, _ = graphs.lowered("onnx", model, tmp_path)
    samples = [noise(1, 3, 9, 9, seed=i) for i in range(16)]
    path = quantized_onnx(made.path, samples, activations)
    answers = emulated.run("onnx", path, model.signature, [{"in_0": s} for s in samples])
    arm = np.concatenate([a["output_0"] for a in answers])
    with torch.no_grad():
        wanted = np.concatenate([model.module(torch.from_numpy(s)).numpy() for s in samples])  # type: ignore[misc]
    assert signal_to_noise(wanted, arm) > 20


def quantized_pte(folder: Path) -> tuple[Path, Signature, list[np.ndarray], nn.Module]:
    """Upstream's own PT2E path, so that this test stands apart from ours."""
    import warnings

    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    net, samples = cnn(), [noise(1, 3, 9, 9, seed=i) for i in range(16)]
    example = (torch.from_numpy(samples[0]),)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
        graph = prepare_pt2e(torch.export.export(net, example).module(), quantizer)
        for sample in samples:
            graph(torch.from_numpy(sample))
        program = torch.export.export(convert_pt2e(graph), example)
        made = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    path = folder / "int8.pte"
    path.write_bytes(made.buffer)
    signature = Signature((TensorSpec("x", "float32", (1, 3, 9, 9)),), (TensorSpec("y", "float32", (1, 5)),))
    return path, signature, samples, net


def quantized_onnx(path: Path, samples: list[np.ndarray], activations: str) -> Path:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(samples)

        def get_next(self) -> dict[str, np.ndarray] | None:
            sample = next(self.left, None)
            return None if sample is None else {"in_0": sample}

    out = path.with_name(f"{activations}.onnx")
    quantize_static(
        str(path), str(out), Reader(), quant_format=QuantFormat.QDQ, activation_type=getattr(QuantType, activations),
        weight_type=QuantType.QInt8, per_channel=True,
    )  # fmt: skip
    return out


def signal_to_noise(wanted: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / max(((wanted - got) ** 2).sum(), 1e-30)))


# -- what it says of itself -------------------------------------------------------------------------------------------


def test_pitfall_q_22_the_processor_and_its_features_are_recorded() -> None:
    facts = emulated.describe()
    assert facts["cpu"] == "cortex-a76" and facts["timing_valid"] is False and facts["threads"] == 1
    assert "asimddp" in facts["features"] and "i8mm" not in facts["features"] and "sve" not in facts["features"]
    assert facts["emulator"].startswith("qemu-aarch64 ") and facts["emulator"][13].isdigit()
    assert set(facts["libraries"]) == set(RUNTIMES) and facts["host"]["machine"]
    assert emulated.describe("cortex-a53")["features"] == ["asimd"]
    assert {"asimddp", "i8mm", "sve2"} <= set(emulated.describe("cortex-x2")["features"])
    with pytest.raises(UsageError, match="'i486' can't be emulated"):
        emulated.describe("i486")


def test_no_torch_is_imported(picture: Picture) -> None:
    runtime, _, _, path, signature = picture
    code = (
        "import json, sys; import numpy as np; from pathlib import Path; from edgesdk import emulated\n"
        "from edgesdk.artifacts import Signature\n"
        f"signature = Signature.from_json(json.loads({__import__('json').dumps(signature.to_json())!r}))\n"
        f"emulated.run({runtime!r}, Path({str(path)!r}), signature, [{{'in_0': np.zeros((1, 3, 9, 9), np.float32)}}])\n"
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'executorch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_user_s_environment_stays_outside(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, _, _, path, signature = picture
    for name, value in {
        "QEMU_STRACE": "1",
        "QEMU_CPU": "cortex-a53",
        "LD_PRELOAD": "/none.so",
        "QEMU_LD_PREFIX": "/",
    }.items():
        monkeypatch.setenv(name, value)
    assert emulated.run(runtime, path, signature, [{"in_0": noise(1, 3, 9, 9)}])[0]["output_0"].shape == (1, 5)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["-version", "naïve ✓ %s", "new\nline $(id)"])
def test_names_of_files_are_only_names(
    name: str, picture: Picture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, _, _, path, signature = picture
    monkeypatch.chdir(tmp_path)
    other = Path(f"{name}{path.suffix}")
    other.write_bytes(path.read_bytes())
    (answer,) = emulated.run(runtime, other, signature, [{"in_0": noise(1, 3, 9, 9)}])
    assert answer["output_0"].shape == (1, 5) and sorted(p.name for p in tmp_path.iterdir()) == [other.name]


@pytest.mark.parametrize("damage", ["empty", "text", "cut"])
def test_damaged_files_are_named(damage: str, picture: Picture, tmp_path: Path) -> None:
    runtime, _, _, path, signature = picture
    data = path.read_bytes()
    bad = tmp_path / f"bad{path.suffix}"
    bad.write_bytes({"empty": b"", "text": b"not a model" * 100, "cut": data[: len(data) // 2]}[damage])
    with pytest.raises(InputError, match=f"bad{path.suffix} can't be loaded") as refused:
        emulated.run(runtime, bad, signature, [])
    assert refused.value.code == "bad_model_file"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file none.pte"):
        emulated.run("executorch", tmp_path / "none.pte", Signature((), ()), [])


def test_another_file_than_the_signature_s(picture: Picture) -> None:
    runtime, _, _, path, signature = picture
    two = Signature((*signature.inputs, TensorSpec("more", "float32", (1,))), signature.outputs)
    with pytest.raises(InputError) as refused:
        emulated.run(runtime, path, two, []) if runtime == "executorch" else emulated.run(
            runtime, path, Signature(signature.inputs, signature.outputs * 2), []
        )
    assert refused.value.code == "signature_mismatch"


def test_inputs_that_do_not_fit_are_refused_and_the_next_call_works(picture: Picture) -> None:
    _, arm, _, _, _ = picture
    good = noise(1, 3, 9, 9)
    for bad, code in (
        ([], "wrong_inputs"),
        ([good.astype(np.float64)], "dtype_mismatch"),
        ([noise(1, 3, 9)], "run_failed"),
    ):
        with pytest.raises(InputError) as refused:
            arm.run(bad)
        assert refused.value.code == code
    assert arm.run([good])[0].shape == (1, 5)


def test_an_operator_that_arm64_lacks(tmp_path: Path) -> None:
    node = helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere")
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nowhere", 1)]
    onnx.save(
        helper.make_model(helper.make_graph([node], "g", value[:1], value[1:]), opset_imports=opsets),
        tmp_path / "n.onnx",
    )
    spec = TensorSpec("x", "float32", (1,)), TensorSpec("y", "float32", (1,))
    with pytest.raises((UnsupportedError, InputError), match="n.onnx") as refused:
        emulated.run("onnx", tmp_path / "n.onnx", Signature(spec[:1], spec[1:]), [])
    assert "nowhere" in f"{refused.value.message} {refused.value.why}"


def test_weights_in_a_second_file_and_ort_s_own_format(tmp_path: Path) -> None:
    model = graphs.model_of(cnn(), (torch.randn(1, 3, 9, 9),))
    x = noise(1, 3, 9, 9)
    for config, name in ((LowerConfig(external_data_bytes=1), "external"), (LowerConfig(ort_format=True), "ort")):
        made, host = graphs.lowered(
            "onnx", model, tmp_path / name if (tmp_path / name).mkdir() is None else tmp_path, config
        )
        assert name == "ort" or made.extra_files
        (answer,) = emulated.run("onnx", made.path, model.signature, [{"in_0": x}])
        np.testing.assert_allclose(answer["output_0"], host.run([x])[0], **CLOSE)


# -- failures of the emulation itself ---------------------------------------------------------------------------------


def test_a_crash_is_told_and_the_next_call_works(picture: Picture) -> None:
    import signal

    runtime, _, _, path, signature = picture
    x = noise(1, 3, 9, 9)
    with emulated.load(runtime, path, signature) as arm:
        before = arm.run([x])[0]
        os.kill(arm._process._process.pid, signal.SIGSEGV)  # type: ignore[union-attr]
        with pytest.raises(DeviceError, match=f"{path.name} crashed on emulated arm64") as crashed:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:  # the signal may take its time
                arm.run([x])
        assert (
            crashed.value.code == "emulation_crashed"
            and "Segmentation" in str(crashed.value)
            or "signal 11" in str(crashed.value)
        )
        assert np.array_equal(arm.run([x])[0], before)


def test_a_crash_between_two_calls_is_told(picture: Picture) -> None:
    """A new process would have forgotten the state, and answer as if nothing had happened."""
    runtime, _, _, path, signature = picture
    x = noise(1, 3, 9, 9)
    with emulated.load(runtime, path, signature) as arm:
        before = arm.run([x])[0]
        arm._process._process.kill()  # type: ignore[union-attr]
        arm._process._process.wait()  # type: ignore[union-attr]
        with pytest.raises(DeviceError) as crashed:
            arm.run([x])
        assert crashed.value.code == "emulation_crashed"
        assert np.array_equal(arm.run([x])[0], before)


def test_an_instruction_that_the_processor_lacks(int8: Int8, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real crash: the engine is told of a Cortex-A76 and takes its dot products, which this processor doesn't have."""
    path, signature, samples, _ = int8
    with monkeypatch.context() as patch:
        patch.setattr(_place, "processor", lambda name: _place.CPUS["cortex-a53"])
        with pytest.raises(DeviceError, match=r"int8.pte crashed on emulated arm64 \(Illegal instruction\)") as crashed:
            emulated.run("executorch", path, signature, [{"x": samples[0]}])
    assert crashed.value.exit == 7 and "qemu: uncaught target signal 4" in crashed.value.why


@pytest.mark.parametrize("cpu", sorted(emulated.CPUS))
def test_int8_is_the_same_on_every_processor(cpu: str, int8: Int8) -> None:
    """Dot products and matrix products of integers are exact, so old and new phones agree to the bit."""
    path, signature, samples, _ = int8
    with (
        EmulatedRunner("executorch", path, signature, cpu=cpu) as arm,
        emulated.load("executorch", path, signature) as usual,
    ):
        for sample in samples[:4]:
            assert np.array_equal(arm.run([sample])[0], usual.run([sample])[0])


def test_what_qemu_says_is_handed_on(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, _, _, path, signature = picture
    monkeypatch.setattr(_place, "processor", lambda name: _place.Cpu("nonsense-x1", "", ""))
    with pytest.raises(DeviceError) as refused:
        emulated.load(runtime, path, signature)
    assert refused.value.exit == 7 and "nonsense-x1" in refused.value.why


def test_time_is_limited(picture: Picture) -> None:
    runtime, _, _, path, signature = picture
    began = time.monotonic()
    with pytest.raises(DeviceError, match="no answer on emulated arm64 within") as late:
        emulated.run(runtime, path, signature, ({"in_0": noise(4, 3, 9, 9)} for _ in range(10**6)), timeout_s=1.0)
    assert late.value.code == "emulation_timeout" and time.monotonic() - began < 30


def test_nothing_is_left_running(picture: Picture) -> None:
    runtime, _, _, path, signature = picture
    arm = emulated.load(runtime, path, signature)
    pid = arm._process._process.pid  # type: ignore[union-attr]
    arm.close()
    arm.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(DeviceError, match="was closed"):
        arm.run([noise(1, 3, 9, 9)])


def test_two_at_once(picture: Picture) -> None:
    runtime, arm, _, path, signature = picture
    with emulated.load(runtime, path, signature) as other:
        for seed in range(3):
            x = noise(1, 3, 9, 9, seed=seed)
            assert np.array_equal(arm.run([x])[0], other.run([x])[0])
