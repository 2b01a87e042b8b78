"""The original's own answers, whatever form it has: what every lowered file is compared with."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgesdk.artifacts import Model, Signature
from edgesdk.errors import EdgeError, InputError
from edgesdk.importing._capture import plain_attention
from edgesdk.importing._flat import flat_program
from edgesdk.importing._state import Snapshot, seeded
from edgesdk.importing._translate import first_sentence

Feed = Mapping[str, np.ndarray[Any, Any]]
Answer = dict[str, np.ndarray[Any, Any]]


def reference_outputs(model: Model, feed: Feed) -> Answer:
    """One call on a fresh model: outputs by name. State that earlier calls left is not seen (N-06)."""
    return reference_steps(model, [feed])[0]


def reference_steps(model: Model, steps: Sequence[Feed]) -> list[Answer]:
    """Consecutive calls of one fresh model, so that a stateful one shows its state; outputs by name, per call."""
    return list(reference_stream(model, steps))


def reference_stream(model: Model, steps: Iterable[Feed]) -> Iterator[Answer]:
    """As :func:`reference_steps`, one answer at a time: data of any length in constant memory."""
    names = [s.name for s in model.signature.outputs]
    feeds = _in_order(model.signature, steps)
    if model.onnx is not None:  # the file itself is the original, whatever was made of it
        answers = _through_onnx(model, feeds)
    elif model.module is not None:
        answers = _through_module(model.module, feeds)
    elif model.program is not None:
        answers = _through_module(flat_program(model.program), feeds)
    else:
        answers = _through_module(_copied(model.script), feeds)
    return (dict(zip(names, answer, strict=True)) for answer in answers)


def steps_through(module: Any, signature: Signature, steps: Iterable[Feed]) -> list[Answer]:
    """As :func:`reference_steps`, from a module behind a flat face."""
    names = [s.name for s in signature.outputs]
    answers = _through_module(module, _in_order(signature, steps))
    return [dict(zip(names, answer, strict=True)) for answer in answers]


def _in_order(signature: Signature, steps: Iterable[Feed]) -> Iterator[list[Any]]:
    order = [s.name for s in signature.inputs]
    return ([step[name] for name in order] for step in steps)


def _copied(script: Any) -> Any:
    from edgesdk.quantize._fx._engine import packing

    with packing():
        return copy.deepcopy(script)


def _through_module(module: Any, feeds: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
    import torch

    before = Snapshot(module)
    try:
        for feed in feeds:
            tensors = [torch.from_numpy(np.array(a, order="C", copy=True)) for a in feed]
            try:
                with plain_attention():
                    answer = [t.contiguous().numpy() for t in seeded(lambda flat: module(*flat), tensors)]
            except EdgeError:
                raise
            except Exception as exc:  # user code raises what it likes
                raise _failed(exc, feed) from exc
            yield answer
    finally:
        before.restore()


def _failed(exc: Exception, feed: Sequence[Any]) -> InputError:
    shapes = " ".join(f"{a.dtype}{list(a.shape)}" for a in feed)
    return InputError(
        "forward_failed", f"The model itself fails on an input of the kind that was described: {shapes}.",
        why=f"{type(exc).__name__}: {first_sentence(exc)}",
        fix="Ask for the sizes that the model takes, or let forward() accept any values of its inputs' dtypes.",
    )  # fmt: skip


def _through_onnx(model: Model, feeds: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
    from edgesdk.runtimes import find

    if model.onnx is None:
        return
    runner = find("onnx").load(model.onnx, model.signature)
    for feed in feeds:
        yield list(runner.run(feed))
