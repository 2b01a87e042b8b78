"""Small networks, their calibration samples, and the way from both to a quantized file and its figures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch

from edgesdk.artifacts import Layer, Lowered, Model, Signature, Source, TensorSpec
from edgesdk.data import Sample, StoreWriter
from edgesdk.runtimes import LowerConfig, Runner, find
from tests.runtimes import graphs

ALL = ("static-int8", "dynamic-int8", "weight-int8", "weight-int4")


def store(folder: Path, model: Model, count: int = 16, *, seed: int = 0, scale: float = 1.0) -> Path:
    """Normally distributed numbers for every input of the model, dynamic sizes at their least."""
    source = np.random.default_rng(seed)
    with StoreWriter(folder) as writer:
        for number in range(count):
            writer.append(Sample(feed(model, source, scale), None, f"sample {number}"))
    return folder


def feed(model: Model, source: np.random.Generator, scale: float = 1.0) -> dict[str, np.ndarray]:
    made = {}
    for spec in model.signature.inputs:
        shape = [d if isinstance(d, int) else d.min for d in spec.shape or ()]
        if spec.dtype == "float32":
            made[spec.name] = (scale * source.standard_normal(shape)).astype(np.float32)
        else:
            made[spec.name] = source.integers(0, 10, shape).astype(spec.dtype)
    return made


def quantized(model: Model, scheme: str, folder: Path, name: str = "net", **more: Any) -> tuple[Lowered, Runner]:
    """Lower with samples from ``folder / "samples"``, which are made when they aren't there."""
    samples = folder / "samples"
    if not samples.exists():
        store(samples, model)
    engine = find("onnx")
    suffix = ".ort" if more.get("ort_format") else ".onnx"
    made = engine.lower(
        model, LowerConfig(quantization=scheme, calibration=samples, **more), folder / f"{name}{suffix}"
    )
    return made, engine.load(made.path, model.signature)


def snr(model: Model, runner: Runner, count: int = 8, seed: int = 99) -> float:
    """Decibels over all outputs, on samples that calibration hasn't seen, against the model's float form."""
    source = np.random.default_rng(seed)
    signal = noise = 0.0
    for _ in range(count):
        given = feed(model, source)
        wanted = _reference(model, given)
        for a, b in zip(wanted, runner.run(list(given.values())), strict=True):
            signal += float((a.astype(np.float64) ** 2).sum())
            noise += float(((a.astype(np.float64) - b) ** 2).sum())
    return float(10 * np.log10(signal / max(noise, 1e-30)))


def _reference(model: Model, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    if model.module is None:
        assert model.onnx is not None
        return find("onnx").load(model.onnx, model.signature).run(list(given.values()))
    with torch.no_grad():
        answer = model.module(*(torch.from_numpy(v) for v in given.values()))
    return [t.numpy() for t in torch.utils._pytree.tree_leaves(answer)]


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def layer(made: Lowered, name: str) -> Layer:
    return next(x for x in made.layers if x.name == name)


def float_bytes(model: Model, folder: Path) -> int:
    made, _ = graphs.lowered("onnx", model, folder, name="float")
    return made.path.stat().st_size


def of_graph(
    path: Path, nodes: list[ir.Node], inputs: list[ir.Value], outputs: list[ir.Value], opset: int = 17
) -> Model:
    """A model that came as ONNX: inputs float32; weights are the values that hold a constant."""
    weights = {v.name: v for node in nodes for v in node.inputs if v is not None and v.const_value is not None}
    graph = ir.Graph(inputs, outputs, nodes=nodes, initializers=list(weights.values()), opset_imports={"": opset})
    for value in outputs:
        value.dtype = ir.DataType.FLOAT
    ir.save(ir.Model(graph, ir_version=8), path)
    specs = tuple(
        TensorSpec(str(v.name), "float32", tuple(d for d in v.shape or () if isinstance(d, int))) for v in inputs
    )
    answers = tuple(TensorSpec(str(v.name), "float32", None) for v in outputs)
    return Model(Source(path.stem, "onnx"), Signature(specs, answers), onnx=path)


def value(name: str, *shape: int) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))


def weight(name: str, array: np.ndarray) -> ir.Value:
    made = value(name, *array.shape)
    made.const_value = ir.tensor(array.astype(np.float32), name=name)
    return made


class Cnn(torch.nn.Module):
    """Convolution with batch norm, depthwise, residual addition, pooling, linear; every weight has a name."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = torch.nn.Sequential(
            torch.nn.Conv2d(3, width, 3, padding=1, bias=False), torch.nn.BatchNorm2d(width), torch.nn.ReLU6()
        )
        self.depthwise = torch.nn.Conv2d(width, width, 3, groups=width, padding=1)
        self.point = torch.nn.Conv2d(width, width, 1)
        self.last = torch.nn.Conv2d(width, 2 * width, 3)
        self.head = torch.nn.Linear(2 * width * 9, 10)
        norm = self.stem[1]
        assert isinstance(norm, torch.nn.BatchNorm2d) and norm.running_mean is not None
        norm.running_mean.normal_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        y = (y + self.point(self.depthwise(y).relu())).relu()
        y = self.last(torch.nn.functional.max_pool2d(y, 2)).relu()
        return self.head(torch.nn.functional.max_pool2d(y, 2).flatten(1))  # type: ignore[no-any-return]


class Texts(torch.nn.Module):
    """Embedding, LSTM, linear layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(200, 32)
        self.lstm = torch.nn.LSTM(32, 32, batch_first=True, bidirectional=True)
        self.mix, self.head = torch.nn.Linear(64, 64), torch.nn.Linear(64, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        y = self.lstm(self.words(tokens))[0]
        return self.head(self.mix(y).relu().mean(1))  # type: ignore[no-any-return]


def cnn(width: int = 16) -> Model:
    return graphs.model_of(Cnn(width), (torch.randn(2, 3, 16, 16),), [{0: graphs.BATCH}])


def texts() -> Model:
    return graphs.model_of(Texts(), (torch.randint(0, 200, (2, 7)),), [{0: graphs.BATCH}])
