"""Models that round already when they arrive: ``convert_pt2e`` and saved, or QDQ graphs of ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import edgesdk
from edgesdk.errors import UnsupportedError

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
