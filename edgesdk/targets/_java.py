"""Java lines that feed a model's inputs and read its outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgesdk.report import _words
from edgesdk.targets import _names

_MADE = {
    "float32": "Tensor.of(new float[{count}], {sizes})",
    "float64": "Tensor.of(new double[{count}], {sizes})",
    "int64": "Tensor.of(new long[{count}], {sizes})",
    "int32": "Tensor.of(new int[{count}], {sizes})",
    "int16": "Tensor.of(new short[{count}], {sizes})",
    "int8": "Tensor.int8(new byte[{count}], {sizes})",
    "uint8": "Tensor.uint8(new byte[{count}], {sizes})",
    "bool": "Tensor.of(new boolean[{count}], {sizes})",
}
"""Factories of ``dev.edgesdk.Tensor``; the other dtypes are filled through a buffer."""


def tensors(inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Statements that make every input, at its least sizes, run ``session``, and read the first output."""
    lines = ["Map<String, Tensor> inputs = new HashMap<>();"]
    lines += [
        f"inputs.put({_names.java_string(str(spec['name']))}, {_made(spec)});  // {_sizes(spec)}" for spec in inputs
    ]
    lines.append("Map<String, Tensor> outputs = session.run(inputs);")
    for number, spec in enumerate(outputs):
        read = f"outputs.get({_names.java_string(str(spec['name']))})"
        begin = f"float[] values = {read}.toFloats();  //" if number == 0 else f"// {read}:"
        lines.append(f"{begin} {_sizes(spec)}")
    return lines


def _sizes(spec: Mapping[str, Any]) -> str:
    return f"{spec['dtype']}, {_words.shape(spec['shape'])}"


def _made(spec: Mapping[str, Any]) -> str:
    sizes = [int(str(size).partition("..")[0]) for size in spec["shape"]]
    listed = ", ".join(map(str, sizes))
    count = math.prod(sizes)
    if spec["dtype"] not in _MADE:
        dtype = f"DType.{str(spec['dtype']).upper()}"
        return f"Tensor.allocate({dtype}, {listed})" if sizes else f"Tensor.allocate({dtype})"
    made = _MADE[spec["dtype"]].format(count=count, sizes=listed)
    return made if sizes else made.replace(", )", ")")
