"""The user's own ONNX file: taken as it is unless something was asked that needs a change."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model, Signature, Size, TensorSpec
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.runtimes._onnx_versions import DEFAULT_OPSET, check_file
from edgesdk.runtimes._onnx_write import graphs

if TYPE_CHECKING:
    import onnx_ir as ir


def read(path: Path) -> ir.Model:
    """Read the graph; weights outside it stay where they are until they are written.

    Raises:
        InputError: the file, or its second file with the weights, is missing or damaged.
    """
    import onnx_ir as ir

    decode_error: Any = importlib.import_module("google.protobuf.message").DecodeError  # has no type information
    try:
        model = ir.load(path)
    except (OSError, ValueError, TypeError, decode_error) as exc:
        raise InputError(
            "onnx_damaged", f"{path.name} can't be read as ONNX.", why="It is missing, cut off, or of another kind.",
            fix="Export it again, or fetch it again.",
        ) from exc  # fmt: skip
    _check_external(model, path)
    return model


def _check_external(model: ir.Model, path: Path) -> None:
    import onnx_ir as ir

    for value in model.graph.initializers.values():
        tensor = value.const_value
        if not isinstance(tensor, ir.ExternalTensor):
            continue
        place = Path(tensor.location)
        if place.is_absolute() or ".." in place.parts:
            raise InputError(
                "external_data_outside", f"{path.name} keeps weights outside its folder: {tensor.location}.",
                why="A model file may only refer to files beside it.",
                fix="Save it again with its external data beside it.",
            )  # fmt: skip
        if not (path.parent / place).is_file():
            raise external_missing(path, str(place))


def external_missing(path: Path, data: str) -> InputError:
    """The second file isn't beside the first."""
    return InputError(
        "external_data_missing", f"{path.name} needs the file {data} beside it, and it isn't there.",
        why="The weights of a large ONNX model are in a second file; only one of the two was moved.",
        fix=f"Put {data} into the same folder.",
    )  # fmt: skip


def prepare(model: ir.Model, source: Model, opset: int | None, path: Path, *, sizes: bool = True) -> bool:
    """Apply what was asked: an opset and, with ``sizes``, sizes. Returns whether sizes were written into the graph.

    Raises:
        UnsupportedError: the graph can't be converted, has other sizes, or is too new for the phone.
    """
    changed = sizes and _set_sizes(model, source.signature, path)
    if opset is not None and model.opset_imports.get("") != opset:
        convert(model, opset, path)
    check_file(path.name, model.opset_imports.get("", DEFAULT_OPSET), 0)
    return changed


def convert(model: ir.Model, opset: int, path: Path) -> None:
    from onnxscript import version_converter

    from edgesdk.runtimes._onnx_export import quietly

    with quietly():
        version_converter.convert_version(model, opset, fallback=True)
    if model.opset_imports.get("") != opset:
        raise UnsupportedError(
            "opset_not_reached", f"{path.name} can't be converted to opset {opset}.",
            why="One of its operators has no form in that version.",
            fix="Leave the opset out: the file is then taken as it is.",
        )  # fmt: skip


def _set_sizes(model: ir.Model, signature: Signature, path: Path) -> bool:
    """Write the sizes that were asked for into the graph's inputs."""
    import onnx_ir as ir

    inputs = {value.name: value for value in model.graph.inputs}
    changed = False
    for spec in signature.inputs:
        value = inputs.get(spec.name)
        if value is None or value.shape is None or spec.shape is None:
            continue
        if len(value.shape) != len(spec.shape):
            raise _other_size(path, spec, value)
        dims = list(value.shape)
        for axis, (have, asked) in enumerate(zip(value.shape, spec.shape, strict=True)):
            if isinstance(have, int) and have > 0:  # Paddle writes -1 for a dynamic size
                if have != asked:
                    raise _other_size(path, spec, value)
            elif isinstance(asked, int):
                dims[axis] = asked
                changed = True
        value.shape = ir.Shape(dims)
    if changed:
        _forget_sizes(model)
    return changed


def _forget_sizes(model: ir.Model) -> None:
    """Shapes noted for inner values and outputs may contradict the new sizes; the runtime infers them again."""
    for graph in graphs(model):
        for node in graph:
            for value in node.outputs:
                value.shape = None


def _other_size(path: Path, spec: TensorSpec, value: Any) -> UnsupportedError:
    asked = ",".join(str(d) for d in _sizes(spec))
    return UnsupportedError(
        "fixed_size", f"{path.name} has the input {spec.name} with the fixed shape {value.shape}, not [{asked}].",
        why="The sizes were decided when the file was exported; its reshapes may hold them too.",
        fix="Export it again with dynamic sizes, or leave --input out.",
    )  # fmt: skip


def _sizes(spec: TensorSpec) -> tuple[Size, ...]:
    return spec.shape or ()
