"""The original's own answers, whatever form it has: what every lowered file is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model

if TYPE_CHECKING:
    import numpy as np

Feed = Mapping[str, "np.ndarray[Any, Any]"]
Answer = dict[str, "np.ndarray[Any, Any]"]


def reference_outputs(model: Model, feed: Feed) -> Answer:
    """One call on a fresh model: outputs by name. State that earlier calls left is not seen (N-06)."""
    return reference_steps(model, [feed])[0]


def reference_steps(model: Model, steps: Sequence[Feed]) -> list[Answer]:
    """Consecutive calls of one fresh model, so that a stateful one shows its state; outputs by name, per call."""
    names = [s.name for s in model.signature.outputs]
    order = [s.name for s in model.signature.inputs]
    feeds = [[step[name] for name in order] for step in steps]
    form = model.module or model.script
    answers = _through_torch(form, feeds) if form is not None else _through_onnx(model, feeds)
    return [dict(zip(names, answer, strict=True)) for answer in answers]


def _through_torch(module: Any, feeds: Sequence[Sequence[Any]]) -> list[list[Any]]:
    import torch

    from edgesdk.importing._names import name_outputs

    kept = {k: v.clone() for k, v in module.state_dict(keep_vars=False).items() if k in dict(module.named_buffers())}
    answers = []
    try:
        with torch.no_grad():
            for feed in feeds:
                found = module(*(torch.from_numpy(a.copy()) for a in feed))
                answers.append([t.detach().cpu().contiguous().numpy().copy() for _, t in name_outputs(found)])
    finally:
        buffers = dict(module.named_buffers())
        for name, value in kept.items():
            buffers[name].data.copy_(value)
    return answers


def _through_onnx(model: Model, feeds: Sequence[Sequence[Any]]) -> list[list[Any]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model.onnx), providers=["CPUExecutionProvider"])
    names = [s.name for s in model.signature.inputs]
    return [list(session.run(None, dict(zip(names, feed, strict=True)))) for feed in feeds]
