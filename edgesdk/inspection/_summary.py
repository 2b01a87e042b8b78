"""The inspection in sentences, for somebody who has never seen a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgesdk.artifacts import TensorSpec
from edgesdk.inspection._result import UNKNOWN, Inspection

_WHAT = {
    "exported_program": "A whole network with its weights, exported by torch.export: the best form to package.",
    "torchscript": "A whole network with its weights, saved as TorchScript.",
    "torchscript_lite": "A finished file for PyTorch Mobile's Lite interpreter. It can't be packaged again.",
    "state_dict": "Weights alone: numbers with names. The code of the network is needed to package them.",
    "lightning": "A training checkpoint of Lightning: weights and the state of the training, without the network's code.",
    "pickled_module": "A Python object in a pickle. Reading it would run code that the file names, so it was not read.",
    "transformers": "A Hugging Face folder: configuration and weights; transformers has the code.",
    "onnx": "A whole network with its weights, in the exchange format ONNX.",
    "ort": "A finished file for ONNX Runtime, already optimised. It can't be packaged again.",
    "executorch": "A finished file for ExecuTorch. It can't be packaged again.",
    "edge": "A finished edgesdk bundle: files for the runtimes, and all that an app must know to use them.",
    "python_factory": "Python code that builds a network.",
    "architecture": "A library's architecture.",
}
_SCALE = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"))


def summarize(found: Inspection) -> tuple[str, ...]:
    """Three to eight sentences."""
    return tuple(_lines(found))


def _lines(found: Inspection) -> Iterator[str]:
    yield _WHAT.get(found.format, f"A model of the kind {found.format}.")
    if found.inputs:
        takes, gives = _tensors(found.inputs), _tensors(found.outputs) or "something the file doesn't describe"
        yield f"It takes {takes} and gives {gives}."
    size = found.details.get("file_bytes")
    if found.parameters is not None:
        held = f" in {in_words(size)} bytes" if size else ""
        yield f"It has {in_words(found.parameters)} trained numbers (parameters){held}."
    elif size:
        yield f"The file has {in_words(size)} bytes."
    if found.macs:
        yield f"One run takes {in_words(found.macs)} multiplications with an addition each{_mostly(found.details)}."
    yield from _special(found.details)


def _tensors(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(_tensor(spec) for spec in specs)


def _tensor(spec: TensorSpec) -> str:
    if spec.shape is None:
        return f"'{spec.name}' (size not known)" if spec.dtype == UNKNOWN else f"'{spec.name}' ({spec.dtype})"
    if not spec.shape:
        return f"'{spec.name}' (one {spec.dtype} number)"
    sizes = " × ".join("any" if getattr(d, "max", 0) >= 2**31 - 1 else str(d) for d in spec.shape)
    return f"'{spec.name}' ({sizes} {spec.dtype} numbers)"


def _mostly(details: Any) -> str:
    work = details.get("macs_by_operator") or {}
    if not work:
        return ""
    name = max(work, key=lambda key: (work[key], key))
    return f", {100 * work[name] / sum(work.values()):.0f} % of them in {name}"


def _special(details: Any) -> Iterator[str]:
    fraction = details.get("delegated_fraction")
    if details.get("delegates") and fraction is not None:
        yield f"{100 * fraction:.0f} % of its work runs in a delegate ({', '.join(details['delegates'])})."
    elif details.get("delegates"):
        yield f"Parts of it run in {', '.join(details['delegates'])}."
    if details.get("planned_bytes"):
        yield f"It needs {in_words(details['planned_bytes'])} bytes of memory for one run beside its weights."
    if details.get("layers"):
        yield f"Its weights begin with {details['layers'][0]} and end with {details['layers'][-1]}."
    if details.get("class"):
        yield f"It is a {details['class']}."
    for variant in details.get("variants", ()):
        yield f"It holds {variant['id']}: {variant['file']}, {in_words(variant['bytes'] or 0)} bytes{_judged(variant)}."
    if "signature" in details:
        yield {"valid": "Its signature is intact.", "absent": "It isn't signed."}.get(
            details["signature"], f"Its signature is {details['signature']}."
        )


def _judged(variant: Any) -> str:
    """``; top1 90.56 → 90.45, the original's first answer for 99.1 %, 24.3 dB (1000 samples of evaluation data, x86_64 host)``"""
    found = variant.get("evaluation")
    if not found:
        return ""
    score, noise = found["score"], [o["snr_db"] for o in found["outputs"] if o["snr_db"] is not None]
    told = [
        f"{score['name']} {score['original']:.4g} → {score['value']:.4g}" if score else "",
        f"the original's first answer for {100 * found['top1']:.1f} %" if found["top1"] is not None else "",
        f"{min(noise):.1f} dB" if noise else "no error",
    ]
    data = "made-up inputs" if found["data"] == "made up" else f"samples of {found['data']} data"
    return f"; {', '.join(filter(None, told))} ({found['samples']} {data}, {found['where']})"


def in_words(number: int) -> str:
    """``3.5 million``; below a thousand the number itself."""
    for step, word in _SCALE:
        if number >= step:
            return f"{number / step:.3g} {word}"
    return str(number)
