"""ONNX files: taken as they are for ONNX Runtime, converted to PyTorch for the others.

The conversion is edgesdk's own. Tried in 2026 on ten real files (MODELS.md): onnx2torch 1.5.15 lacks GRU and
GlobalMaxPool and reads no weights from ``Constant`` nodes, onnx2pytorch 0.6 fails on those too, and the modules of both
keep sizes in tensors, so that torch.export refuses every graph with a computed reshape.
"""

from __future__ import annotations

from edgesdk.artifacts import Model
from edgesdk.importing._base import Importer, ImportOptions, Located


class OnnxImporter(Importer):
    name = "onnx"

    def load(self, located: Located, options: ImportOptions) -> Model:
        from edgesdk.importing._onnx_convert import import_onnx

        return import_onnx(located, options)


IMPORTER = OnnxImporter()
