"""edgesdk.load on real engines: right answers, wrong feeds refused in words, nothing left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgesdk
from edgesdk.artifacts import Dim, Model, Signature, Source, TensorSpec
from edgesdk.bundle import EdgeBundle, Manifest, signing, write
from edgesdk.errors import EdgeError, InputError, IntegrityError, MissingToolError, UnsupportedError, UsageError
from edgesdk.runtimes import LowerConfig, Runner, find
from edgesdk.session import Session

ROOT = Path(__file__).parents[1]
N = Dim(1, 4, "n")
PICTURE = Signature((TensorSpec("input", "float32", (N, 3, 6, 6)),), (TensorSpec("scores", "float32", (N, 5)),))
ENGINES = ["executorch-xnnpack-none", "onnx-none", "torchscript-none"]
# Engines and torch sum in different orders; a few dozen products of magnitude 1 leave about 1e-6.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


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


def null_bundle(path: Path, signature: Signature, **more: Any) -> Path:
    """A bundle for the do-nothing runtime: zeros of the right shapes."""
    model = Model(Source("net", "exported_program"), signature)
    file = path.with_suffix(".null")
    find("null").lower(model, LowerConfig(), file)
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


@pytest.fixture(scope="module")
def picture() -> PictureNet:
    return PictureNet()


@pytest.fixture(scope="module")
def bundle(picture: PictureNet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One net for all three engines, with golden vectors and preprocessing."""
    folder = tmp_path_factory.mktemp("bundle")
    feed = np.random.default_rng(1).random((2, 3, 6, 6), np.float32)
    golden, files = golden_of([(0, 0, {"input": feed}, {"scores": picture(feed)})])
    files |= {
        "net.pte": lowered(picture.net, picture.example, PICTURE, folder / "net.pte"),
        "net.onnx": picture.as_onnx(folder / "net.onnx"),
        "net.ptl": picture.as_torchscript(folder / "net.ptl"),
    }
    variants = [
        variant("executorch", "net.pte", backend="xnnpack", outputs=["scores"]),
        variant("onnx", "net.onnx", outputs=["scores"]),
        variant("torchscript", "net.ptl", outputs=["scores"]),
    ]
    spec = edgesdk.PreprocessSpec.from_options(image=6, resize="stretch")
    labels = ["cat", "dog", "Bär", "owl", "fox"]
    post = {"kind": "classify", "version": 1, "output": "scores", "activation": "softmax", "top_k": 5}
    manifest = manifest_of(PICTURE, variants, golden=golden, labels=labels, preprocess=spec.to_json(), postprocess=post)
    write(folder / "net.edge", manifest, files)
    return folder / "net.edge"


# --- right answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_are_torchs_at_every_batch(engine: str, bundle: Path, picture: PictureNet) -> None:
    rng = np.random.default_rng(5)
    with edgesdk.load(bundle, engine) as session:
        assert session.variant.id == engine
        for batch in (1, 3, 4, 1):
            feed = rng.random((batch, 3, 6, 6), np.float32)
            found = session.run({"input": feed})
            assert list(found) == ["scores"]
            np.testing.assert_allclose(found["scores"], picture(feed), **CLOSE)


@pytest.mark.parametrize("engine", ENGINES)
def test_self_test_reproduces_the_golden_vectors(engine: str, bundle: Path) -> None:
    with edgesdk.load(bundle, engine) as session:
        test = session.self_test()
    assert (test.ok, test.calls, test.variant) == (True, 1, engine)
    assert [o.name for o in test.outputs] == ["scores"]
    assert test.outputs[0].max_abs_error < 1e-5
    assert test.outputs[0].snr_db is None or test.outputs[0].snr_db > 80


@pytest.mark.parametrize("engine", ENGINES)
def test_pitfall_e_09_memory_order_never_changes_the_answer(engine: str, bundle: Path, picture: PictureNet) -> None:
    import torch

    base = np.random.default_rng(2).random((4, 6, 6, 3), np.float32)
    views = {
        "transposed": base.transpose(0, 3, 1, 2),
        "sliced": np.repeat(base.transpose(0, 3, 1, 2), 2, axis=3)[..., ::2],
        "reversed": np.ascontiguousarray(base.transpose(0, 3, 1, 2))[:, ::-1],
        "expanded": np.broadcast_to(base[:1, :, :, :1].transpose(0, 3, 1, 2), (4, 3, 6, 6)),
        "fortran": np.asfortranarray(base.transpose(0, 3, 1, 2)),
        "channels_last": torch.from_numpy(base.transpose(0, 3, 1, 2).copy())
        .to(memory_format=torch.channels_last)
        .numpy(),
        "read_only": _read_only(base.transpose(0, 3, 1, 2).copy()),
    }
    with edgesdk.load(bundle, engine) as session:
        for name, view in views.items():
            before = view.copy()
            np.testing.assert_allclose(session.run({"input": view})["scores"], picture(view), **CLOSE, err_msg=name)
            np.testing.assert_array_equal(view, before, err_msg=f"{name} was written to")


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def test_pitfall_e_09_one_channel_in_channels_last_strides(tmp_path: Path) -> None:
    """C=1: NumPy and torch call such an array contiguous, whatever the stride of the channel."""
    import torch

    net = torch.nn.Conv2d(1, 2, 3).eval()
    signature = Signature((TensorSpec("x", "float32", (1, 1, 4, 5)),), (TensorSpec("y", "float32", (1, 2, 2, 3)),))
    path = lowered(net, (torch.randn(1, 1, 4, 5),), signature, tmp_path / "c.pte")
    write(
        tmp_path / "c.edge",
        manifest_of(signature, [variant("executorch", "c.pte", backend="xnnpack")]),
        {"c.pte": path},
    )
    odd = torch.randn(1, 4, 5, 1).permute(0, 3, 1, 2)
    assert odd.stride() != odd.clone(memory_format=torch.contiguous_format).stride()
    with edgesdk.load(tmp_path / "c.edge") as session, torch.no_grad():
        np.testing.assert_allclose(session.run({"x": odd.numpy()})["y"], net(odd).numpy(), **CLOSE)


def test_outputs_belong_to_the_caller(bundle: Path, picture: PictureNet) -> None:
    rng = np.random.default_rng(9)
    one, two = (rng.random((1, 3, 6, 6), np.float32) for _ in range(2))
    for engine in ENGINES:
        with edgesdk.load(bundle, engine) as session:
            first = session.run({"input": one})["scores"]
            session.run({"input": two})
        np.testing.assert_allclose(first, picture(one), **CLOSE)


def test_two_inputs_are_not_swapped_and_outputs_keep_their_order(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Sub", ["left", "right"], ["zeta"]), helper.make_node("Neg", ["right"], ["alpha"])], "g",
        [info("left", TensorProto.FLOAT, [2]), info("right", TensorProto.FLOAT, [2])],
        [info("zeta", TensorProto.FLOAT, [2]), info("alpha", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    pair = tuple(TensorSpec(n, "float32", (2,)) for n in ("left", "right"))
    signature = Signature(pair, tuple(TensorSpec(n, "float32", (2,)) for n in ("zeta", "alpha")))
    write(tmp_path / "m.edge", manifest_of(signature, [variant("onnx", "m.onnx")]), {"m.onnx": tmp_path / "m.onnx"})
    left, right = np.array([5, 7], np.float32), np.array([1, 2], np.float32)
    with edgesdk.load(tmp_path / "m.edge") as session:
        found = session.run({"right": right, "left": left})
    assert list(found) == ["zeta", "alpha"]
    np.testing.assert_array_equal(found["zeta"], left - right)
    np.testing.assert_array_equal(found["alpha"], -right)


def test_pitfall_a_07_half_bool_and_double_outputs_arrive_as_what_they_are(tmp_path: Path) -> None:
    import torch

    class Mixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
            return x.half(), x > 0, x.double(), x.to(torch.int64)

    dtypes = ("float16", "bool", "float64", "int64")
    outputs = tuple(TensorSpec(f"output_{i}", d, (3,)) for i, d in enumerate(dtypes))
    signature = Signature((TensorSpec("x", "float32", (3,)),), outputs)
    path = lowered(Mixed().eval(), (torch.randn(3),), signature, tmp_path / "m.pte", backend="portable")
    x = np.array([-1.5, 0.0, 2.25], np.float32)
    wanted = {o.name: v for o, v in zip(outputs, (x.astype("f2"), x > 0, x.astype("f8"), x.astype("i8")), strict=True)}
    golden, files = golden_of([(0, 0, {"x": x}, wanted)])
    named = variant("executorch", "m.pte", backend="portable", outputs=[o.name for o in outputs])
    write(tmp_path / "m.edge", manifest_of(signature, [named], golden=golden), {"m.pte": path, **files})
    with edgesdk.load(tmp_path / "m.edge") as session:
        found = session.run({"x": x})
        assert [a.dtype.name for a in found.values()] == list(dtypes)
        for name, array in found.items():
            np.testing.assert_array_equal(array, wanted[name])
        assert session.self_test().ok


def test_a_stateful_model_starts_anew_on_reset_and_in_each_golden_sequence(tmp_path: Path) -> None:
    import torch

    class Counter(torch.nn.Module):
        total: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    signature = Signature((TensorSpec("x", "float32", (2,)),), (TensorSpec("y", "float32", (2,)),))
    path = lowered(Counter().eval(), (torch.ones(2),), signature, tmp_path / "c.pte", backend="portable")
    x = np.ones(2, np.float32)
    golden, files = golden_of([(s, t, {"x": x}, {"y": 2 * (t + 1) * x}) for s in (1, 0) for t in (2, 0, 1)])
    named = variant("executorch", "c.pte", backend="portable", outputs=["y"])
    write(tmp_path / "c.edge", manifest_of(signature, [named], golden=golden), {"c.pte": path, **files})
    with edgesdk.load(tmp_path / "c.edge") as session:
        assert [float(session.run({"x": x})["y"][0]) for _ in range(3)] == [2, 4, 6]
        session.reset()
        assert float(session.run({"x": x})["y"][0]) == 2
        assert session.self_test().ok
        assert float(session.run({"x": x})["y"][0]) == 2, "self_test() leaves the initial state behind"


def test_classify_prepares_runs_and_names(bundle: Path, picture: PictureNet, tmp_path: Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(4).integers(0, 256, (6, 6, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "p.png")
    logits = picture((pixels.astype(np.float32) / 255).transpose(2, 0, 1)[None])[0].astype(np.float64)
    chances = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    order = np.argsort(-chances)
    names = ["cat", "dog", "Bär", "owl", "fox"]
    with edgesdk.load(bundle) as session:
        for image in (pixels, Image.fromarray(pixels), tmp_path / "p.png"):
            top = session.classify(image, top=2)
            assert [label.name for label in top] == [names[i] for i in order[:2]]
            assert [label.index for label in top] == list(order[:2])
            np.testing.assert_allclose([label.score for label in top], chances[order[:2]], rtol=1e-4)
        assert len(session.classify(pixels)) == 5
        with pytest.raises(UsageError):
            session.classify(pixels, top=0)


def test_pitfall_n_08_a_three_by_three_picture_is_not_scrambled(tmp_path: Path) -> None:
    """[1, 3, 3, 3] fits both layouts: classify() takes the layout from the manifest, not from the sizes."""
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten()).eval()
    signature = Signature((TensorSpec("x", "float32", (1, 3, 3, 3)),), (TensorSpec("y", "float32", (1, 4)),))
    path = lowered(net, (torch.randn(1, 3, 3, 3),), signature, tmp_path / "n.pte")
    spec = edgesdk.PreprocessSpec.from_options(image=3, resize="stretch").to_json()
    post = {"kind": "classify", "version": 1, "output": None, "activation": "none", "top_k": 5}
    manifest = manifest_of(
        signature, [variant("executorch", "n.pte", backend="xnnpack")], preprocess=spec, postprocess=post
    )
    write(tmp_path / "n.edge", manifest, {"n.pte": path})
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3, 3), np.uint8)
    with torch.no_grad():
        wanted = net(torch.from_numpy(pixels.astype(np.float32) / 255).permute(2, 0, 1)[None])[0].numpy()
    with edgesdk.load(tmp_path / "n.edge") as session:
        found = {label.index: label.score for label in session.classify(pixels, top=4)}
    np.testing.assert_allclose([found[i] for i in range(4)], wanted, **CLOSE)


# --- wrong feeds ------------------------------------------------------------------------------------------------------

GOOD = np.zeros((2, 3, 6, 6), np.float32)
WRONG: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "batch above the range": ({"input": np.zeros((9, 3, 6, 6), np.float32)}, "shape_mismatch", ("'input'", "[1..4, 3, 6, 6]", "[9, 3, 6, 6]", "--input 'input=float32[1..9,3,6,6]'")),
    "no samples": ({"input": np.zeros((0, 3, 6, 6), np.float32)}, "shape_mismatch", ("[0, 3, 6, 6]", "at least one element")),
    "another size": ({"input": np.zeros((1, 3, 8, 8), np.float32)}, "shape_mismatch", ("Dimension 2", "--input 'input=float32[1..4,3,6..8,6..8]'")),
    "channels": ({"input": np.zeros((1, 1, 6, 6), np.float32)}, "shape_mismatch", ("Dimension 1 is always 3",)),
    "channels last": ({"input": np.zeros((1, 6, 6, 3), np.float32)}, "shape_mismatch", ("channels second", "transpose(0, 3, 1, 2)")),
    "no batch": ({"input": np.zeros((3, 6, 6), np.float32)}, "shape_mismatch", ("4 dimensions", "array[None]")),
    "rank": ({"input": np.zeros((6, 6), np.float32)}, "shape_mismatch", ("4 dimensions, the array has 2",)),
    "scalar": ({"input": np.float32(1.0)}, "dtype_mismatch", ("float32, not a NumPy array", "numpy.asarray")),
    "double": ({"input": GOOD.astype(np.float64)}, "dtype_mismatch", ("wants float32 but got float64", ".astype(numpy.float32)", "NumPy makes float64")),
    "integers": ({"input": GOOD.astype(np.int64)}, "dtype_mismatch", ("wants float32 but got int64",)),
    "pixels": ({"input": GOOD.astype(np.uint8)}, "dtype_mismatch", ("wants float32 but got uint8",)),
    "half": ({"input": GOOD.astype(np.float16)}, "dtype_mismatch", ("got float16",)),
    "byte order": ({"input": GOOD.astype(">f4")}, "dtype_mismatch", ("other byte order",)),
    "objects": ({"input": np.array([None])}, "dtype_mismatch", ("got object",)),
    "list": ({"input": [[1.0]]}, "dtype_mismatch", ("is a list",)),
    "misspelt": ({"inptu": GOOD}, "unknown_input", ("'input' is missing", "'inptu' is unknown", "Did you mean 'input'?")),
    "missing": ({}, "input_missing", ("'input' is missing",)),
    "one too many": ({"input": GOOD, "mask": GOOD}, "unknown_input", ("'mask' is unknown",)),
    "number as name": ({0: GOOD}, "unknown_input", ("0 is unknown",)),
    "no dictionary": (GOOD, "unknown_input", ("ndarray, not a dictionary", "'input': …")),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_pitfall_e_12_a_05_wrong_feeds_are_refused_in_words(case: str, bundle: Path) -> None:
    """Before the native call, with name, wanted and got, on every engine alike: the check is the session's."""
    feed, code, words = WRONG[case]
    with edgesdk.load(bundle) as session:
        with pytest.raises(InputError) as caught:
            session.run(feed)
        assert caught.value.code == code
        for word in words:
            assert word in str(caught.value), str(caught.value)
        assert session.run({"input": GOOD})["scores"].shape == (2, 5), "the session still works"


def test_pitfall_a_05_a_torch_tensor_says_how_to_convert_it(bundle: Path) -> None:
    import torch

    with edgesdk.load(bundle) as session, pytest.raises(InputError, match=r"\.numpy\(\)"):
        session.run({"input": torch.zeros(2, 3, 6, 6)})  # type: ignore[dict-item]


def test_pitfall_a_05_token_numbers_as_floats(tmp_path: Path) -> None:
    signature = Signature((TensorSpec("ids", "int64", (1, Dim(1, 8))),), (TensorSpec("y", "float32", (1, 2)),))
    with edgesdk.load(null_bundle(tmp_path / "a.edge", signature)) as session:
        for array in (np.ones((1, 4)), np.ones((1, 4), np.int32)):
            with pytest.raises(InputError, match="'ids' of net wants int64"):
                session.run({"ids": array})
        session.run({"ids": np.ones((1, 4), np.int64)})


def test_dimensions_of_one_symbol_must_be_equal(tmp_path: Path) -> None:
    length = Dim(1, 9, "length")
    pair = (TensorSpec("ids", "int64", (1, length)), TensorSpec("mask", "int64", (1, length)))
    signature = Signature(pair, (TensorSpec("y", "float32", (1, 2)),))
    with edgesdk.load(null_bundle(tmp_path / "a.edge", signature)) as session:
        ids = np.ones((1, 4), np.int64)
        session.run({"ids": ids, "mask": ids})
        for _ in range(2):  # both shapes are known by now
            with pytest.raises(InputError, match=r"Dimension 1 of 'ids' is 4, dimension 1 of 'mask' is 5"):
                session.run({"ids": ids, "mask": np.ones((1, 5), np.int64)})
            session.run({"ids": np.ones((1, 5), np.int64), "mask": np.ones((1, 5), np.int64)})


def test_scalars_and_inputs_of_unknown_shape(tmp_path: Path) -> None:
    signature = Signature(
        (TensorSpec("t", "float32", ()), TensorSpec("x", "int32", None)), (TensorSpec("y", "float32", (1,)),)
    )
    with edgesdk.load(null_bundle(tmp_path / "a.edge", signature)) as session:
        for shape in ((), (3,), (2, 2)):
            assert session.run({"t": np.array(1, np.float32), "x": np.ones(shape, np.int32)})["y"].shape == (1,)
        with pytest.raises(InputError, match=r"wants the shape \[\] but got \[1\]"):
            session.run({"t": np.ones(1, np.float32), "x": np.ones(1, np.int32)})


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


def test_the_engine_gets_the_callers_own_memory() -> None:
    session, runner = recorded()
    for array in (GOOD, GOOD[:1], np.asarray(GOOD)):
        session.run({"input": array})
        assert np.shares_memory(runner.given[0], array)
    session.run({"input": GOOD})
    assert runner.given[0] is GOOD
    odd = np.zeros((3, 1, 6, 6), np.float32).transpose(1, 0, 2, 3)
    session.run({"input": odd})
    assert np.shares_memory(runner.given[0], odd)
    assert runner.given[0].strides == (432, 144, 24, 4)


def test_what_an_engine_throws_becomes_an_edge_error() -> None:
    for thrown in (RuntimeError("0x12\nlong trace"), ValueError(""), MemoryError()):
        session, _ = recorded(thrown)
        with pytest.raises(InputError) as caught:
            session.run({"input": GOOD})
        assert caught.value.code == "run_failed" and "\n" not in caught.value.message
        assert caught.value.__cause__ is thrown
    session, _ = recorded([])
    with pytest.raises(InputError, match="gave 0 outputs, not 1"):
        session.run({"input": GOOD})


def test_a_closed_session_says_so(bundle: Path) -> None:
    session, runner = recorded()
    session.close()
    session.close()
    assert runner.closed == 1
    with edgesdk.load(bundle) as real:
        assert "open" in repr(real)
    assert "closed" in repr(real)
    for call in (lambda: real.run({"input": GOOD}), real.self_test, real.reset, lambda: real.classify(GOOD)):
        with pytest.raises(UsageError, match="closed") as caught:
            call()
        assert caught.value.code == "session_closed"


def test_self_test_finds_a_wrong_answer_nan_and_an_empty_bundle(tmp_path: Path) -> None:
    x = np.zeros((2, 3, 6, 6), np.float32)
    wanted = np.zeros((2, 5), np.float32)
    wanted[1, 4] = 0.5
    for value, error in ((0.5, 0.5), (np.nan, np.inf), (np.inf, np.inf)):
        wanted[1, 4] = value
        golden, files = golden_of([(0, 0, {"input": x}, {"scores": wanted})])
        model = tmp_path / "m.null"
        find("null").lower(Model(Source("net", "exported_program"), PICTURE), LowerConfig(), model)
        manifest = manifest_of(PICTURE, [variant("null", "m.null", outputs=["scores"])], golden=golden)
        write(tmp_path / "w.edge", manifest, {"m.null": model, **files})
        with edgesdk.load(tmp_path / "w.edge") as session:
            test = session.self_test()
        assert not test.ok and test.outputs[0].max_abs_error == error
    with edgesdk.load(null_bundle(tmp_path / "n.edge", PICTURE)) as session:
        test = session.self_test()
    assert (test.ok, test.calls, test.outputs) == (False, 0, ())


def test_classify_says_what_the_bundle_lacks(tmp_path: Path) -> None:
    spec = edgesdk.PreprocessSpec.from_options(image=6).to_json()
    for name, fields, words in (
        ("a", {}, "no preprocessing"),
        ("b", {"preprocess": spec}, "no classification"),
        ("c", {"preprocess": spec, "postprocess": {"kind": "embed", "version": 1}}, "no classification"),
    ):
        path = null_bundle(tmp_path / f"{name}.edge", PICTURE, **fields)
        with edgesdk.load(path) as session, pytest.raises(InputError, match=words):
            session.classify(np.zeros((6, 6, 3), np.uint8))


# --- which variant ----------------------------------------------------------------------------------------------------


def several(tmp_path: Path, *variants: dict[str, Any]) -> Path:
    files = {v["file"]: b"\x08\x0a" for v in variants}  # as ONNX: a model with ir_version and nothing else
    if "net.null" in files:
        find("null").lower(Model(Source("net", "exported_program"), PICTURE), LowerConfig(), tmp_path / "net.null")
        files["net.null"] = (tmp_path / "net.null").read_bytes()
    write(tmp_path / "several.edge", manifest_of(PICTURE, list(variants)), files)
    return tmp_path / "several.edge"


COREML = variant("executorch", "c.pte", backend="coreml")
LATER = variant("future", "f.bin")
NULL = variant("null", "net.null")
TOO_NEW = variant("onnx", "o.onnx", runtime_version={"min": "99.1"})
TOO_OLD = variant("torchscript", "t.ptl", runtime_version={"max": "1.9"})


def test_the_first_variant_that_runs_here_is_taken(tmp_path: Path) -> None:
    with edgesdk.load(several(tmp_path, COREML, LATER, TOO_NEW, TOO_OLD, NULL)) as session:
        assert session.variant.id == "null-none"


def test_when_none_runs_every_reason_is_given(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        edgesdk.load(several(tmp_path, COREML, LATER, TOO_NEW, TOO_OLD))
    for words in (
        "'coreml' don't run on this machine",
        "no runtime 'future'",
        "onnx 99.1 or newer",
        "torchscript 1.9 or older",
    ):
        assert words in caught.value.why


def test_a_variant_asked_for_by_name(tmp_path: Path) -> None:
    path = several(tmp_path, COREML, LATER, TOO_NEW, NULL)
    edgesdk.load(path, "null-none").close()
    for name in ("executorch-coreml-none", "future-none", "onnx-none"):
        with pytest.raises(UnsupportedError, match=name):
            edgesdk.load(path, name)
    with pytest.raises(UsageError, match="nul-none") as caught:
        edgesdk.load(path, "nul-none")
    assert "Did you mean 'null-none'?" in caught.value.why and "future-none" in caught.value.why


def test_a_missing_engine_gives_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = several(tmp_path, variant("onnx", "o.onnx"))
    monkeypatch.setattr(type(find("onnx")), "missing", lambda self: "onnxruntime is not installed.")
    for name in (None, "onnx-none"):
        with pytest.raises(MissingToolError, match=r"onnxruntime is not installed.*pip install 'edgesdk\[onnx\]'"):
            edgesdk.load(path, name)


def test_threads_are_honoured_or_refused_never_ignored(tmp_path: Path) -> None:
    path = several(tmp_path, NULL)
    with pytest.raises(UsageError, match="threads=0"):
        edgesdk.load(path, threads=0)
    with pytest.raises(UnsupportedError, match="number of threads"):
        edgesdk.load(path, threads=2)


def test_a_runtime_that_takes_threads_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    load = type(find("null")).load

    def with_threads(self: Any, path: Path, signature: Signature, threads: int = 0) -> Runner:
        asked.append(threads)
        return load(self, path, signature)

    monkeypatch.setattr(type(find("null")), "load", with_threads)
    edgesdk.load(several(tmp_path, NULL), threads=3).close()
    edgesdk.load(several(tmp_path, NULL)).close()
    assert asked == [3, 0]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, empty and ours."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_engines_file_is_private_and_goes_with_the_session(bundle: Path, scratch: Path) -> None:
    session = edgesdk.load(bundle)
    (folder,) = scratch.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    session.close()
    assert list(scratch.iterdir()) == []
    forgotten = edgesdk.load(bundle)
    del forgotten
    gc.collect()
    assert list(scratch.iterdir()) == []


def test_a_file_that_the_engine_refuses_leaves_nothing(tmp_path: Path, scratch: Path) -> None:
    for runtime, file, backend in (
        ("executorch", "a.pte", "xnnpack"),
        ("onnx", "a.ort", None),
        ("torchscript", "a.ptl", None),
    ):
        path = tmp_path / f"{runtime}.edge"
        write(path, manifest_of(PICTURE, [variant(runtime, file, backend=backend)]), {file: b"no model" * 100})
        with pytest.raises(EdgeError) as caught:
            edgesdk.load(path)
        assert caught.value.exit in (3, 4)
    assert list(scratch.iterdir()) == []


def test_no_folder_for_temporary_files(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="gone can't be written"):
        edgesdk.load(bundle)


def test_a_full_disk_is_said_and_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; import edgesdk, edgesdk.session\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: edgesdk.load(sys.argv[1], 'onnx-none')\n"
        "except edgesdk.InputError as error: print(error.code)\n"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code, bundle], env=env, capture_output=True, text=True)
    assert ran.stdout.strip() == "disk_full", ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_session_outlives_its_bundle(bundle: Path) -> None:
    with EdgeBundle.open(bundle) as opened:
        session = opened.session("onnx-none")
    assert session.self_test().ok
    assert session.spec == PICTURE
    assert session.manifest.name == "net"
    session.close()


def test_threads_of_one_process_take_turns(bundle: Path, picture: PictureNet) -> None:
    feeds = [np.full((1, 3, 6, 6), value, np.float32) for value in range(8)]
    for engine in ENGINES:
        with edgesdk.load(bundle, engine) as session, ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda feed, run=session.run: run({"input": feed})["scores"], feeds * 5))
        for feed, scores in zip(feeds * 5, found, strict=True):
            np.testing.assert_allclose(scores, picture(feed), **CLOSE)


def test_two_processes_at_once(bundle: Path, picture: PictureNet) -> None:
    code = (
        "import sys, numpy as np, edgesdk\n"
        "for _ in range(5):\n"
        "    with edgesdk.load(sys.argv[1], 'onnx-none') as s: y = s.run({'input': np.ones((1, 3, 6, 6), np.float32)})['scores']\n"
        "print(y.tobytes().hex())\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen([sys.executable, "-c", code, bundle], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = {process.communicate()[0].strip() for process in both}
    assert len(answers) == 1
    found = np.frombuffer(bytes.fromhex(answers.pop()), np.float32)
    np.testing.assert_allclose(found, picture(np.ones((1, 3, 6, 6), np.float32))[0], **CLOSE)


def test_a_pinned_key(tmp_path: Path) -> None:
    private, public = signing.new_key(tmp_path / "a.key")
    _, other = signing.new_key(tmp_path / "b.key")
    find("null").lower(Model(Source("net", "exported_program"), PICTURE), LowerConfig(), tmp_path / "net.null")
    write(tmp_path / "s.edge", manifest_of(PICTURE, [NULL]), {"net.null": tmp_path / "net.null"}, sign=private)
    edgesdk.load(tmp_path / "s.edge", key=public).close()
    with pytest.raises(IntegrityError, match="another key"):
        edgesdk.load(tmp_path / "s.edge", key=other)


# --- external data of ONNX --------------------------------------------------------------------------------------------


def external(picture: PictureNet, folder: Path, location: str, *, nested: bool = False) -> tuple[Path, Path]:
    """The picture net with its first weight in ``w.bin``, named by the model as ``location``."""
    import onnx
    from onnx import TensorProto, helper

    model = onnx.load(picture.as_onnx(folder / "plain.onnx"))
    weight = model.graph.initializer[0]
    (folder / "w.bin").write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    if nested:  # the same tensor once more, deep in the branch of an If
        branch = helper.make_graph(
            [helper.make_node("Identity", ["q"], ["o"])], "b", [], [helper.make_empty_tensor_value_info("o")]
        )
        branch.initializer.add().CopyFrom(weight)
        branch.initializer[0].name = "q"
        branch.initializer[0].external_data[0].value = "../../secret"
        model.graph.node.append(helper.make_node("If", ["input"], ["unused"], then_branch=branch, else_branch=branch))
    (folder / "ext.onnx").write_bytes(model.SerializeToString())
    return folder / "ext.onnx", folder / "w.bin"


@pytest.mark.parametrize("folder", ["", "onnx/"])
def test_external_data_inside_the_bundle_works(folder: str, picture: PictureNet, tmp_path: Path) -> None:
    model, weights = external(picture, tmp_path, "w.bin")
    named = variant("onnx", f"{folder}m.onnx", extra_files=[f"{folder}w.bin"])
    write(tmp_path / "e.edge", manifest_of(PICTURE, [named]), {f"{folder}m.onnx": model, f"{folder}w.bin": weights})
    feed = np.random.default_rng(8).random((1, 3, 6, 6), np.float32)
    with edgesdk.load(tmp_path / "e.edge") as session:
        np.testing.assert_allclose(session.run({"input": feed})["scores"], picture(feed), **CLOSE)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "other.bin", "a/../w.bin", "./w.bin", "", "w.bin/"])
def test_pitfall_s_03_external_data_outside_the_bundle_is_refused(
    location: str, picture: PictureNet, tmp_path: Path
) -> None:
    model, weights = external(picture, tmp_path, location)
    named = variant("onnx", "m.onnx", extra_files=["w.bin"])
    write(tmp_path / "e.edge", manifest_of(PICTURE, [named]), {"m.onnx": model, "w.bin": weights})
    with pytest.raises(InputError) as caught:
        edgesdk.load(tmp_path / "e.edge")
    assert caught.value.code == "external_data_outside"


def test_pitfall_s_03_external_data_of_a_nested_graph_is_found(picture: PictureNet, tmp_path: Path) -> None:
    model, weights = external(picture, tmp_path, "w.bin", nested=True)
    named = variant("onnx", "m.onnx", extra_files=["w.bin"])
    write(tmp_path / "e.edge", manifest_of(PICTURE, [named]), {"m.onnx": model, "w.bin": weights})
    with pytest.raises(InputError, match=r"\.\./\.\./secret"):
        edgesdk.load(tmp_path / "e.edge")


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"\x3a\xff\xff\xff\xff\x0f", b"no model" * 9])
def test_a_damaged_onnx_is_an_edge_error(data: bytes, tmp_path: Path) -> None:
    write(tmp_path / "e.edge", manifest_of(PICTURE, [variant("onnx", "m.onnx")]), {"m.onnx": data})
    with pytest.raises(EdgeError):
        edgesdk.load(tmp_path / "e.edge")
