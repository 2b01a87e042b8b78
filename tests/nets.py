"""Small nets, manifests and bundles for the tests of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgesdk.artifacts import Dim, Model, Signature, Source, TensorSpec
from edgesdk.bundle import Manifest, write
from edgesdk.runtimes import LowerConfig, Runner, find
from edgesdk.session import Session

N = Dim(1, 4, "n")
PICTURE = Signature((TensorSpec("input", "float32", (N, 3, 6, 6)),), (TensorSpec("scores", "float32", (N, 5)),))
ENGINES = ["executorch-xnnpack-none", "onnx-none", "torchscript-none"]
# Engines and torch sum in different orders; a few dozen products of magnitude 1 leave about 1e-6.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
GOOD = np.zeros((2, 3, 6, 6), np.float32)


def variant(
    runtime: str, file: str, *, backend: str | None = None, outputs: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    id_ = "-".join(part for part in (runtime, backend, "none") if part)
    tolerances = dict.fromkeys(outputs, 1e-4)
    return {
        "id": id_,
        "runtime": runtime,
        "backend": backend,
        "quantization": "none",
        "file": file,
        "tolerances": tolerances,
        **more,
    }


def manifest_of(signature: Signature, variants: list[dict[str, Any]], **more: Any) -> Manifest:
    base = {"schema": "edgesdk.bundle/1", "name": "net", "version": "1.0.0", "source": {"format": "exported_program"}}
    return Manifest.from_json({**base, "signature": signature.to_json(), "variants": variants, **more})


def golden_of(
    calls: list[tuple[int, int, dict[str, Any], dict[str, Any]]],
) -> tuple[list[dict[str, Any]], dict[str, Path | bytes]]:
    """(sequence, step, inputs, outputs) as the manifest's golden and its payloads."""
    entries, files = [], {}
    for sequence, step, inputs, outputs in calls:
        entry: dict[str, Any] = {"id": f"s{sequence}-{step}", "sequence": sequence, "step": step}
        for side, arrays in (("inputs", inputs), ("outputs", outputs)):
            entry[side] = []
            for name, array in arrays.items():
                file = f"golden/{entry['id']}.{side}.{name}.bin"
                files[file] = array.tobytes()
                entry[side].append({"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "file": file})
        entries.append(entry)
    return entries, files


def null_file(path: Path, signature: Signature = PICTURE) -> Path:
    """The model file of the do-nothing runtime."""
    return find("null").lower(Model(Source("net", "exported_program"), signature), LowerConfig(), path).path


def null_bundle(path: Path, signature: Signature, **more: Any) -> Path:
    """A bundle for the do-nothing runtime: zeros of the right shapes."""
    file = null_file(path.with_suffix(".null"), signature)
    outputs = [spec.name for spec in signature.outputs]
    write(path, manifest_of(signature, [variant("null", "net.null", outputs=outputs)], **more), {"net.null": file})
    return path


def lowered(net: Any, example: tuple[Any, ...], signature: Signature, out: Path, backend: str = "xnnpack") -> Path:
    import torch

    dims = {
        d.symbol: torch.export.Dim(d.symbol, min=d.min, max=d.max)
        for s in signature.inputs
        for d in s.shape or ()
        if isinstance(d, Dim) and d.symbol
    }
    shapes = tuple(
        {i: dims[d.symbol] for i, d in enumerate(s.shape or ()) if isinstance(d, Dim)} for s in signature.inputs
    )
    program = torch.export.export(net, example, dynamic_shapes=shapes)
    return (
        find("executorch")
        .lower(Model(Source("net", "exported_program"), signature, program=program), LowerConfig(backend), out)
        .path
    )


class PictureNet:
    """A small convolution in torch, the same weights as an ONNX graph and as TorchScript."""

    def __init__(self) -> None:
        import torch

        torch.manual_seed(3)
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 5)
        ).eval()
        self.example = (torch.randn(2, 3, 6, 6),)

    def __call__(self, array: np.ndarray) -> np.ndarray:
        import torch

        with torch.no_grad():
            return self.net(torch.from_numpy(np.ascontiguousarray(array))).numpy()

    def as_onnx(self, path: Path) -> Path:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        weights = [
            numpy_helper.from_array(p.detach().numpy(), n) for n, p in zip("wbvc", self.net.parameters(), strict=True)
        ]
        nodes = [
            helper.make_node("Conv", ["input", "w", "b"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("Flatten", ["r"], ["f"]),
            helper.make_node("Gemm", ["f", "v", "c"], ["scores"], transB=1),
        ]
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", 3, 6, 6])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 5])], weights,
        )  # fmt: skip
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
        return path

    def as_torchscript(self, path: Path) -> Path:
        import torch

        torch.jit.script(self.net)._save_for_lite_interpreter(str(path))
        return path


def several(folder: Path, *variants: dict[str, Any]) -> Path:
    """A bundle of variants whose files, but for ``net.null``, no engine would load."""
    files: dict[str, Path | bytes] = {v["file"]: b"\x08\x0a" for v in variants}  # as ONNX: an ir_version, nothing else
    if "net.null" in files:
        files["net.null"] = null_file(folder / "net.null")
    write(folder / "several.edge", manifest_of(PICTURE, list(variants)), files)
    return folder / "several.edge"


class Recorder(Runner):
    """Keeps what it was given, answers what it is told."""

    def __init__(self, answer: Any = None) -> None:
        self.given: list[Any] = []
        self.answer = answer
        self.closed = 0

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        self.given = list(inputs)
        if isinstance(self.answer, Exception):
            raise self.answer
        return [np.zeros((2, 5), np.float32)] if self.answer is None else self.answer

    def close(self) -> None:
        self.closed += 1


def recorded(answer: Any = None) -> tuple[Session, Recorder]:
    manifest = manifest_of(PICTURE, [variant("null", "net.null")])
    runner = Recorder(answer)
    return Session(manifest, manifest.variants[0], runner), runner
