"""What ``inspect`` found out: the value, its JSON, and a few sentences for somebody who has never seen a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from edgesdk.artifacts import TensorSpec

SCHEMA = "edgesdk.inspect/1"
UNKNOWN = "unknown"
"""Dtype of a tensor that the file doesn't describe."""

Status = Literal["yes", "partly", "no"]


@dataclass(frozen=True)
class Answer:
    """Whether a runtime takes the file. ``why`` and ``fix`` are sentences, None where there is nothing to say."""

    status: Status
    why: str | None = None
    fix: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"status": self.status, "why": self.why, "fix": self.fix}


@dataclass(frozen=True)
class Inspection:
    """What a file is.

    Attributes:
        format: a word of ``edgesdk inspect``'s ``format``; ``python_factory`` or ``architecture`` for code and names.
        inputs: in the order of ``forward()``; empty where the file doesn't say.
        parameters: trained numbers as torch counts them: weights and biases, no buffers, shared ones once.
        macs: multiply-accumulates of one run at the example sizes; None where they can't be told.
        operators: how often each operator occurs.
        runtimes: for each runtime, whether it takes the file.
        details: what only this format has (``file_bytes``, ``opset``, ``planned_bytes``, ``delegated_fraction``…).
        summary: the same in sentences.
    """

    format: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    parameters: int | None = None
    macs: int | None = None
    operators: Mapping[str, int] = field(default_factory=dict)
    runtimes: Mapping[str, Answer] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    summary: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The ``edgesdk.inspect/1`` object."""
        return {
            "schema": SCHEMA,
            "format": self.format,
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "parameters": self.parameters,
            "macs": self.macs,
            "operators": dict(sorted(self.operators.items(), key=lambda item: (-item[1], item[0]))),
            "runtimes": {name: answer.to_json() for name, answer in self.runtimes.items()},
            "details": dict(self.details),
            "summary": list(self.summary),
        }
