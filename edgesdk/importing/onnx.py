"""ONNX files: taken as they are for ONNX Runtime, converted to PyTorch for the others."""

from __future__ import annotations

from typing import Any

from edgesdk.artifacts import Dim, Model, Signature, TensorSpec
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.importing._base import Importer, ImportOptions, Located


class OnnxImporter(Importer):
    name = "onnx"

    def load(self, located: Located, options: ImportOptions) -> Model:
        import onnx

        try:
            proto = onnx.load(str(located.path), load_external_data=False)
            onnx.checker.check_model(str(located.path))
        except Exception as exc:
            raise InputError(
                "damaged_onnx", f"{located.text} is no valid ONNX model.",
                why="The file is cut short or damaged.", fix="Copy or export the file again.",
            ) from exc  # fmt: skip
        weights = {t.name for t in proto.graph.initializer}
        inputs = tuple(_spec(v) for v in proto.graph.input if v.name not in weights)
        outputs = tuple(_spec(v) for v in proto.graph.output)
        reason = UnsupportedError(
            "onnx_not_converted", f"{located.text} was not converted to PyTorch.",
            why="ExecuTorch and TorchScript need a PyTorch graph.", fix="Use --runtime onnx.",
        )  # fmt: skip
        return Model(located.source, Signature(inputs, outputs), onnx=located.path, no_program=reason)


def _spec(value: Any) -> TensorSpec:
    import onnx

    kind = value.type.tensor_type
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    dims: list[int | Dim] = [d.dim_value or 1 for d in kind.shape.dim]
    return TensorSpec(value.name, dtype, tuple(dims))


IMPORTER = OnnxImporter()
