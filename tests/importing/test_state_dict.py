"""State dicts and checkpoints: the right weights, all of them, or a message that helps."""

from __future__ import annotations

import argparse
import collections
import enum
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from edgesdk.artifacts import Model, parse_input
from edgesdk.errors import EdgeError, InputError, UsageError
from edgesdk.importing import ImportOptions, import_model, locate
from edgesdk.importing._match import Architecture, fits

INPUT = (parse_input("image=float32[1,1,8,8]"),)
CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=10, width=8):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        x = self.norm(self.conv(image)).relu()
        return self.head(self.mid(x).relu().mean((2, 3)))

class Holder(nn.Module):
    '''A real submodule that is called like a wrapper.'''
    def __init__(self):
        super().__init__()
        self.module = Net()

    def forward(self, image):
        return self.module(image)

class Deeper(Net):
    def __init__(self):
        super().__init__()
        self.more = nn.Linear(10, 10)

class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Net()

    def forward(self, image):
        return self.model(image)
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("code") / "checkpoint_net.py"
    path.write_text(CODE)
    return path


@pytest.fixture(scope="module")
def net(code: Path) -> Any:
    """A network whose every weight differs from its initial value, running statistics included."""
    space: dict[str, Any] = {"__name__": "somewhere_else"}
    exec(CODE, space)
    torch.manual_seed(7)
    module = space["Net"]()
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data = torch.rand_like(tensor) + 0.1
    module.classes = space
    return module.eval()


def load(path: Path, arch: str | None, key: str = "", inputs: Any = INPUT) -> Model:
    options = ImportOptions(inputs=inputs, arch=arch)
    return import_model(locate(f"{path}{key}", options), options)


def answer(model: Model, image: torch.Tensor) -> torch.Tensor:
    assert model.program is not None
    found: torch.Tensor = torch.utils._pytree.tree_leaves(model.program.module()(image))[0]
    return found


def check(model: Model, net: nn.Module) -> None:
    image = torch.rand(1, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(answer(model, image), net(image), rtol=1e-4, atol=1e-5)


def prefixed(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {prefix + name: value for name, value in state.items()}


def save(value: Any, path: Path) -> Path:
    torch.save(value, path)
    return path


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_weights_in_every_container_give_the_network(code: Path, net: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "w.bin"
    if kind == "safetensors":
        save_file(net.state_dict(), path)
    else:
        torch.save(net.state_dict(), path, _use_new_zipfile_serialization=kind == "zip")
    model = load(path, f"{code}:Net")
    check(model, net)
    assert model.source.format == "state_dict" and not model.source.pickle and model.warnings == ()


# --- I-03 -------------------------------------------------------------------------------------------------------------


class Phase(enum.Enum):
    TRAIN = 1


class Meter:
    def __init__(self) -> None:
        self.values = collections.deque([1.0, 2.0], maxlen=5)


class Config(dict):  # type: ignore[type-arg]
    """A mapping of its own class, as configuration libraries have."""


@pytest.mark.parametrize("legacy", [False, True])
def test_pitfall_i_03_meters_namespaces_and_optimizers_beside_the_weights_do_no_harm(
    code: Path, net: Any, tmp_path: Path, legacy: bool
) -> None:
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.rand(1, 1, 8, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    checkpoint = {
        "epoch": 3, "args": argparse.Namespace(lr=0.1, out=Path("/tmp")), "meter": Meter(), "phase": Phase.TRAIN,
        "optimizer": optimizer.state_dict(), "config": Config(lr=1), "counts": collections.defaultdict(int, a=1),
        "best": collections.Counter("aab"), "model_state_dict": net.state_dict(), "numpy": __import__("numpy").float64(3),
    }  # fmt: skip
    torch.save(checkpoint, tmp_path / "c.pt", _use_new_zipfile_serialization=not legacy)
    model = load(tmp_path / "c.pt", f"{code}:Net")
    check(model, net)
    (warn,) = [w for w in model.warnings if w.code == "weights_chosen"]
    assert "'model_state_dict'" in warn.message and "optimizer" in warn.message and "epoch" in warn.message
    assert model.history[-1].fields["key"] == "model_state_dict"


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state", "net", "ema", "weights", "params", "params_ema"])
def test_pitfall_i_03_the_usual_keys_are_found_and_named(code: Path, net: Any, tmp_path: Path, key: str) -> None:
    model = load(save({"epoch": 1, key: net.state_dict()}, tmp_path / "c.pt"), f"{code}:Net")
    check(model, net)
    assert any(f"'{key}'" in w.message for w in model.warnings)


def test_pitfall_i_03_weights_two_levels_down_are_found(code: Path, net: Any, tmp_path: Path) -> None:
    path = save({"run": {"model": {"state_dict": net.state_dict()}}, "x": 1}, tmp_path / "c.pt")
    check(load(path, f"{code}:Net"), net)


def test_pitfall_i_03_two_sets_that_fit_are_a_question_and_its_answer_works(
    code: Path, net: Any, tmp_path: Path
) -> None:
    ema = {name: value + 1 if value.is_floating_point() else value for name, value in net.state_dict().items()}
    path = save({"model": net.state_dict(), "ema": ema}, tmp_path / "c.pt")
    with pytest.raises(InputError, match="2 sets of weights that fit: model, ema") as caught:
        load(path, f"{code}:Net")
    assert f"{path}#ema" in caught.value.fix
    check(load(path, f"{code}:Net", "#model"), net)
    averaged = net.classes["Net"]().eval()
    averaged.load_state_dict(ema)
    check(load(path, f"{code}:Net", "#ema"), averaged)
    with pytest.raises(InputError, match="no weights under 'emma'"):
        load(path, f"{code}:Net", "#emma")


def test_pitfall_i_03_the_same_weights_twice_are_no_question(code: Path, net: Any, tmp_path: Path) -> None:
    path = save({"model": net.state_dict(), "best": net.state_dict()}, tmp_path / "c.pt")
    check(load(path, f"{code}:Net"), net)


def test_pitfall_i_03_teacher_and_student_below_prefixes_are_a_question(code: Path, net: Any, tmp_path: Path) -> None:
    other = {name: value + 1 if value.is_floating_point() else value for name, value in net.state_dict().items()}
    path = save({**prefixed(net.state_dict(), "student."), **prefixed(other, "teacher.")}, tmp_path / "c.pt")
    with pytest.raises(InputError) as caught:
        load(path, f"{code}:Net")
    assert caught.value.code == "several_weights"
    check(load(path, f"{code}:Net", "#student"), net)


# --- I-04 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    ["module.", "_orig_mod.", "model.", "net.", "module.module.", "module._orig_mod.", "model.module.", "student."],
)
def test_pitfall_i_04_wrappers_prefixes_are_removed_and_told(code: Path, net: Any, tmp_path: Path, prefix: str) -> None:
    model = load(save(prefixed(net.state_dict(), prefix), tmp_path / "c.pt"), f"{code}:Net")
    check(model, net)
    assert any(w.code == "weights_renamed" for w in model.warnings)


def test_pitfall_i_04_a_real_submodule_of_that_name_keeps_its_prefix(code: Path, net: Any, tmp_path: Path) -> None:
    arch = f"{code}:Holder"  # its own names begin with 'module.'
    once = load(save(prefixed(net.state_dict(), "module."), tmp_path / "1.pt"), arch)
    check(once, net)
    assert once.warnings == ()
    check(load(save(prefixed(net.state_dict(), "module.module."), tmp_path / "2.pt"), arch), net)
    check(load(save(net.state_dict(), tmp_path / "0.pt"), arch), net)


def test_pitfall_i_04_compile_inside_and_averaging_counters(code: Path, net: Any, tmp_path: Path) -> None:
    inner = {name.replace("mid.", "mid._orig_mod."): value for name, value in net.state_dict().items()}
    check(load(save(inner, tmp_path / "c.pt"), f"{code}:Net"), net)
    copy = net.classes["Net"]()
    copy.load_state_dict(net.state_dict())
    averaged = torch.optim.swa_utils.AveragedModel(copy)
    assert "n_averaged" in averaged.state_dict()
    check(load(save(averaged.state_dict(), tmp_path / "a.pt"), f"{code}:Net"), net)


@pytest.mark.parametrize("lost", ["conv.weight", "head.bias", "norm.running_var", "norm.running_mean"])
def test_pitfall_i_04_a_weight_that_is_missing_is_never_left_random(
    code: Path, net: Any, tmp_path: Path, lost: str
) -> None:
    state = {name: value for name, value in net.state_dict().items() if name != lost}
    with pytest.raises(InputError, match=f"1 missing in the file: {lost}") as caught:
        load(save(state, tmp_path / "c.pt"), f"{code}:Net")
    assert caught.value.exit == 3


def test_pitfall_i_04_a_batch_counter_may_be_missing(code: Path, net: Any, tmp_path: Path) -> None:
    state = {name: value for name, value in net.state_dict().items() if not name.endswith("num_batches_tracked")}
    model = load(save(state, tmp_path / "c.pt"), f"{code}:Net")
    check(model, net)
    assert model.warnings == ()


def test_pitfall_i_04_a_deeper_or_shallower_network_is_refused(code: Path, net: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"2 missing in the file: more\.weight, more\.bias"):
        load(save(net.state_dict(), tmp_path / "c.pt"), f"{code}:Deeper")
    state = {**net.state_dict(), "mid.extra.weight": torch.zeros(3)}
    with pytest.raises(InputError, match=r"1 unexpected: mid\.extra\.weight \[3\]"):
        load(save(state, tmp_path / "d.pt"), f"{code}:Net")


def test_entries_of_no_part_of_the_network_are_left_out_and_told(code: Path, net: Any, tmp_path: Path) -> None:
    """A loss with parameters of its own, as in a speaker encoder's checkpoint."""
    model = load(save({**net.state_dict(), "similarity_bias": torch.zeros(1)}, tmp_path / "c.pt"), f"{code}:Net")
    check(model, net)
    assert any(w.code == "weights_left_out" and "similarity_bias" in w.message for w in model.warnings)


def test_another_networks_weights_are_refused_with_names_and_sizes(code: Path, net: Any, tmp_path: Path) -> None:
    other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
    with pytest.raises(InputError, match=r"0\.weight \[4,3\]") as caught:
        load(save(other.state_dict(), tmp_path / "c.pt"), f"{code}:Net")
    assert caught.value.code == "weights_mismatch" and "conv.weight" in caught.value.message


def test_packed_integers_for_a_float_weight_are_refused(code: Path, net: Any, tmp_path: Path) -> None:
    state = {**net.state_dict(), "head.weight": torch.zeros(10, 8, dtype=torch.int8)}
    with pytest.raises(InputError, match="'head.weight' is int8"):
        load(save(state, tmp_path / "c.pt"), f"{code}:Net")


def test_half_precision_weights_are_taken(code: Path, net: Any, tmp_path: Path) -> None:
    model = load(
        save({n: v.half() if v.is_floating_point() else v for n, v in net.state_dict().items()}, tmp_path / "c.pt"),
        f"{code}:Net",
    )
    image = torch.rand(1, 1, 8, 8)
    assert answer(model, image).dtype == torch.float32
    torch.testing.assert_close(answer(model, image), net(image).detach(), rtol=1e-2, atol=1e-2)


def test_nan_in_a_weight_is_told(code: Path, net: Any, tmp_path: Path) -> None:
    state = {**net.state_dict(), "head.bias": torch.full((10,), float("nan"))}
    model = load(save(state, tmp_path / "c.pt"), f"{code}:Net")
    assert any(w.code == "weights_not_finite" and "head.bias" in w.message for w in model.warnings)


def test_tied_weights_need_only_one_name() -> None:
    arch = Architecture(
        {"a.w": (2,), "b.w": (2,)}, frozenset({"a.w", "b.w"}), frozenset({"a", "b"}), (frozenset({"a.w", "b.w"}),)
    )
    assert fits(arch, {"a.w": (2,)})[0].complete
    assert not fits(arch, {})[0].complete


# --- I-05 -------------------------------------------------------------------------------------------------------------


def test_pitfall_i_05_a_structurally_pruned_network_is_recognised(code: Path, net: Any, tmp_path: Path) -> None:
    pruned = net.classes["Net"](width=5)
    with pytest.raises(InputError, match=r"structurally pruned.*conv\.weight has 5 of 8 channels") as caught:
        load(save(pruned.state_dict(), tmp_path / "c.pt"), f"{code}:Net")
    assert caught.value.code == "pruned_weights"
    assert "pt2" in caught.value.fix and "--trust-pickle" in caught.value.fix


def test_a_wider_network_is_not_called_pruned(code: Path, net: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"conv\.weight \[9,1,3,3\] in the file, \[8,1,3,3\] in the architecture"):
        load(save(net.classes["Net"](width=9).state_dict(), tmp_path / "c.pt"), f"{code}:Net")


# --- architecture -----------------------------------------------------------------------------------------------------


def test_a_missing_arch_is_named_and_guessed(net: Any, tmp_path: Path) -> None:
    import torchvision

    with pytest.raises(InputError, match="--arch file.py:FACTORY") as caught:
        load(save(net.state_dict(), tmp_path / "c.pt"), None)
    assert caught.value.code == "arch_missing" and caught.value.exit == 3
    small = torchvision.models.mobilenet_v3_small(num_classes=7)
    path = save({"state_dict": prefixed(small.state_dict(), "module.")}, tmp_path / "m.pt")
    with pytest.raises(InputError, match="--arch torchvision:mobilenet_v3_small"):
        load(path, None, inputs=())


def test_another_number_of_classes_than_the_librarys_is_taken_from_the_file(tmp_path: Path) -> None:
    """Fine-tuned on three classes: the usual case, not an error."""
    import timm
    import torchvision

    torch.manual_seed(3)
    tuned = torchvision.models.squeezenet1_1(num_classes=3).eval()
    model = load(save(tuned.state_dict(), tmp_path / "c.pt"), "torchvision:squeezenet1_1", inputs=())
    assert model.signature.outputs[0].shape == (1, 3) and model.labels is None
    assert model.preprocess is not None
    image = torch.rand(1, 3, 224, 224)
    torch.testing.assert_close(answer(model, image), tuned(image).detach(), rtol=1e-4, atol=1e-5)
    small = timm.create_model("test_vit", num_classes=4).eval()
    model = load(save(small.state_dict(), tmp_path / "t.pt"), "timm:test_vit", inputs=())
    assert model.signature.outputs[0].shape == (1, 4)
    assert model.signature.inputs[0].shape == (1, 3, 160, 160)
    assert model.preprocess is not None and model.preprocess.mean == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("arch", "says"),
    [
        ("resnet18", "can't be read"), ("torchvision:resnet19", "no model 'resnet19'"), ("timm:resnt18", "no model 'resnt18'"),
        ("torchvision:resnet18@DEFAULT", "names weights"), ("nowhere.py:Net", "nowhere.py doesn't exist"),
        ("no_such_package.mod:Net", "no Python package 'no_such_package'"), ("transformers:/nowhere", "no config.json"),
    ],
)  # fmt: skip
def test_an_arch_that_cannot_be_made_says_why(net: Any, tmp_path: Path, arch: str, says: str) -> None:
    with pytest.raises((InputError, UsageError), match=says):
        load(save(net.state_dict(), tmp_path / "c.pt"), arch)


def test_a_factory_that_does_not_exist_is_named_with_those_that_do(code: Path, net: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no 'Nil'") as caught:
        load(save(net.state_dict(), tmp_path / "c.pt"), f"{code}:Nil")
    assert "Net" in caught.value.why and "nn" not in caught.value.why.split()


# --- Lightning --------------------------------------------------------------------------------------------------------


def test_a_lightning_checkpoint_gives_the_network_inside_or_the_whole(code: Path, net: Any, tmp_path: Path) -> None:
    checkpoint = {
        "epoch": 1, "global_step": 5, "pytorch-lightning_version": "2.5.0", "loops": {"x": Config(a=torch.zeros(1))},
        "state_dict": {**prefixed(net.state_dict(), "model."), "criterion.weight": torch.ones(10)},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}}], "callbacks": {"best": Meter()},
        "hyper_parameters": Config(lr=0.1),
    }  # fmt: skip
    path = save(checkpoint, tmp_path / "last.ckpt")
    model = load(path, f"{code}:Net")
    check(model, net)
    assert model.source.format == "lightning"
    assert any("criterion.weight" in w.message for w in model.warnings)
    check(load(path, f"{code}:Lit"), net)
    with pytest.raises(InputError, match="Lightning checkpoint"):
        load(path, None)


# --- safety and damage ------------------------------------------------------------------------------------------------


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.marker),))


@pytest.mark.parametrize("legacy", [False, True])
def test_pitfall_s_01_code_beside_the_weights_is_refused_and_not_run(
    code: Path, net: Any, tmp_path: Path, legacy: bool
) -> None:
    marker = tmp_path / "ran"
    torch.save(
        {"model": net.state_dict(), "x": Evil(marker)}, tmp_path / "c.pt", _use_new_zipfile_serialization=not legacy
    )
    with pytest.raises(InputError, match=r"its pickle calls (posix|nt)\.mkdir") as caught:
        load(tmp_path / "c.pt", f"{code}:Net")
    assert caught.value.code == "unsafe_pickle" and not marker.exists()


def test_pitfall_s_01_a_torch_with_holes_is_told() -> None:
    from edgesdk.importing._safety import unsafe_torch

    assert unsafe_torch("2.5.1+cpu")[0].code == "unsafe_torch"
    assert unsafe_torch("2.9.0") and not unsafe_torch("2.10.0") and not unsafe_torch(torch.__version__)


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_files_cut_or_changed_at_any_place_never_crash(code: Path, net: Any, tmp_path: Path, kind: str) -> None:
    """Every cut is an error; a changed byte is an error, or (where no checksum covers it) a network."""
    whole = tmp_path / "w"
    if kind == "safetensors":
        save_file(net.state_dict(), whole)
    else:
        torch.save(net.state_dict(), whole, _use_new_zipfile_serialization=kind == "zip")
    data = whole.read_bytes()
    for place in range(1, len(data), len(data) // 12):
        (tmp_path / "cut").write_bytes(data[:-place])
        with pytest.raises(InputError):
            load(tmp_path / "cut", f"{code}:Net")
    for place in range(0, len(data), len(data) // 12):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        (tmp_path / "changed").write_bytes(changed)
        try:
            load(tmp_path / "changed", f"{code}:Net")
        except EdgeError as error:
            assert error.exit in (2, 3), error
