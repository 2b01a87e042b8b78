"""The net after quantization-aware training, trained once for all that is tried with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model

if TYPE_CHECKING:
    from edgesdk.runtimes._base import LowerConfig

_last: list[tuple[Any, Any, Model]] = []
"""The last training: program, settings, outcome. The guard lowers the same net again with more layers in float."""


def tuned(model: Model, config: LowerConfig) -> Model:
    """``model`` with tuned weights; its warnings are those of the training only.

    Which layers are to stay float makes no difference to the training, so that every choice starts from equal weights.

    Raises:
        InputError: samples or labels are missing or don't fit.
    """
    from edgesdk.quantize._qat import fine_tune

    settings = (config.calibration, tuple(sorted(config.options.items())), config.seed)
    if _last and _last[0][0] is model.program and _last[0][1] == settings:
        return _last[0][2]
    found = fine_tune(replace(model, warnings=()), replace(config, keep_float=()))
    _last[:] = [(model.program, settings, found)]
    return found
