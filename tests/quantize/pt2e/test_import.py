"""Programs that were quantized elsewhere come in and go out like any other."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.importing import import_model, locate
from edgesdk.runtimes import LowerConfig
from tests.quantize.pt2e.helpers import snr
from tests.runtimes.executorch_nets import RUNTIME


def quantized_elsewhere(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Save what a user of torchao and executorch would; an input and its output."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5)), torch.randn(1, 3, 6, 6)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        chosen = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
        prepared = prepare_pt2e(torch.export.export(net.eval(), (x,)).module(), chosen)
        prepared(x)
        converted = convert_pt2e(prepared)
        torch.export.save(torch.export.export(converted, (x,)), path)
        return x.numpy(), converted(x).numpy()


@pytest.mark.slow
def test_a_converted_program_is_imported_and_lowered(tmp_path: Path) -> None:
    x, wanted = quantized_elsewhere(tmp_path / "q.pt2")
    model = import_model(locate(str(tmp_path / "q.pt2")))
    lowered = RUNTIME.lower(model, LowerConfig(), tmp_path / "q.pte")
    (got,) = RUNTIME.load(lowered.path, model.signature).run([x])
    assert lowered.delegated_fraction == 1.0 and snr(got, wanted) > 60
