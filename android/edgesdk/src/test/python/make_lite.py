"""Bundles for the tests of the Lite interpreter: see ``make_bundles.py``, which calls this.

FOLDER/ts-*.edge, signed with FOLDER/release.key but for those that hold files which no package command makes.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

NETS = Path(__file__).with_name("lite_nets.py")
SHARED = Path(__file__).with_name("executorch_nets.py")
Job = tuple[str, str | Path, tuple[str, ...], dict[str, Any]]


def jobs(out: Path) -> list[Job]:
    """What to package. ``images.npz`` and ``labels.txt`` are there already; :func:`mixed` follows."""
    picture = {
        "image": 32, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "labels": out / "labels.txt",
        "quantize": ("none", "static-int8", "weight-int8"), "calibration": str(out / "images.npz"),
        "runtime": ("torchscript", "onnx"),
    }  # fmt: skip
    lite = {"runtime": "torchscript"}
    return [
        ("ts-picture", f"{SHARED}:picture", ("input=float32[1,3,32,32]",), picture),
        ("ts-pair", f"{SHARED}:pair", ("a=float32[1..8,3]", "b=float32[1..8,2]"), lite),
        ("ts-tokens", f"{SHARED}:tokens", ("ids=int64[1,2..12]",), lite),
        ("ts-counter", f"{SHARED}:counter", ("x=float32[3]",), lite),
        ("ts-flags", f"{SHARED}:flags", ("x=float32[4]",), {"runtime": ("torchscript", "onnx")}),
        ("ts-kinds", f"{NETS}:kinds", ("x=float32[2,6]", "ids=int32[4]"), lite),
        ("ts-turned", f"{NETS}:turned", ("x=float32[2,2..256,2..256,5]",), lite),
    ]


def mixed(out: Path) -> None:
    """A bundle of files that must be passed over, each for another reason, before one that runs; and single bad ones."""
    import executorch_nets
    import numpy as np
    import torch

    from edgesdk.bundle import EdgeBundle, Manifest, write

    with EdgeBundle.open(out / "ts-pair.edge") as bundle:
        document = bundle.manifest.to_json()
        files = {f.name: bytes(bundle.file(f.name)) for f in bundle.manifest.files}
    good = document["variants"][0]
    module = files[good["file"]]
    net = executorch_nets.pair()
    full = io.BytesIO()
    torch.jit.save(torch.jit.trace(net, (torch.zeros(2, 3), torch.zeros(2, 2))), full)
    garbage = np.random.default_rng(1).integers(0, 256, 4096, np.uint8).tobytes()
    weight = net.head.weight.detach().numpy().tobytes()
    if weight not in module:
        raise ValueError("the weights don't lie in the file as they are")
    bad: dict[str, bytes] = {
        "full": full.getvalue(),
        "garbage": garbage,
        "empty": b"",
        "cut": module[: len(module) * 2 // 3],
        "torn": _changed(module, "bytecode.pkl", lambda old: old[: len(old) // 2]),
        "newer": _changed(module, "bytecode.pkl", _newer),
        "strange": _changed(module, "bytecode.pkl", lambda old: old.replace(b"aten::relu", b"aten::rely")),
        "wrong": module.replace(weight, (-net.head.weight.detach().numpy()).tobytes()),
    }
    ones = {name: {**good, "id": f"torchscript-{name}", "file": f"{name}.ptl", "extra_files": []} for name in bad}
    for name, one in ones.items():
        rest = {n: d for n, d in files.items() if n != good["file"]}
        document_of = Manifest.from_json({**document, "variants": [one]})
        write(out / f"ts-{name}.edge", document_of, {**rest, f"{name}.ptl": bad[name]})
    names = ("full", "cut", "wrong")
    write(
        out / "ts-choice.edge", Manifest.from_json({**document, "variants": [*(ones[n] for n in names), good]}),
        {**files, **{f"{n}.ptl": bad[n] for n in names}},
    )  # fmt: skip


def _newer(bytecode: bytes) -> bytes:
    """Version 8 of the bytecode becomes 99. The pickle is a tuple that starts with that number."""
    at = bytecode.index(b"K\x08")
    return bytecode[:at] + b"K\x63" + bytecode[at + 2 :]


def _changed(archive: bytes, name: str, change: Any) -> bytes:
    """The archive with one entry changed, stored as torch stores it."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            new.writestr(info.filename, change(data) if info.filename.endswith("/" + name) else data)
    return made.getvalue()
