"""What happens to a graph before it is quantized changes nothing but its form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgesdk.artifacts import Model
from edgesdk.quantize._onnx import _prepare
from edgesdk.runtimes import _onnx_ort, _onnx_run, find
from tests.quantize.onnx import nets


def prepared(model: Model, folder: Path) -> tuple[ir.Model, float]:
    """The graph, and its largest difference to the source, relative to the largest answer."""
    assert model.onnx is not None
    graph = _prepare.prepare(ir.load(model.onnx), model.onnx, None)
    _prepare.tidy(graph)
    ir.save(graph, folder / "prepared.onnx")
    given = [nets.feed(model, np.random.default_rng(0))[spec.name] for spec in model.signature.inputs]
    wanted = find("onnx").load(model.onnx, model.signature).run(given)[0]
    found = find("onnx").load(folder / "prepared.onnx", model.signature).run(given)[0]
    return graph, float(np.abs(wanted - found).max() / np.abs(wanted).max())


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_scalings_go_into_weights(op: str, groups: int, bias: bool, tmp_path: Path) -> None:
    """Times, plus, minus and divided by constants, whole and for each channel; also of grouped transposed ones."""
    source = np.random.default_rng(0)
    x = nets.value("x", 1, 8, 6, 6)
    shape = (12, 8 // groups, 3, 3) if op == "Conv" else (8, 12 // groups, 3, 3)
    given = [
        x,
        nets.weight("w", source.normal(size=shape)),
        *([nets.weight("b", source.normal(size=12))] if bias else []),
    ]
    nodes = [ir.node(op, given, {"group": groups})]
    for number, (kind, size) in enumerate(
        [("Mul", (1, 12, 1, 1)), ("Add", (12, 1, 1)), ("Div", ()), ("Sub", (1,)), ("Mul", (1, 1, 1, 1))]
    ):
        constant = nets.weight(f"c{number}", source.uniform(0.5, 2, size))
        nodes.append(ir.node(kind, [nodes[-1].outputs[0], constant]))
    out = nodes[-1].outputs[0]
    out.name, out.shape = "out", ir.Shape((1, 12, None, None))
    graph, off = prepared(nets.of_graph(tmp_path / "source.onnx", nodes, [x], [out]), tmp_path)
    assert [n.op_type for n in graph.graph] == [op] and off < 1e-6
    assert [v.name for v in graph.graph.outputs] == ["out"]


def test_a_scaling_that_others_read_stays(tmp_path: Path) -> None:
    """The convolution's own result is an output too."""
    source = np.random.default_rng(0)
    x = nets.value("x", 1, 2, 6, 6)
    conv = ir.node("Conv", [x, nets.weight("w", source.normal(size=(4, 2, 3, 3)))])
    scaled = ir.node("Mul", [conv.outputs[0], nets.weight("c", source.normal(size=(1, 4, 1, 1)))])
    for node, name in ((conv, "raw"), (scaled, "out")):
        node.outputs[0].name, node.outputs[0].shape = name, ir.Shape((1, 4, 4, 4))
    model = nets.of_graph(tmp_path / "source.onnx", [conv, scaled], [x], [scaled.outputs[0], conv.outputs[0]])
    graph, off = prepared(model, tmp_path)
    assert sorted(n.op_type for n in graph.graph) == ["Conv", "Mul"] and off < 1e-6


@pytest.mark.parametrize("by", [6.0, 5.0])
def test_hard_swish_is_recognized_by_its_numbers(by: float, tmp_path: Path) -> None:
    x = nets.value("x", 1, 2, 6, 6)
    numbers = {name: nets.weight(name, np.array(v)) for name, v in (("three", 3), ("zero", 0), ("six", 6), ("by", by))}
    add = ir.node("Add", [x, numbers["three"]])
    clip = ir.node("Clip", [add.outputs[0], numbers["zero"], numbers["six"]])
    times = ir.node("Mul", [x, clip.outputs[0]])
    divide = ir.node("Div", [times.outputs[0], numbers["by"]])
    divide.outputs[0].name, divide.outputs[0].shape = "out", ir.Shape((1, 2, 6, 6))
    model = nets.of_graph(tmp_path / "source.onnx", [add, clip, times, divide], [x], [divide.outputs[0]])
    graph, off = prepared(model, tmp_path)
    assert off < 1e-6
    assert ("HardSigmoid" in [n.op_type for n in graph.graph]) == (by == 6)


def test_long_names_are_cut_and_stay_apart(tmp_path: Path) -> None:
    """TensorFlow's converter joins paths with semicolons."""
    x = nets.value("x", 1, 4)
    nodes: list[ir.Node] = []
    for number in range(3):
        nodes.append(ir.node("Relu" if number % 2 else "Abs", [nodes[-1].outputs[0] if nodes else x]))
        nodes[-1].name = nodes[-1].outputs[0].name = "model/" + "block/" * 40 + str(number)
    out = nodes[-1].outputs[0]
    out.shape = ir.Shape((1, 4))
    graph, off = prepared(nets.of_graph(tmp_path / "source.onnx", nodes, [x], [out]), tmp_path)
    inner = [str(v.name) for n in graph.graph for v in n.outputs if not v.is_graph_output()]
    assert off == 0 and len(set(inner)) == len(inner) and all(len(name) < 50 for name in inner)
    assert graph.graph.outputs[0].name == out.name, "what callers use stays"


def test_the_host_s_cpu_stays_out_of_ort_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without VNNI this machine would get unsigned weights; a phone must not."""
    model = nets.cnn()
    made, _ = nets.quantized(model, "static-int8", tmp_path)
    sizes = []
    for kind in ("x86-vnni", "x86"):
        monkeypatch.setattr(_onnx_run, "host", lambda kind=kind: kind)
        _onnx_ort.convert(made.path, tmp_path / f"{kind}.ort")
        sizes.append((tmp_path / f"{kind}.required_operators_and_types.config", tmp_path / f"{kind}.ort"))
    texts = [listed.read_text().split("\n", 1)[1] if listed.exists() else "" for listed, _ in sizes]
    assert texts[0] == texts[1] and sizes[0][1].stat().st_size == sizes[1][1].stat().st_size


@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_a_bias_that_is_computed_takes_no_scaling(op: str, tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    x, t = nets.value("x", 1, 4, 6, 6), nets.value("t", 4)
    weight = nets.weight("w", source.standard_normal((4, 4, 3, 3)))
    bias = ir.Node("", "Tanh", [t])
    conv = ir.Node("", "Conv", [x, weight, bias.outputs[0]])
    last = ir.Node("", op, [conv.outputs[0], nets.weight("c", source.standard_normal((1, 4, 1, 1)))])
    model = nets.of_graph(tmp_path / "net.onnx", [bias, conv, last], [x, t], [last.outputs[0]])
    graph, difference = prepared(model, tmp_path)
    assert difference < 1e-5 and op in [node.op_type for node in graph.graph]
