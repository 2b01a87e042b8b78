"""TorchScript: converted by interpreting its graph, or kept for TorchScript Lite with the reason."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgesdk
from edgesdk.artifacts import Model, Source, parse_input
from edgesdk.errors import InputError, UnsupportedError, UsageError
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._reference import reference_outputs, reference_steps
from edgesdk.importing.torchscript import IMPORTER

from .script_nets import (
    Dropping,
    Linear,
    ListInput,
    Loops,
    Named,
    OnData,
    OnSize,
    Reckons,
    Recurrent,
    Remembers,
    Text,
)  # fmt: skip
from .wheels import member


def load(path: Path, *inputs: str, form: str = "torchscript") -> Model:
    located = Located("torchscript", path.name, Source(path.stem, form), path)
    return IMPORTER.load(located, ImportOptions(tuple(map(parse_input, inputs))))


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Model]:
    def run(module: nn.Module, *inputs: str) -> Model:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = module if isinstance(module, torch.jit.ScriptModule) else torch.jit.script(module.eval())
            made.save(str(tmp_path / "net.pt"))
        return load(tmp_path / "net.pt", *inputs)

    return run


def trace(module: nn.Module, *example: torch.Tensor) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: torch.jit.ScriptModule = torch.jit.trace(module.eval(), example, check_trace=False)
    return made


def conv_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10)).eval()


def same(model: Model, module: nn.Module, *arrays: np.ndarray[Any, Any]) -> None:
    feed = dict(zip((s.name for s in model.signature.inputs), arrays, strict=True))
    with torch.no_grad():
        wanted = module(*map(torch.from_numpy, arrays))
    found = reference_outputs(model, feed)
    wanted = wanted if isinstance(wanted, tuple) else wanted.values() if isinstance(wanted, dict) else (wanted,)
    for one, other in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["traced", "scripted", "frozen"])
def test_a_network_is_converted_with_a_dynamic_batch(script: Callable[..., Model], form: str) -> None:
    net = conv_net()
    made: Any = trace(net, torch.zeros(1, 1, 8, 8))
    if form != "traced":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = torch.jit.script(net)
            made = torch.jit.freeze(made) if form == "frozen" else made
    model = script(made, "input=float32[1..8,1,8,8]")
    assert model.program is not None and model.script is not None
    assert str(model.signature.outputs[0]) == "output=float32[1..8,10]"
    for batch in (1, 3, 8):
        same(model, net, np.random.default_rng(batch).random((batch, 1, 8, 8), dtype=np.float32))


def test_sizes_that_a_trace_keeps_in_tensors_stay_dynamic(script: Callable[..., Model]) -> None:
    net = Reckons().eval()
    model = script(trace(net, torch.randn(2, 6, 8)), "x=float32[1..4,2..9,8]")
    assert model.program is not None
    for shape in ((1, 2, 8), (3, 7, 8), (4, 9, 8)):
        same(model, net, np.random.default_rng(0).normal(size=shape).astype("float32"))


def test_a_script_that_only_torchscript_takes_is_run_and_put_back(script: Callable[..., Model]) -> None:
    """Its buffers are no dictionary."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x) if bool(x.sum() > 0) else x

    model = script(torch.jit.script(Branches().eval()), "x=float32[2,3]")
    assert model.program is None
    same(model, Branches().eval(), np.ones((2, 3), np.float32))


def test_without_a_shape_the_first_layer_proposes_one(script: Callable[..., Model]) -> None:
    with pytest.raises(InputError) as caught:
        script(trace(conv_net(), torch.zeros(1, 1, 8, 8)))
    assert "--input 'input=float32[1,1,224,224]'" in caught.value.fix


def test_wrong_inputs_are_named(script: Callable[..., Model]) -> None:
    traced = trace(conv_net(), torch.zeros(1, 1, 8, 8))
    with pytest.raises(UsageError, match="inptu"):
        script(traced, "inptu=float32[1,1,8,8]")
    with pytest.raises(InputError, match=r"\[1, 3, 8, 8\]"):
        script(traced, "input=float32[1,3,8,8]")


def test_dict_outputs_keep_names_and_order(script: Callable[..., Model]) -> None:
    model = script(Named(), "x=float32[1..4,3]")
    assert [s.name for s in model.signature.outputs] == ["zeta", "alpha"]
    same(model, Named(), np.ones((2, 3), np.float32))


def test_loops_and_lists_are_unrolled(script: Callable[..., Model]) -> None:
    model = script(Loops(), "x=float32[1..5,3]")
    assert model.program is not None
    same(model, Loops(), np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))


def test_lists_of_tensors_and_numbers_with_defaults(script: Callable[..., Model]) -> None:
    model = script(ListInput(), "xs.0=float32[2,3]", "xs.1=float32[2,3]")
    assert model.program is not None and [s.name for s in model.signature.inputs] == ["xs.0", "xs.1"]


def test_text_as_input_is_refused(script: Callable[..., Model]) -> None:
    with pytest.raises(UnsupportedError, match=r"List\[str\]") as caught:
        script(Text(), "words=float32[1]")
    assert "tokenizer" in caught.value.fix


def test_a_branch_on_data_is_never_baked_and_the_script_still_goes_to_torchscript(script: Callable[..., Model]) -> None:
    model = script(OnData(), "x=float32[2,3]")
    assert model.program is None and model.script is not None
    reason = model.no_program
    assert isinstance(reason, UnsupportedError)
    assert "script_nets.py:" in reason.message and "--runtime torchscript" in reason.fix
    for sign in (1, -1):
        same(model, OnData(), np.full((2, 3), sign, np.float32))


def test_a_branch_on_a_size_is_taken_when_the_size_is_fixed_and_refused_when_it_is_not(
    script: Callable[..., Model],
) -> None:
    fixed = script(OnSize(), "x=float32[2,3]")
    assert fixed.program is not None
    same(fixed, OnSize(), np.ones((2, 3), np.float32))
    free = script(OnSize(), "x=float32[1..5,3]")
    assert free.program is None and "1..5" in str(free.no_program)
    assert str(free.signature.outputs[0]) == "output=float32[1..5,4]"


def test_state_that_the_first_call_makes_is_carried_on(script: Callable[..., Model]) -> None:
    model = script(Remembers(), "x=float32[2,3]")
    assert model.program is not None and model.stateful
    module, program = Remembers(), model.program.module()
    feeds = [np.full((2, 3), i, np.float32) for i in range(3)]
    for found, x in zip(reference_steps(model, [{"x": x} for x in feeds]), feeds, strict=True):
        wanted = module(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(found["output"], wanted, rtol=1e-5)
        np.testing.assert_allclose(program(torch.from_numpy(x)).detach(), wanted, rtol=1e-5)


def test_recurrent_layers_and_token_numbers(script: Callable[..., Model]) -> None:
    model = script(Recurrent(), "ids=int64[1..3,5]")
    assert model.program is not None and model.int_ranges == {"ids": (0, 9)}
    same(model, Recurrent().eval(), np.arange(5, dtype=np.int64)[None])


def test_pitfall_e_03_dropout_that_a_script_always_trains_is_set_to_inference(script: Callable[..., Model]) -> None:
    model = script(Dropping(), "x=float32[2,3]")
    assert "set_to_inference" in [w.code for w in model.warnings]
    x = np.ones((2, 3), np.float32)
    wanted = Linear().layer(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(reference_outputs(model, {"x": x})["output"], wanted, rtol=1e-5)


def test_a_file_for_the_lite_interpreter_cannot_be_lowered_again(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="can't be lowered again"):
        load(tmp_path / "net.ptl", form="torchscript_lite")


def test_a_damaged_archive_is_named(tmp_path: Path, script: Callable[..., Model]) -> None:
    script(trace(conv_net(), torch.zeros(1, 1, 8, 8)), "input=float32[1,1,8,8]")
    whole = (tmp_path / "net.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cut.pt"):
        load(tmp_path / "cut.pt", "input=float32[1,1,8,8]")


def test_loading_runs_no_pickled_code(tmp_path: Path, script: Callable[..., Model]) -> None:
    """The importer's claim: a hostile constants.pkl is refused by torch's own unpickler, its call never made."""
    script(trace(conv_net(), torch.zeros(1, 1, 8, 8)), "input=float32[1,1,8,8]")
    marker = tmp_path / "ran"
    for target in ("constants.pkl", "data.pkl"):
        evil = f"cposix\nmkdir\n(V{marker}\ntR.".encode()
        with zipfile.ZipFile(tmp_path / "net.pt") as old, zipfile.ZipFile(tmp_path / "evil.pt", "w") as new:
            for item in old.infolist():
                new.writestr(item.filename, evil if item.filename.endswith(target) else old.read(item))
        with pytest.raises(InputError):
            load(tmp_path / "evil.pt", "input=float32[1,1,8,8]")
        assert not marker.exists()


# --- real files ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_silero_vad_with_its_state_and_its_branches() -> None:
    path = member("silero-vad==6.2.3", "silero_vad/data/silero_vad.jit")
    model = load(path, "x=float32[1,512]")
    assert model.program is not None and model.stateful
    assert [w.code for w in model.warnings] == ["scalar_fixed"] and "16000" in model.warnings[0].message
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        original = torch.jit.load(str(path)).eval()
    tone = np.sin(np.arange(2048, dtype=np.float32) * 0.2) * np.linspace(0, 1, 2048, dtype=np.float32)
    frames = tone.reshape(4, 1, 512)
    program = model.program.module()
    with torch.no_grad():
        wanted = [float(original(torch.from_numpy(f), 16000)) for f in frames]
        found = [float(program(torch.from_numpy(f))) for f in frames]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert max(wanted) - min(wanted) > 1e-4, "the answers depend on the frames"


@pytest.mark.slow
def test_a_torch_package_is_refused() -> None:
    path = member("silero-stress==1.5", "silero_stress/data/accentor-bel.pt")
    with pytest.raises(InputError, match="torch.package"):
        load(path, "x=float32[1]")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["trace", "script"])
def test_mobilenet(script: Callable[..., Model], way: str) -> None:
    import torchvision

    torch.manual_seed(0)
    net = torchvision.models.mobilenet_v3_small().eval()
    made = trace(net, torch.zeros(1, 3, 64, 64)) if way == "trace" else net
    model = script(made, "x=float32[1..4,3,64,64]")
    assert model.program is not None
    same(model, net, np.random.default_rng(0).random((3, 3, 64, 64), dtype=np.float32))


def test_a_script_whose_weights_torch_did_not_store_is_no_damaged_download(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval())
        torch.jit.optimize_for_inference(net).save(str(tmp_path / "net.pt"))
    located = Located("torchscript", "net.pt", Source("net", "torchscript"), path=tmp_path / "net.pt")
    with pytest.raises(InputError) as caught:
        IMPORTER.load(located, ImportOptions())
    assert caught.value.code == "lost_constants" and "optimize_for_inference" in caught.value.why


@pytest.mark.slow
def test_an_int8_script_answers_as_it_will_on_a_phone(tmp_path: Path) -> None:
    """Its weights were packed for this machine's engine; QNNPACK's last bits differ, and a right file was refused."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.rnn, self.head = nn.LSTM(6, 16, batch_first=True), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.head(self.rnn(x)[0][:, -1])
            return y

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = torch.ao.quantization.quantize_dynamic(Net().eval(), {nn.Linear, nn.LSTM})
        torch.jit.script(net).save(str(tmp_path / "net.pt"))
    made = edgesdk.package(
        tmp_path / "net.pt", "linux", runtime="torchscript", inputs=["x=float32[1,7,6]"], output=tmp_path / "out"
    )
    assert made.variants[0]["outputs"][0]["max_abs_error"] == 0
