"""ExecuTorch: ``.pte`` files for XNNPACK, portable kernels, Core ML, Vulkan and MPS."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from edgesdk.artifacts import LayerError, Lowered, Model, Signature
from edgesdk.runtimes import _et_native as native
from edgesdk.runtimes._base import EdgeRuntime, LowerConfig, Runner
from edgesdk.runtimes._et_environment import check_environment
from edgesdk.runtimes._et_prepare import NEVER_HALF

__all__ = ["RUNTIME", "ExecutorchRuntime", "check_environment"]


class ExecutorchRuntime(EdgeRuntime):
    """PyTorch's own engine for phones; the default of every target."""

    name: ClassVar[str] = "executorch"
    suffix: ClassVar[str] = ".pte"
    backends: ClassVar[tuple[str, ...]] = ("xnnpack", "portable", "coreml", "vulkan", "mps")
    runs_here: ClassVar[frozenset[str]] = frozenset({"xnnpack", "portable"})
    stand_ins: ClassVar[frozenset[str]] = frozenset({"coreml"})
    never_half: ClassVar[frozenset[str]] = NEVER_HALF
    quantizations: ClassVar[tuple[str, ...]] = (
        "none", "fp16", "weight-int8", "dynamic-int8", "weight-int4", "static-int8", "qat-int8",
    )  # fmt: skip

    def missing(self) -> str | None:
        for distribution in ("torch", "executorch"):
            if native.version_of(distribution) is None:
                return f"{distribution} is not installed."
        return None

    def version(self) -> str:
        return native.version_of("executorch") or ""

    def warm_up(self, *, lowering: bool) -> None:
        import torch  # noqa: F401 - the native library needs it loaded; exir loads faster after an export

        if not lowering:
            native.library()

    def lower(self, model: Model, config: LowerConfig, out: Path) -> Lowered:
        from edgesdk.runtimes._et_lower import lower

        return lower(model, config, out)

    def layer_errors(
        self, model: Model, config: LowerConfig, samples: int, *, alone: bool = True
    ) -> tuple[LayerError, ...]:
        from edgesdk.runtimes._et_prepare import layer_errors

        return layer_errors(model, config, samples, alone)

    def load(self, path: Path, signature: Signature, *, threads: int | None = None) -> Runner:
        from edgesdk.runtimes._et_run import ExecutorchRunner, set_threads
        from edgesdk.runtimes._et_stand_in import StandIn, place_of

        if place_of(path).is_file():
            return StandIn(place_of(path))
        if threads is not None:
            set_threads(threads)
        return ExecutorchRunner(path, signature)


RUNTIME = ExecutorchRuntime()
