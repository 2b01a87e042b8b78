"""Files written in pieces have the bytes of files written at once."""

from __future__ import annotations

import io

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgesdk.runtimes import _onnx_stream

_RNG = np.random.default_rng(0)


def _model(*weights: TensorProto) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", [w.name], [f"y{i}"], name=f"n{i}") for i, w in enumerate(weights)]
    outputs = [helper.make_tensor_value_info(f"y{i}", w.data_type, list(w.dims)) for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", [], outputs, list(weights), doc_string="a graph")
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="p", doc_string="a model"
    )
    helper.set_model_props(made, {"b": "2", "a": "1"})
    return made


def _floats(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(_RNG.standard_normal(shape).astype(np.float32), name)


LARGE = _floats("large", 300, 300)
NOT_RAW = helper.make_tensor("spelled", TensorProto.FLOAT, (200, 200), _RNG.standard_normal(40000).tolist())
DESCRIBED = _floats("described", 200, 200)
DESCRIBED.doc_string = "what it is"
MODELS = {
    "small": _model(_floats("w", 3)),
    "large": _model(LARGE, _floats("w", 3), _floats("second", 128, 1000)),
    "not raw": _model(NOT_RAW, LARGE),
    "described": _model(DESCRIBED),
    "int8": _model(numpy_helper.from_array(_RNG.integers(-9, 9, (400, 400)).astype(np.int8), "whole")),
    "empty": _model(),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_bytes_are_protobufs(name: str) -> None:
    model = ir.from_proto(MODELS[name])
    wanted = ir.to_proto(model).SerializeToString(deterministic=True)
    assert b"".join(_onnx_stream.serialized(model)) == wanted
    assert ir.to_proto(model).SerializeToString(deterministic=True) == wanted, "the graph was changed"


def test_weights_made_in_memory_are_written_like_those_read() -> None:
    model = ir.from_proto(MODELS["large"])
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = ir.tensor(value.const_value.numpy(), name=value.name)
    wanted = ir.to_proto(model).SerializeToString(deterministic=True)
    found = io.BytesIO()
    found.writelines(_onnx_stream.serialized(model))
    assert found.getvalue() == wanted


def test_numbers_beyond_seven_bits() -> None:
    assert [_onnx_stream._varint(n) for n in (0, 127, 128, 300, 1 << 35)] == [
        b"\0", b"\x7f", b"\x80\x01", b"\xac\x02", b"\x80\x80\x80\x80\x80\x01",
    ]  # fmt: skip
