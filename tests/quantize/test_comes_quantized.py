"""Models that round already when they arrive: ``convert_pt2e`` and saved, or QDQ graphs of ONNX."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import edgesdk
from edgesdk.errors import InputError, UnsupportedError

DEPTH = 12


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Deep enough that somewhere a sum falls halfway between two steps, which engines round to different sides."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 24, 3, padding=1), *(nn.Conv2d(24, 24, 3, padding=1) for _ in range(DEPTH))]
    net = nn.Sequential(
        *[part for layer in layers for part in (layer, nn.Hardtanh(-2, 2))], nn.Flatten(), nn.LazyLinear(10)
    )
    x = torch.randn(1, 3, 16, 16)
    net.eval()(x)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(net, (x,)).module(), quantizer)
    for _ in range(8):
        prepared(torch.randn_like(x))
    path = tmp_path_factory.mktemp("arrived") / "net.pt2"
    torch.export.save(torch.export.export(convert_pt2e(prepared), (x,)), path)
    yield path


@pytest.mark.slow
def test_it_ships_in_integers_and_the_engines_agree(arrived: Path, tmp_path: Path) -> None:
    made = edgesdk.package(arrived, runtime=["executorch", "onnx"], output=tmp_path / "out")
    for variant in made.variants:
        assert variant["verified"] is True and variant["rung"] == "full"
        assert all(o["snr_db"] is None or o["snr_db"] > 25 for o in variant["outputs"])
    by_runtime = {variant["runtime"]: variant for variant in made.variants}
    assert by_runtime["executorch"]["delegated_fraction"] == 1.0, "no layer left the delegate over a rounding step"
    weights = sum(t.numel() for t in torch.export.load(arrived).state_dict.values())
    assert all(variant["bytes"] < 2 * weights for variant in made.variants), "a byte for each weight, not four"
    assert "int8_hint" not in [w["code"] for w in made.document["warnings"]], "there is nothing left to quantize"
    verdict = edgesdk.verify(made.bundle, against=str(arrived))
    assert verdict.ok


@pytest.mark.slow
def test_torchscript_says_which_form_it_is_and_what_takes_it(arrived: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        edgesdk.package(arrived, runtime="torchscript", output=tmp_path / "out")
    assert "quantized_decomposed" in caught.value.message and "float model" in str(caught.value.fix)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_layer_called_twice_adds_its_bias_in_the_units_of_each_call(tmp_path: Path) -> None:
    """XNNPACK counts a bias in steps of the input's scale; what two calls share it would write once."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.twice = nn.Linear(32, 32)
            nn.init.normal_(self.twice.bias, std=0.02)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.twice(self.twice(x).relu() * 0.2)
            return y

    x = torch.randn(4, 32)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(Twice().eval(), (x,)).module(), quantizer)
    for _ in range(8):
        prepared(torch.randn_like(x))
    torch.export.save(torch.export.export(convert_pt2e(prepared), (x,)), tmp_path / "net.pt2")
    (variant,) = edgesdk.package(tmp_path / "net.pt2", output=tmp_path / "out").variants
    # A step of the output is 1/255 of its range: engines that differ by single steps stay above 40 dB. A bias in the wrong
    # units leaves about 25, which is where the gate for models that come quantized lies.
    assert variant["rung"] == "full" and all(o["snr_db"] is None or o["snr_db"] > 40 for o in variant["outputs"])


@pytest.mark.slow
def test_weights_that_are_rounded_at_each_call_are_rounded_once(tmp_path: Path) -> None:
    """``convert_pt2e(fold_quantize=False)``: XNNPACK ended the process over a convolution whose weight is no constant."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)).eval()
    x = torch.randn(1, 3, 8, 8)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(net, (x,)).module(), quantizer)
    for _ in range(8):
        prepared(torch.randn_like(x))
    converted = convert_pt2e(prepared, fold_quantize=False)
    torch.export.save(torch.export.export(converted, (x,)), tmp_path / "net.pt2")
    (variant,) = edgesdk.package(tmp_path / "net.pt2", output=tmp_path / "out").variants
    assert variant["rung"] == "full" and variant["delegated_fraction"] == 1.0
    assert variant["bytes"] < 2 * sum(p.numel() for p in net.parameters())


def _small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))


def _prepared(way: str, folder: Path) -> str:
    """A model in the state between prepare and convert, as people save it by mistake."""
    from torch.ao.quantization import get_default_qat_qconfig_mapping, get_default_qconfig_mapping, quantize_fx

    x = torch.randn(2, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao is deprecated
        if way == "observers.jit":
            net = quantize_fx.prepare_fx(_small().eval(), get_default_qconfig_mapping("qnnpack"), (x,))
        else:
            net = quantize_fx.prepare_qat_fx(_small().train(), get_default_qat_qconfig_mapping("qnnpack"), (x,))
        net(x)
        net.eval()
        path = folder / way
        if way.endswith(".pt2"):
            torch.export.save(torch.export.export(net, (x,)), path)
        else:
            torch.jit.save(torch.jit.trace(net, (x,), check_trace=False), path)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["observers.jit", "qat.jit", "qat.pt2"])
def test_a_model_that_was_prepared_and_never_converted_is_refused_by_what_it_is(way: str, tmp_path: Path) -> None:
    path = _prepared(way, tmp_path)
    with pytest.raises(InputError) as caught:
        edgesdk.package(path, runtime="torchscript", inputs=["input=float32[2,3,8,8]"], output=tmp_path / "out")
    assert caught.value.code == "unfinished_quantization" and "convert_fx" in str(caught.value.fix)


@pytest.mark.slow
def test_int8_that_is_only_simulated_is_told_and_not_quantized_again(tmp_path: Path) -> None:
    class Simulated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = _small().eval()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.fake_quantize_per_tensor_affine(x, 0.03, 0, -128, 127)
            return torch.fake_quantize_per_tensor_affine(self.inner(x), 0.01, 0, -128, 127)

    asked: dict[str, Any] = {"runtime": "onnx", "inputs": ["x=float32[2,3,8,8]"]}
    made = edgesdk.package(Simulated(), output=tmp_path / "float", **asked)
    codes = {w["code"]: w["message"] for w in made.document["warnings"]}
    assert "2 fake_quantize_per_tensor_affine" in codes["simulated_int8"] and "int8_hint" not in codes
    with pytest.raises(UnsupportedError, match="quantized already"):
        edgesdk.package(Simulated(), output=tmp_path / "int8", quantize="weight-int8", **asked)


@pytest.mark.slow
def test_a_quantized_onnx_file_is_told_as_one_where_it_can_be_taken_no_further(tmp_path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    numbers = {"scale": np.float32(0.05), "zero": np.int8(0), "w": np.ones((8, 4), np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
            helper.make_node("MatMul", ["d", "w"], ["y"]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.array(value), name) for name, value in numbers.items()],
    )
    path = tmp_path / "qdq.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(UnsupportedError, match="quantized already") as caught:
        edgesdk.package(path, runtime="executorch", output=tmp_path / "pte")
    assert "--runtime onnx" in str(caught.value.fix)
    with pytest.raises(UnsupportedError, match="quantized already, so fp16"):
        edgesdk.package(path, runtime="onnx", quantize="fp16", output=tmp_path / "fp16")
    assert edgesdk.package(path, runtime="onnx", output=tmp_path / "out").variants[0]["verified"] is True


class Ours(nn.Module):
    """A step behind the activations that its author named as torch names observers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.activation_post_process = nn.Linear(8, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.activation_post_process(self.inner(x))
        return y


@pytest.mark.slow
def test_a_layer_with_the_name_of_an_observer_is_none(tmp_path: Path) -> None:
    made = edgesdk.package(Ours().eval(), runtime="onnx", inputs=["x=float32[2,8]"], output=tmp_path / "out")
    assert made.variants[0]["verified"] is True


@pytest.mark.slow
@pytest.mark.parametrize("way", ["reference", "archive"])
@pytest.mark.parametrize("scheme", ["weight-int8", "fp16"])
def test_integers_of_torch_itself_are_not_quantized_again(way: str, scheme: str, tmp_path: Path) -> None:
    """``convert_to_reference_fx`` ended in a traceback; int8 archives were said to be ones that can't be exported."""
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_dynamic, quantize_fx

    x = torch.randn(2, 3, 8, 8)
    model: Any
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao is deprecated
        if way == "reference":
            prepared = quantize_fx.prepare_fx(_small().eval(), get_default_qconfig_mapping("qnnpack"), (x,))
            prepared(x)
            model = quantize_fx.convert_to_reference_fx(prepared)
        else:
            model = str(tmp_path / "net.jit")
            torch.jit.save(torch.jit.trace(quantize_dynamic(_small().eval(), {nn.Linear}), (x,)), model)
    runtime = "onnx" if way == "reference" else "torchscript"
    asked: dict[str, Any] = {"runtime": runtime, "inputs": ["input=float32[2,3,8,8]"], "output": tmp_path / "out"}
    with warnings.catch_warnings(), pytest.raises(UnsupportedError, match="quantized already"):
        warnings.simplefilter("ignore")
        edgesdk.package(model, quantize=scheme, **asked)
    if way == "archive":
        made = edgesdk.package(model, **asked)
        assert "int8_hint" not in [w["code"] for w in made.document["warnings"]], "its weights don't stay float32"


@pytest.mark.slow
def test_weights_that_torchao_replaced_are_told(tmp_path: Path) -> None:
    """They ended in a traceback, with every runtime."""
    (tmp_path / "net.py").write_text(
        "import torch, torchao.quantization as q\n"
        "def net():\n"
        "    made = torch.nn.Sequential(torch.nn.Linear(64, 64)).eval()\n"
        "    q.quantize_(made, q.Int8WeightOnlyConfig())\n"
        "    return made\n"
    )
    asked: dict[str, Any] = {"runtime": "onnx", "inputs": ["input=float32[2,64]"], "output": tmp_path / "out"}
    with pytest.raises(UnsupportedError, match="quantized already, by torchao"):
        edgesdk.package(f"{tmp_path}/net.py:net", **asked)
