"""``nn.Transformer`` and its layers: masks of any kind, and what their fast path answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.artifacts import Model, Source, parse_input
from edgesdk.importing import ImportOptions, Located
from edgesdk.importing._export import export_module
from edgesdk.importing._reference import reference_outputs


def _export(module: nn.Module, *inputs: str) -> Model:
    asked = ImportOptions(inputs=tuple(map(parse_input, inputs)))
    return export_module(module, Located("module", "net", Source("net", "module")), asked)


class Encoder(nn.Module):
    """Two causal layers, as PyTorch's tutorials write them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

    def forward(self, x: Any) -> Any:
        return self.layers(x, mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]))


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, x: Any, y: Any) -> Any:
        return self.net(x, y, tgt_mask=nn.Transformer.generate_square_subsequent_mask(y.shape[1]))


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [(Encoder, ("x=float32[1..2,3..9,8]",)), (Whole, ("x=float32[1,5,8]", "y=float32[1,6,8]"))],
)
def test_a_causal_mask_leaves_no_fused_operator_and_no_branch(kind: type[nn.Module], inputs: tuple[str, ...]) -> None:
    module = kind().eval()
    model = _export(module, *inputs)
    assert model.program is not None
    operators = {str(node.target) for node in model.program.graph.nodes}
    assert not any("encoder_layer_fwd" in name or "native_multi_head" in name for name in operators)
    rng = np.random.default_rng(0)
    feed = {s.name: rng.normal(size=(1, 6, 8)[: len(s.shape or ())]).astype("float32") for s in model.signature.inputs}
    feed = {name: array[:, :5] if name == "x" else array for name, array in feed.items()}
    with torch.no_grad():
        want = module(*(torch.from_numpy(array) for array in feed.values())).numpy()
    assert np.abs(reference_outputs(model, feed)["output"] - want).max() < 1e-5


def test_padding_is_answered_alike_however_the_mask_lies_and_told() -> None:
    class Padded(Encoder):
        def forward(self, x: Any, pad: Any) -> Any:
            return self.layers(x, src_key_padding_mask=pad)

    model = _export(Padded().eval(), "x=float32[1,6,8]", "pad=bool[1,6]")
    assert "padded_positions" in [warn.code for warn in model.warnings]
    x = np.random.default_rng(0).normal(size=(1, 6, 8)).astype("float32")
    feed = {"x": x, "pad": np.array([[False] * 4 + [True] * 2])}
    given = model.program.module()(*map(torch.from_numpy, feed.values()))  # type: ignore[union-attr]
    assert np.abs(reference_outputs(model, feed)["output"] - given.detach().numpy()).max() < 1e-5
    assert torch.backends.mha.get_fastpath_enabled()  # the caller's own setting stands
