"""ONNX files as other exporters write them: weights in nodes, open sizes, branches, foreign and quantized operators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgesdk.artifacts import parse_input
from edgesdk.importing import ImportOptions
from edgesdk.inspection import inspect

FLOAT = TensorProto.FLOAT


def weight(name: str, *sizes: int, dtype: type = np.float32) -> Any:
    return numpy_helper.from_array(np.ones(sizes, dtype), name)


def saved(path: Path, nodes: Sequence[Any], sizes: Sequence[Any], weights: Sequence[Any] = (), domains: Sequence[str] = ()) -> Path:  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", FLOAT, sizes)], [helper.make_tensor_value_info("y", FLOAT, None)], weights
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def doc(path: Path, *inputs: str) -> dict[str, Any]:
    found = inspect(path, ImportOptions(inputs=tuple(map(parse_input, inputs))))
    document: dict[str, Any] = json.loads(json.dumps(found.to_json()))
    return document


CONV = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
WEIGHTS = [weight("w", 8, 3, 3, 3), weight("b", 8)]


@pytest.mark.parametrize("place", ["initializers", "nodes"])
def test_weights_count_wherever_they_stand(tmp_path: Path, place: str) -> None:
    """Paddle and OpenVINO write weights as Constant nodes."""
    constants = [helper.make_node("Constant", [], [w.name], value=w) for w in WEIGHTS]
    nodes, weights = (CONV, WEIGHTS) if place == "initializers" else ([*constants, *CONV], [])
    found = doc(saved(tmp_path / "m.onnx", nodes, [1, 3, 10, 10], weights))
    assert found["parameters"] == 8 * 27 + 8
    assert found["macs"] == 100 * 8 * 27


def test_statistics_scales_and_sizes_are_no_parameters(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("BatchNormalization", ["x", "s", "o", "m", "v"], ["n"]),
        helper.make_node("Mul", ["n", "half"], ["h"]),
        helper.make_node("Reshape", ["h", "shape"], ["y"]),
    ]
    weights = [weight(n, 3) for n in "somv"] + [weight("half"), weight("shape", 2, dtype=np.int64)]
    assert doc(saved(tmp_path / "m.onnx", nodes, [1, 3, 4, 4], weights))["parameters"] == 6


def test_quantized_weights_count(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    weights = [weight("q", 5, 4, dtype=np.int8), weight("s"), weight("z", dtype=np.int8)]
    found = doc(saved(tmp_path / "m.onnx", nodes, [2, 5], weights))
    assert found["parameters"] == 20 and found["macs"] == 2 * 5 * 4


@pytest.mark.parametrize("open_size", ["n", -1])
def test_open_sizes_are_asked_for_and_settled_by_input(tmp_path: Path, open_size: Any) -> None:
    path = saved(tmp_path / "m.onnx", CONV, [1, 3, open_size, open_size], WEIGHTS)
    found = doc(path)
    assert found["macs"] is None and found["inputs"][0]["shape"][2] == "1..2147483647"
    assert found["runtimes"]["onnx"]["status"] == "yes" and found["runtimes"]["executorch"]["status"] == "partly"
    assert "--input 'x=float32[1,3,224,224]'" in found["runtimes"]["executorch"]["fix"]
    settled = doc(path, "x=float32[1,3,10,10]")
    assert settled["macs"] == 100 * 8 * 27 and settled["inputs"][0]["shape"] == [1, 3, 10, 10]
    assert settled["runtimes"]["executorch"]["status"] == "yes"


@pytest.mark.parametrize(
    ("node", "domains", "status", "word"),
    [
        (helper.make_node("NonMaxSuppression", ["x", "x"], ["y"]), [], ("no", "yes"), "NonMaxSuppression"),
        (helper.make_node("Swish", ["x"], ["y"], domain="my.lib"), ["my.lib"], ("no", "no"), "my.lib"),
        (helper.make_node("FusedConv", ["x", "x"], ["y"], domain="com.microsoft"), ["com.microsoft"], ("no", "yes"), "FusedConv"),
    ],
)  # fmt: skip
def test_operators_that_stop_a_runtime_are_named(
    tmp_path: Path, node: Any, domains: list[str], status: Any, word: str
) -> None:
    runtimes = doc(saved(tmp_path / "m.onnx", [node], [1, 4, 4], domains=domains))["runtimes"]
    assert (runtimes["executorch"]["status"], runtimes["onnx"]["status"]) == status
    assert word in runtimes["torchscript"]["why"]


def test_branches_count_and_are_told(tmp_path: Path) -> None:
    out = helper.make_tensor_value_info("r", FLOAT, [1, 4])
    branch = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["r"])], "t", [], [out], [weight("w", 4, 4)])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["r"])], "e", [], [out])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=other)
    flag = numpy_helper.from_array(np.array(True), "flag")
    found = doc(saved(tmp_path / "m.onnx", [node], [1, 4], [flag]))
    assert found["operators"] == {"Identity": 1, "If": 1, "MatMul": 1} and found["parameters"] == 16
    assert found["runtimes"]["executorch"]["status"] == "partly" and found["runtimes"]["onnx"]["status"] == "yes"


def test_recurrent_layers_have_their_work(tmp_path: Path) -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=6)
    found = doc(saved(tmp_path / "m.onnx", [node], [7, 2, 5], [weight("w", 1, 24, 5), weight("r", 1, 24, 6)]))
    assert found["macs"] == 7 * 2 * 24 * 11


def test_weights_in_a_second_file_are_counted_not_read(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", CONV, [1, 3, 10, 10], WEIGHTS)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="m.data", size_threshold=0)
    found = doc(path)
    assert found["parameters"] == 8 * 27 + 8 and found["macs"] == 100 * 8 * 27


def test_operators_of_the_file_s_own_functions_are_those_it_is_made_of(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) { y = own.twice(x) } <domain: \"own\", opset_import: [\"\": 17]> twice (a) => (b) { b = Add(a, a) }"  # fmt: skip
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "own": 1]> {text}'), str(path))
    found = doc(path)
    assert found["operators"] == {"Add": 1}
    assert all(answer["status"] == "yes" for answer in found["runtimes"].values()), found["runtimes"]
