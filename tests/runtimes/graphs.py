"""Tiny networks as imported models, and what their lowered files answer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten_with_path

from edgesdk.artifacts import Dim, Lowered, Model, Signature, Source, TensorSpec
from edgesdk.runtimes import EdgeRuntime, LowerConfig, Runner, find

torch.set_num_threads(1)


def model_of(
    net: torch.nn.Module, example: tuple[torch.Tensor, ...], dynamic: Sequence[Mapping[int, Dim]] = (), **more: Any
) -> Model:
    """Export ``net``; ``dynamic`` gives the dynamic dimensions of each input by axis (equal symbol: equal size)."""
    net = net.eval()
    known = {d.symbol: torch.export.Dim(str(d.symbol), min=d.min, max=d.max) for axes in dynamic for d in axes.values()}
    shapes = tuple({axis: known[d.symbol] for axis, d in axes.items()} for axes in dynamic) or None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an LSTM's weights are said to be assigned during export
        program = torch.export.export(net, example, dynamic_shapes=shapes)
    places = [dict(axes) for axes in dynamic] or [{} for _ in example]
    inputs = [_spec(f"in_{i}", t, places[i]) for i, t in enumerate(example)]
    with torch.no_grad():
        leaves, _ = tree_flatten_with_path(net(*example))
    outputs = [
        TensorSpec(_leaf_name(path, number), str(t.dtype).removeprefix("torch."), None)
        for number, (path, t) in enumerate(leaves)
    ]
    return Model(
        Source("net", "exported_program"), Signature(tuple(inputs), tuple(outputs)), program=program, module=net, **more
    )


def _spec(name: str, tensor: torch.Tensor, dims: Mapping[int, Dim]) -> TensorSpec:
    return TensorSpec(
        name, str(tensor.dtype).removeprefix("torch."), tuple(dims.get(i, n) for i, n in enumerate(tensor.shape))
    )


def _leaf_name(path: tuple[Any, ...], number: int) -> str:
    last = path[-1] if path else None
    return str(getattr(last, "key", f"output_{number}"))


def lowered(
    runtime: str, model: Model, folder: Path, config: LowerConfig | None = None, name: str = "net"
) -> tuple[Lowered, Runner]:
    engine: EdgeRuntime = find(runtime)
    made = engine.lower(model, config or LowerConfig(), folder / f"{name}{engine.suffix}")
    return made, engine.load(made.path, model.signature)


def difference(runner: Runner, net: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> float:
    """Greatest difference to eager, over all outputs, relative to the output's largest value."""
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(net(*(t.clone() for t in inputs)))
    found = runner.run([t.numpy() for t in inputs])
    assert [f.shape for f in found] == [tuple(w.shape) for w in wanted]
    assert [str(f.dtype) for f in found] == [str(w.dtype).removeprefix("torch.") for w in wanted]
    return max(_off(f, w.numpy()) for f, w in zip(found, wanted, strict=True))


def _off(found: np.ndarray, wanted: np.ndarray) -> float:
    if not wanted.size:
        return 0.0
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-6))


class Picture(torch.nn.Module):
    """Convolution, batch norm, 1×1 convolution, non-zero pad, linear; a dict whose order isn't alphabetical."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4)
        self.point, self.head = torch.nn.Conv2d(4, 4, 1), torch.nn.Linear(4 * 100, 10)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.nn.functional.pad(self.point(self.norm(self.conv(x)).relu()), (1, 1, 1, 1), value=0.5)
        return {"zeta": self.head(y.flatten(1)), "alpha": y.mean((2, 3))}


class Sentence(torch.nn.Module):
    """Token numbers and a mask; attention over a dynamic length; sizes in arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 24)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        b, t = tokens.shape
        x = self.norm(self.embed(tokens))
        q, k, v = self.mix(x).reshape(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        allowed = (mask > 0)[:, None, None, :].expand(b, 1, t, t)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        y = y.transpose(1, 2).reshape(b, t, 8)
        return y.mean(1) * (t // 2 + 1), y.argmax(-1)


class Counter(torch.nn.Module):
    """Keeps a running sum."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.total.add_(x)
        return self.total * 2, self.total


BATCH = Dim(1, 8, "b")
LENGTH = Dim(2, 12, "t")


def picture_model() -> Model:
    return model_of(Picture(), (torch.randn(2, 1, 8, 8),), [{0: BATCH}])


def sentence_model() -> Model:
    return model_of(Sentence(), sentence(2, 5), [{0: BATCH, 1: LENGTH}] * 2)


def sentence(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:, -1] = 0
    return torch.randint(0, 20, (batch, length)), mask
