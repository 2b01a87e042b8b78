"""edgesdk.load on real engines: right answers, nothing left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import edgesdk
from edgesdk.artifacts import Signature, TensorSpec
from edgesdk.bundle import EdgeBundle, signing, write
from edgesdk.errors import EdgeError, InputError, IntegrityError, UsageError
from tests.nets import (
    CLOSE,
    ENGINES,
    GOOD,
    PICTURE,
    PictureNet,
    golden_of,
    lowered,
    manifest_of,
    null_bundle,
    null_file,
    recorded,
    variant,
)

ROOT = Path(__file__).parents[1]


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
        model = null_file(tmp_path / "m.null")
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
    model = null_file(tmp_path / "net.null")
    write(tmp_path / "s.edge", manifest_of(PICTURE, [variant("null", "net.null")]), {"net.null": model}, sign=private)
    edgesdk.load(tmp_path / "s.edge", key=public).close()
    with pytest.raises(IntegrityError, match="another key"):
        edgesdk.load(tmp_path / "s.edge", key=other)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_number_of_threads_leaves_the_answer_as_it_is(engine: str, bundle: Path, picture: PictureNet) -> None:
    feed = np.random.default_rng(6).random((2, 3, 6, 6), np.float32)
    for threads in (1, 2):
        with edgesdk.load(bundle, engine, threads=threads) as session:
            np.testing.assert_allclose(session.run({"input": feed})["scores"], picture(feed), **CLOSE)
