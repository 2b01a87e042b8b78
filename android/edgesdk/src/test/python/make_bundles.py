"""Writes what the JVM tests read: bundles made by the product itself, the hostile ones, and Python's own answers.

    python make_bundles.py FOLDER      does nothing when FOLDER was written by the same sources

FOLDER/*.edge, release.pub, other.pub, expected.json, manifests.json, images.json, hostile/. Never committed: it is made in target/ at test time.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import make_executorch
import make_lite
import make_pictures

ROOT = Path(__file__).resolve().parents[5]
sys.path.insert(0, str(ROOT))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main(out: Path) -> None:
    stamp, wanted = out / "stamp", digest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    from tests.bundle import hostile

    hostile.dump(out / "hostile")
    keys(out)
    # Each package works in a process of its own; two at once leave no core of the smallest machines idle. Only packaged()
    # exports networks of this process, which torch can't do in two threads.
    with ThreadPoolExecutor(2) as two:
        ours, others = two.submit(packaged, out), make_executorch.submit(two, out)
        expected = ours.result()
        for other in others:
            other.result()
    rebuilt(out)
    make_executorch.mixed(out)
    make_lite.mixed(out)
    sounds(out)
    make_pictures.vectors(out)
    (out / "manifests.json").write_text(json.dumps(verdicts(out / "picture.edge")))
    (out / "expected.json").write_text(json.dumps(expected))
    stamp.write_text(wanted)


def digest() -> str:
    """Of every source that the bundles depend on."""
    found = hashlib.sha256()
    ours = (
        *sorted(Path(__file__).parent.glob("*.py")),
        make_executorch.TRAINED,
        make_pictures.TOOL,
        ROOT / "tests/bundle/hostile.py",
    )
    for path in (*sorted((ROOT / "edgesdk").rglob("*.py")), *ours):
        found.update(path.read_bytes())
    return found.hexdigest()


def keys(out: Path) -> None:
    from edgesdk.bundle import signing

    for name in ("release", "other"):
        _, public = signing.new_key(out / f"{name}.key")
        public.rename(out / f"{name}.pub")
    (out / "labels.txt").write_text("cat\ndog\neel\nfox\ngnu\nhen\n")


def packaged(out: Path) -> dict[str, Any]:
    """Bundles as ``edgesdk package --runtime onnx --sign KEY`` writes them, and what Python's session says to a picture."""
    import numpy as np

    import edgesdk

    key, labels = out / "release.key", out / "labels.txt"
    picture = {"image": 32, "mean": MEAN, "std": STD, "labels": labels, "quantize": ("none", "fp16")}
    jobs: list[tuple[str, Any, tuple[str, ...], dict[str, Any]]] = [
        ("picture", nets()["picture"], ("input=float32[1..4,3,32,32]",), picture),
        ("tokens", nets()["tokens"], ("ids=int64[1,2..12]",), {}),
        ("pair", nets()["pair"], ("a=float32[1..8,3]", "b=float32[1..8,2]"), {}),
        ("several", nets()["several"], ("x=float32[2,6]",), {}),
    ]
    for name, net, inputs, options in jobs:
        made = edgesdk.package(
            net, "android", inputs=inputs, runtime="onnx", name=name, sign=key, output=out / f"{name}-android", jobs=1,
            **options,
        )  # fmt: skip
        made.bundle.rename(out / f"{name}.edge")
        shutil.rmtree(made.output)
    pixels = np.random.default_rng(3).integers(0, 256, (45, 60, 3), np.uint8)
    with edgesdk.load(out / "picture.edge", "onnx-none") as session:
        top = session.classify(pixels, top=6)
        test = session.self_test()
    (out / "picture.rgb").write_bytes(pixels.tobytes())
    return {
        "top": [{"name": one.name, "index": one.index, "score": one.score} for one in top],
        "self_test": {"calls": test.calls, "ok": test.ok},
    }


def sounds(out: Path) -> None:
    """Waves, how they are prepared, and what Python makes of them; and a pitch model that says how to feed it sounds."""
    import io
    import wave

    import numpy as np

    from edgesdk.bundle import EdgeBundle, Manifest, write
    from edgesdk.preprocess import AudioSpec

    rng = np.random.default_rng(7)
    tone = 0.5 * np.sin(np.arange(3000) * 2 * np.pi * 220 / 16000) + 0.02 * rng.normal(size=3000)
    cases = []
    for width in (1, 2, 3, 4):
        for channels in (1, 2, 3):
            whole = np.rint(tone[:, None] * np.linspace(1, 0.3, channels) * (2 ** (8 * width - 1) - 1)).astype(np.int64)
            flat = whole.reshape(-1)
            data = (
                (flat + 128).astype(np.uint8).tobytes() if width == 1
                else b"".join(int(v).to_bytes(width, "little", signed=True) for v in flat)
            )  # fmt: skip
            memory = io.BytesIO()
            with wave.open(memory, "wb") as file:
                file.setparams((channels, width, 16000, 0, "NONE", ""))
                file.writeframes(data)
            name = f"sound-{8 * width}-{channels}.wav"
            (out / name).write_bytes(memory.getvalue())
            for number, options in enumerate((
                {}, {"samples": 4000}, {"samples": 100}, {"frame": 1024, "normalize": "standard"},
                {"frame": 512, "hop": 160, "normalize": "peak"}, {"frame": 400, "hop": 700}, {"frame": 5000},
                {"normalize": "standard"},
            )):  # fmt: skip
                if number > 3 and (width, channels) not in ((2, 1), (3, 2)):
                    continue
                spec = AudioSpec(**options)
                tensor = spec.apply(out / name)
                file_name = f"{name}.{number}.tensor"
                (out / file_name).write_bytes(tensor.tobytes())
                cases.append({"sound": name, "spec": spec.to_json(), "shape": list(tensor.shape), "tensor": file_name})
    (out / "sounds.json").write_text(json.dumps(cases))
    with EdgeBundle.open(out / "zoo-crepe.edge") as bundle:
        document = bundle.manifest.to_json()
        files = {f.name: bytes(bundle.file(f.name)) for f in bundle.manifest.files}
    document["preprocess"] = {**AudioSpec(frame=1024, normalize="standard").to_json(), "input": "frame"}
    write(out / "pitch.edge", Manifest.from_json(document), files)


def nets() -> dict[str, Any]:
    import torch
    from torch import nn

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(ids).mean(dim=1))

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(5, 4)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.head(torch.cat([a, b], dim=1)).relu()

    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 5)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            y = self.head(x)
            return {
                "scores": y, "best": y.argmax(dim=1), "high": y > 0, "half": y.to(torch.float16),
                "double": y.to(torch.float64), "byte": (y.sigmoid() * 255).to(torch.uint8),
            }  # fmt: skip

    torch.manual_seed(11)
    picture = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 6),
    )  # fmt: skip
    return {"picture": picture.eval(), "tokens": Tokens().eval(), "pair": Pair().eval(), "several": Several().eval()}


def rebuilt(out: Path) -> None:
    """Bundles that no package command makes: weights in a second file, several sequences, an engine that Java lacks."""
    import numpy as np
    import onnx

    from edgesdk.artifacts import Model, Signature, Source, TensorSpec
    from edgesdk.bundle import EdgeBundle, Manifest, write
    from edgesdk.runtimes import LowerConfig, find

    with EdgeBundle.open(out / "pair.edge") as bundle:
        document = bundle.manifest.to_json()
        files = {f.name: bytes(bundle.file(f.name)) for f in bundle.manifest.files}
    variant = document["variants"][0]
    other = {**variant, "id": "onnx-old-phones", "file": "old.onnx", "abis": ["armeabi-v7a"]}
    write(out / "abis.edge", Manifest.from_json({**document, "variants": [other, variant]}),
          {**files, "old.onnx": files[variant["file"]]})  # fmt: skip
    outputs = [{**output, "dtype": "uint16"} for output in document["signature"]["outputs"]]
    wide = {**document, "signature": {**document["signature"], "outputs": outputs}}
    write(out / "uint16.edge", Manifest.from_json(wide), files)
    chip = {**variant, "id": "onnx-nnapi", "backend": "nnapi", "file": "nnapi.onnx"}
    write(out / "nnapi.edge", Manifest.from_json({**document, "variants": [chip, variant]}),
          {**files, "nnapi.onnx": files[variant["file"]]})  # fmt: skip
    model = onnx.load_from_string(files[variant["file"]])
    for node in [n for n in model.graph.node if n.op_type == "Constant"]:  # only initializers move out
        array = onnx.numpy_helper.to_array(node.attribute[0].t)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
        model.graph.node.remove(node)
    scratch = out / "scratch"
    scratch.mkdir()
    onnx.save_model(model, scratch / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    del files[variant["file"]]
    files.update({"onnx/m.onnx": scratch / "m.onnx", "onnx/weights.bin": scratch / "weights.bin"})
    variant.update(file="onnx/m.onnx", extra_files=["onnx/weights.bin"])
    write(out / "external.edge", Manifest.from_json(document), files)
    lacking = {**variant, "id": "later-none", "runtime": "later", "file": "later.bin", "extra_files": []}
    newer = {**lacking, "id": "onnx-newer", "runtime": "onnx", "file": "newer.bin", "runtime_version": {"min": "99.1"}}
    broken = {**lacking, "id": "onnx-broken", "runtime": "onnx", "file": "broken.onnx"}
    more = {"later.bin": b"x", "newer.bin": b"y", "broken.onnx": b"no ONNX file at all"}
    write(
        out / "choice.edge",
        Manifest.from_json({**document, "variants": [lacking, newer, broken, variant]}), {**files, **more},
    )  # fmt: skip
    write(out / "lacking.edge", Manifest.from_json({**document, "variants": [lacking, newer]}),
          {n: d for n, d in {**files, **more}.items() if n not in ("onnx/m.onnx", "onnx/weights.bin", "broken.onnx")})  # fmt: skip

    one = (TensorSpec("x", "float32", (2,)),)
    counter = Signature(one, (TensorSpec("sum", "float32", (2,)),))
    null = find("null").lower(Model(Source("n", "exported_program"), counter), LowerConfig(), scratch / "n.null").path
    golden, payloads = [], {"n.null": null.read_bytes()}
    for sequence, step in ((0, 0), (1, 0), (0, 2), (0, 1)):  # not in the order in which they must run
        id_ = f"s{sequence}-{step}"
        given = np.array([step + 1, 10 * sequence], np.float32)
        total = np.array([sum(range(1, step + 2)), 10 * sequence * (step + 1)], np.float32)
        payloads |= {f"golden/{id_}.in": given.tobytes(), f"golden/{id_}.out": total.tobytes()}
        golden.append({
            "id": id_, "sequence": sequence, "step": step,
            "inputs": [{"name": "x", "dtype": "float32", "shape": [2], "file": f"golden/{id_}.in"}],
            "outputs": [{"name": "sum", "dtype": "float32", "shape": [2], "file": f"golden/{id_}.out"}],
        })  # fmt: skip
    manifest = {
        "schema": "edgesdk.bundle/1", "name": "counter", "version": "1.0.0", "source": {"format": "exported_program"},
        "signature": counter.to_json(), "golden": golden,
        "variants": [{"id": "null-none", "runtime": "null", "quantization": "none", "file": "n.null", "tolerances": {"sum": 0.0}}],
    }  # fmt: skip
    write(out / "counter.edge", Manifest.from_json(manifest), payloads)
    shutil.rmtree(scratch)


_ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2.5, 1.0, "", "a", "not_run", "1..8", "8..1", "0..2", "01..2", "1..2147483648", "a\n", "é" * 300,
    "a/../b", [], [1], [""], [None], {}, {"a": 1}, {"a": "b"}, {"0": "n"}, {"7": "n"}, {"output": -1.0}, {"output": 0},
)  # fmt: skip


def verdicts(path: Path) -> list[dict[str, Any]]:
    """A manifest with each of its values replaced by each odd one, and removed: what Python says to it."""
    import copy

    from edgesdk.bundle import EdgeBundle, _json, _rules
    from edgesdk.bundle.manifest import parse
    from edgesdk.errors import EdgeError

    def verdict(document: Any) -> str:
        data = _json.encode(document)
        try:
            manifest = parse(data, "it")
        except EdgeError as error:
            return error.code
        return "manifest_invalid" if next(_rules.violations(manifest), None) else ""

    def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
        return [*([way] if way else []), *(p for key, one in inner for p in places(one, (*way, key)))]

    with EdgeBundle.open(path) as bundle:
        good = bundle.manifest.to_json()
    good["task"], good["license"], good["history"] = "classify", "MIT", [{"step": "a", "type": "b", "fields": {"c": 1}}]
    good["variants"][0].update(dim_order=[[0, 1, 2, 3]], abis=["arm64-v8a"], planned_bytes=5)
    cases = [{"way": "", "document": good, "code": verdict(good)}]
    skipped = {"fields", "preprocess", "postprocess"}  # free documents: only they themselves are checked
    for way in places(good):
        if any(part in skipped for part in way[:-1]):
            continue
        for odd in (*_ODD, "removed"):
            document = copy.deepcopy(good)
            place = document
            for part in way[:-1]:
                place = place[part]
            if odd == "removed":
                del place[way[-1]]
            else:
                place[way[-1]] = odd
            cases.append({"way": [str(p) for p in way], "odd": odd, "code": verdict(document)})
    return cases


if __name__ == "__main__":
    main(Path(sys.argv[1]))
