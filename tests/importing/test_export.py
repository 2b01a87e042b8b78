"""Modules become programs: inputs matched, outputs named, inference forced, the caller's module left alone."""

from __future__ import annotations

import collections
import dataclasses
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from edgesdk.artifacts import Model, Source, parse_input
from edgesdk.errors import InputError, UnsupportedError, UsageError
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._export import export_module
from edgesdk.importing._reference import reference_outputs

HERE = Located("module", "net", Source("net", "module"))


def export(module: nn.Module, *inputs: str) -> Model:
    return export_module(module, HERE, ImportOptions(tuple(map(parse_input, inputs))))


def program_of(model: Model) -> Any:
    assert model.program is not None
    return model.program.module()


def targets(model: Model) -> list[str]:
    assert model.program is not None
    return [str(n.target) for n in model.program.graph.nodes if n.op == "call_function"]


def names(model: Model) -> list[str]:
    return [s.name for s in model.signature.outputs]


def codes(model: Model) -> list[str]:
    return [w.code for w in model.warnings]


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


# --- inputs -------------------------------------------------------------------------------------------------------------


class Two(Linear):
    def forward(self, left: Any, right: Any) -> Any:
        return self.layer(left - 2 * right)


def test_inputs_are_matched_by_name_not_by_order() -> None:
    model = export(Two(), "right=float32[2,3]", "left=float32[2,3]")
    assert [s.name for s in model.signature.inputs] == ["left", "right"]
    left, right = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    wanted = Two()(torch.from_numpy(left), torch.from_numpy(right)).detach().numpy()
    np.testing.assert_allclose(reference_outputs(model, {"left": left, "right": right})["output"], wanted, rtol=1e-6)


def test_an_unknown_input_is_a_usage_error_that_names_the_known() -> None:
    with pytest.raises(UsageError, match="no input 'rigth'") as caught:
        export(Two(), "left=float32[2,3]", "rigth=float32[2,3]")
    assert "right" in caught.value.why


def test_a_missing_input_is_named() -> None:
    with pytest.raises(UsageError, match="right"):
        export(Two(), "left=float32[2,3]")


class Options(Linear):
    def forward(self, x: Any, mask: Any = None, *, double: bool = False) -> Any:
        y = self.layer(x) if mask is None else self.layer(x) * mask
        return y * 2 if double else y


def test_defaults_become_constants_and_may_be_given() -> None:
    assert [s.name for s in export(Options(), "x=float32[2,3]").signature.inputs] == ["x"]
    model = export(Options(), "mask=float32[4]", "x=float32[2,3]")
    assert [s.name for s in model.signature.inputs] == ["x", "mask"]


class Nested(Linear):
    def forward(self, x: dict[str, Any], *, scale: Any) -> Any:
        return self.layer(x["b"] - x["a"][0] + 2 * x["a"][1]) * scale


def test_nested_inputs_have_dotted_names_and_keep_their_places() -> None:
    inputs = ["scale=float32[]", "x.b=float32[2,3]", "x.a.1=float32[2,3]", "x.a.0=float32[2,3]"]
    model = export(Nested(), *inputs)
    feed = {
        s.name: np.random.default_rng(i).random(s.shape, dtype=np.float32) for i, s in enumerate(model.signature.inputs)
    }  # type: ignore[arg-type]
    t = {k: torch.tensor(v) for k, v in feed.items()}
    wanted = Nested()({"b": t["x.b"], "a": (t["x.a.0"], t["x.a.1"])}, scale=t["scale"])
    np.testing.assert_allclose(reference_outputs(model, feed)["output"], wanted.detach(), rtol=1e-5)


class Star(Linear):
    def forward(self, *xs: Any) -> Any:
        return self.layer(xs[0])


def test_variable_arguments_are_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"\*xs") as caught:
        export(Star(), "x=float32[2,3]")
    assert "file.py:factory" in caught.value.fix


@pytest.mark.parametrize(
    ("module", "guess"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3)), "input=float32[1,3,224,224]"),
        (nn.Conv1d(2, 4, 3), "input=float32[1,2,16000]"),
        (nn.Linear(7, 2), "input=float32[1,7]"),
        (nn.Embedding(9, 2), "input=int64[1,128]"),
        (nn.LSTM(5, 6, batch_first=True), "input=float32[1,32,5]"),
        (nn.GRU(5, 6), "input=float32[32,1,5]"),
    ],
)
def test_an_unknown_shape_is_answered_by_the_likeliest_option(module: nn.Module, guess: str) -> None:
    with pytest.raises(InputError) as caught:
        export(module)
    assert f"--input '{guess}'" in caught.value.fix


def test_the_size_of_the_picture_is_enough_for_a_network_that_begins_with_a_convolution() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 18 * 18, 2))
    (spec,) = export_module(net, HERE, ImportOptions(image=(20, 20))).signature.inputs
    assert str(spec) == "input=float32[1,3,20,20]"


def test_a_size_that_the_model_refuses_names_layer_and_size() -> None:
    with pytest.raises(InputError, match=r"layer '0'.*\[1, 5, 8, 8\]") as caught:
        export(nn.Sequential(nn.Conv2d(3, 4, 3)), "input=float32[1,5,8,8]")
    assert "3 channels" in caught.value.why


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 3), nn.Embedding(20, 3)

    def forward(self, tokens: Any, places: Any, attention_mask: Any, pixels: Any) -> Any:
        mixed = self.words(tokens.reshape(-1)) + self.places(places.int().reshape(-1) - 1)
        return mixed * attention_mask.reshape(-1, 1), pixels.float() / 255


def test_integer_inputs_have_safe_ranges() -> None:
    inputs = ["tokens=int64[2,6]", "places=int64[2,6]", "attention_mask=int64[2,6]", "pixels=uint8[2,2]"]
    ranges = export(Tokens(), *inputs).int_ranges
    assert ranges == {"tokens": (0, 50), "places": (1, 21), "attention_mask": (0, 2), "pixels": (0, 256)}


# --- outputs ------------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    near: torch.Tensor
    far: torch.Tensor


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    states: Any = None


OUTPUTS: dict[str, tuple[Any, list[str]]] = {
    "tensor": (lambda y: y, ["output"]),
    "dict": (lambda y: {"zeta": y, "alpha": y + 1}, ["zeta", "alpha"]),
    "ordered": (lambda y: collections.OrderedDict(z=y, a=y), ["z", "a"]),
    "tuple": (lambda y: (y, y + 1), ["output_0", "output_1"]),
    "single": (lambda y: (y,), ["output"]),
    "named": (lambda y: Pair(y, y + 1), ["near", "far"]),
    "dataclass": (lambda y: Answer(y, y * 2), ["logits", "states"]),
    "optional": (lambda y: Answer(y), ["logits"]),
    "nested": (lambda y: {"boxes": {"scores": y}, "levels": [y, y + 1]}, ["boxes.scores", "levels.0", "levels.1"]),
    "list_of_dicts": (lambda y: [{"boxes": y, "scores": y + 1}], ["output_0.boxes", "output_0.scores"]),
    "mixed": (lambda y: (y, {"q": y + 1}), ["output_0", "output_1.q"]),
}


class Shaped(Linear):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Any) -> Any:
        return OUTPUTS[self.kind][0](self.layer(x))


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_keep_their_names_and_order(kind: str) -> None:
    model = export(Shaped(kind), "x=float32[1..4,3]")
    assert names(model) == OUTPUTS[kind][1]
    assert model.module is not None
    assert len(model.module(torch.ones(3, 3))) == len(names(model))


def test_an_output_that_is_no_tensor_is_left_out_with_a_word() -> None:
    class Counted(Linear):
        def forward(self, x: Any) -> Any:
            return self.layer(x), 3

    model = export(Counted(), "x=float32[2,3]")
    assert len(names(model)) == 1 and codes(model) == ["output_dropped"]


def test_an_object_as_output_is_refused() -> None:
    class Odd(Linear):
        def forward(self, x: Any) -> Any:
            return object()

    with pytest.raises(UnsupportedError, match="object"):
        export(Odd(), "x=float32[2,3]")


# --- inference form -----------------------------------------------------------------------------------------------------


class Stubborn(Linear):
    """eval() does nothing here."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout()

    def train(self, mode: bool = True) -> Any:
        return super().train(True)

    def eval(self) -> Any:
        return self

    def forward(self, x: Any) -> Any:
        return self.drop(self.norm(self.layer(x)))


def test_pitfall_e_03_a_module_that_overrides_eval_is_set_by_force() -> None:
    model = export(Stubborn(), "x=float32[2,3]")
    assert "eval_overridden" in codes(model)
    x = np.random.default_rng(0).random((2, 3), dtype=np.float32)
    one, other = (reference_outputs(model, {"x": x})["output"] for _ in range(2))
    net = Stubborn()
    calm = nn.functional.linear(torch.from_numpy(x), net.layer.weight, net.layer.bias)
    np.testing.assert_allclose(one, calm.detach() / np.sqrt(1 + 1e-5), rtol=1e-4)
    np.testing.assert_array_equal(one, other)


class Functional(Linear):
    """The functional forms train by default, or because they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        y = functional.dropout(self.layer(x))
        y = functional.batch_norm(y, self.norm.running_mean, self.norm.running_var, training=True)
        y = functional.rrelu(y, training=True)
        q = y.reshape(1, 1, -1, 4)
        return functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)


def test_pitfall_e_03_functional_training_forms_are_set_to_inference_in_the_graph() -> None:
    module = Functional()
    model = export(module, "x=float32[2..8,3]")
    warning = next(w for w in model.warnings if w.code == "set_to_inference")
    for word in ("dropout", "batch_norm", "rrelu", "scaled_dot_product_attention", "test_export.py:"):
        assert word in warning.message
    assert module.training, "the caller's module keeps its mode"
    x = torch.randn(3, 3)
    one, other = program_of(model)(x), program_of(model)(x)
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert torch.equal(module.norm.running_mean, torch.zeros(4)), "no statistics are updated"  # type: ignore[arg-type]


class Noisy(Linear):
    def forward(self, x: Any) -> Any:
        return self.layer(x + torch.randn_like(x))


def test_random_answers_are_refused_with_operator_and_line() -> None:
    with pytest.raises(UnsupportedError, match=r"randn_like \(.*test_export\.py:\d+") as caught:
        export(Noisy(), "x=float32[2,3]")
    assert caught.value.code == "not_deterministic"


def test_random_numbers_of_numpy_are_not_baked_in() -> None:
    class Drawn(Linear):
        def forward(self, x: Any) -> Any:
            return self.layer(x + float(np.random.rand()))

    with pytest.raises(UnsupportedError) as caught:
        export(Drawn(), "x=float32[2,3]")
    assert caught.value.code == "export_differs"


# --- dtype, device, memory order ----------------------------------------------------------------------------------------


def test_half_precision_is_widened_with_a_word_and_the_caller_keeps_it() -> None:
    module = Linear().half()
    model = export(module, "x=float32[2,3]")
    assert codes(model) == ["half_to_float32"]
    assert module.layer.weight.dtype is torch.float16
    assert model.signature.outputs[0].dtype == "float32"


class Elsewhere(torch.Tensor):
    """A parameter that says it is on another device until it is moved (this machine has none)."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda:1")

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def cpu(self) -> torch.Tensor:  # type: ignore[override]
        return self.as_subclass(torch.Tensor).detach()


def test_pitfall_i_10_a_model_spread_over_devices_is_moved_to_the_cpu_with_a_word() -> None:
    module = Linear()
    module.scale = torch.ones(4).as_subclass(Elsewhere)  # type: ignore[assignment]
    model = export(module, "x=float32[2,3]")
    assert codes(model) == ["moved_to_cpu"] and "cuda:1" in model.warnings[0].message


def test_pitfall_e_16_weights_without_values_are_refused_and_all_others_are_on_the_cpu() -> None:
    with torch.device("meta"):
        module = Linear()
    with pytest.raises(InputError, match="no values"):
        export(module, "x=float32[2,3]")

    class Constant(Linear):
        def forward(self, x: Any) -> Any:
            return self.layer(x) + torch.tensor([[1.0, 2.0, 3.0, 4.0]]).t().t()

    program = export(Constant(), "x=float32[2,3]").program
    assert program is not None
    tensors = [t for t in (*program.state_dict.values(), *program.constants.values()) if isinstance(t, torch.Tensor)]
    assert len(tensors) == 3 and all(t.device.type == "cpu" and t.is_contiguous() for t in tensors)


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Any) -> Any:
        return self.conv(x.contiguous(memory_format=torch.channels_last)).relu()


def test_pitfall_e_09_channels_last_weights_and_requests_become_contiguous() -> None:
    module = ChannelsLast().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    program = export(module, "x=float32[1..4,3,8,8]").program
    assert program is not None
    assert all(t.is_contiguous() for t in program.state_dict.values())
    values = [n.meta["val"] for n in program.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    assert all(v.is_contiguous() for v in values)


def test_pitfall_e_07_a_fourier_transform_is_exported_for_the_runtimes_that_take_it() -> None:
    class Spectrum(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.rfft(x).abs()

    model = export(Spectrum(), "x=float32[1..4,64]")
    assert str(model.signature.outputs[0]) == "output=float32[1..4,33]"


# --- what can't be a graph ----------------------------------------------------------------------------------------------


class Branch(Linear):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return self.layer(x)
        return x


def test_pitfall_e_01_a_branch_on_data_names_the_line_and_the_rewrite(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedError, match=r"test_export\.py:\d+: if x\.sum\(\) > 0") as caught:
        export(Branch(), "x=float32[2,3]")
    assert "torch.where" in caught.value.fix and "torch.cond" in caught.value.fix
    out, err = capfd.readouterr()
    assert out == err == "", "torch's half-made graphs stay off the terminal"


def test_pitfall_e_01_a_size_taken_from_data_without_a_bound_is_refused() -> None:
    class Repeat(Linear):
        def forward(self, x: Any) -> Any:
            return torch.zeros(int(x.sum().item()), 2)

    with pytest.raises(UnsupportedError) as caught:
        export(Repeat(), "x=int64[2,3]")
    assert caught.value.exit == 4


def test_both_export_modes_are_tried() -> None:
    class Numpy(Linear):
        def forward(self, x: Any) -> Any:
            return self.layer(x) + torch.from_numpy(x.numpy().mean(0).sum(keepdims=True))

    x = np.random.default_rng(0).random((2, 3), dtype=np.float32)
    model = export(Numpy(), "x=float32[2,3]")
    wanted = Numpy()(torch.from_numpy(x)).detach()
    torch.testing.assert_close(program_of(model)(torch.from_numpy(x)), wanted)


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        from torchvision.ops import nms

        found = self.head(x)
        boxes, scores = found[:, :4].abs().cumsum(1), found[:, 4]
        keep = nms(boxes, scores, 0.5)
        if len(keep) > 3:
            keep = keep[:3]
        return [{"boxes": boxes[keep], "scores": scores[keep]}]


def test_pitfall_e_15_suppression_inside_is_refused_with_the_advice_to_cut_at_the_head() -> None:
    with pytest.raises(UnsupportedError) as caught:
        export(Detector(), "x=float32[20,4]")
    assert caught.value.exit == 4 and caught.value.fix


@pytest.mark.slow
def test_pitfall_e_15_an_ssd_is_cut_at_its_decoded_head() -> None:
    import torchvision
    from torchvision.ops import batched_nms

    torch.manual_seed(0)
    net = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None).eval()
    model = export(net, "images=float32[1,3,320,320]")
    assert names(model) == ["boxes", "scores"] and codes(model) == ["nms_left_out"]
    picture = torch.rand(1, 3, 320, 320)
    with torch.no_grad():
        boxes, scores = program_of(model)(picture).values()
        wanted = net([picture[0]])[0]
    found = []
    for label in range(1, scores.shape[-1]):  # what the warning tells the app to do
        likely = scores[0, :, label] > net.score_thresh
        best, at = scores[0, likely, label].topk(min(net.topk_candidates, int(likely.sum())))
        found.append((boxes[0][likely][at], best, torch.full_like(best, label)))
    all_boxes, all_scores, labels = map(torch.cat, zip(*found, strict=True))
    keep = batched_nms(all_boxes, all_scores, labels, net.nms_thresh)[: net.detections_per_img]
    torch.testing.assert_close(all_boxes[keep], wanted["boxes"], rtol=1e-4, atol=1e-3)


# --- the caller's module ------------------------------------------------------------------------------------------------


def test_wrappers_of_training_are_taken_off() -> None:
    model = export(nn.DataParallel(Linear()), "x=float32[2,3]")
    assert model.program is not None and "layer.weight" in model.program.state_dict


def test_the_callers_module_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).train()
    export(module, "input=float32[2,3]")
    assert module.training and module[1].training
    assert int(module[1].num_batches_tracked) == 0  # type: ignore[arg-type]


def test_weights_are_shared_not_copied() -> None:
    module = Linear().eval()
    program = export(module, "x=float32[2,3]").program
    assert program is not None
    assert program.state_dict["layer.weight"].data_ptr() == module.layer.weight.data_ptr()


def test_what_forward_prints_stays_off_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    class Loud(Linear):
        def forward(self, x: Any) -> Any:
            sys.stdout.write("here")
            return self.layer(x)

    export(Loud(), "x=float32[2,3]")
    assert capsys.readouterr().out == ""
