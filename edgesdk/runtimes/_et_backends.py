"""The steps of the ladder: which operators each attempt may give to the delegate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Rung, Warn
from edgesdk.errors import UnsupportedError, missing_library
from edgesdk.runtimes import _et_native as native
from edgesdk.runtimes._et_small_weights import has_small_weights, linear_config

if TYPE_CHECKING:
    from torch.export import ExportedProgram

DELEGATES = {"xnnpack": "XnnpackBackend", "coreml": "CoreMLBackend", "vulkan": "VulkanBackend", "mps": "MPSBackend"}
"""The name of each back end's delegate in a program."""

CORE = frozenset({"convolution.default", "linear.default", "addmm.default", "mm.default", "bmm.default"})
"""The operators that do the arithmetic: kept in the delegate when all others are suspected."""

_MOST_CULPRITS = 6
"""Operators left out one after the other before half of them are."""


@dataclass
class Attempt:
    """One try: its rung, a fresh list of partitioners, and what to tell the user should it hold."""

    rung: Rung
    partitioners: Callable[[], list[Any]]
    notes: list[Warn] = field(default_factory=list)
    failure: Exception | None = None


def attempts(program: ExportedProgram, backend: str, rung: Rung) -> Iterator[Attempt]:
    """From ``rung`` downwards. The caller sets ``failure`` before it asks for the next one.

    Raises:
        UnsupportedError: this ExecuTorch has no such back end.
        MissingToolError: the back end's compiler is not installed.
    """
    if backend == "xnnpack":
        yield from _xnnpack(program, rung)
    elif backend == "portable":
        yield Attempt("portable", list)
    else:
        # A file for these is asked for by name and can't be run here: without its delegate it would be a lie.
        partitioner = _coreml(quantized=native.is_quantized(program)) if backend == "coreml" else _OTHERS[backend]()
        yield Attempt("full", lambda: [partitioner])


def _xnnpack(program: ExportedProgram, rung: Rung) -> Iterator[Attempt]:
    make = partial(xnnpack_partitioner, small_weights=has_small_weights(program))
    if rung == "full":
        attempt = Attempt("full", lambda: [make(frozenset())])
        yield attempt
        yield from _without_culprits(attempt, make)
    if rung != "portable":
        note = Warn("partial_delegation", "Only convolutions, linear layers and matrix products run in XNNPACK here.")
        yield Attempt("partial", lambda: [make(frozenset(), only=CORE)], [note])
    note = Warn("no_delegation", "Nothing runs in XNNPACK: the file uses the slower portable kernels throughout.")
    yield Attempt("portable", list, [note])


def _without_culprits(attempt: Attempt, make: Callable[..., Any]) -> Iterator[Attempt]:
    """Leave out the operators that the failures point at, one after the other."""
    left_out: frozenset[str] = frozenset()
    for _ in range(_MOST_CULPRITS):
        found = frozenset(culprits(attempt.failure)) - left_out if attempt.failure else frozenset()
        if not found:
            return
        left_out |= found
        attempt = Attempt("partial", partial(_list_of, make, left_out), [_left_out(left_out, attempt.failure)])
        yield attempt


def _list_of(make: Callable[..., Any], left_out: frozenset[str]) -> list[Any]:
    return [make(left_out)]


def _left_out(names: frozenset[str], failure: Exception | None) -> Warn:
    reason = str(failure).strip().splitlines()[0] if failure and str(failure).strip() else "it gave no reason"
    listed = ", ".join(f"aten::{name.removesuffix('.default')}" for name in sorted(names))
    return Warn("partial_delegation", f"XNNPACK does not take {listed} here ({reason}); portable kernels run instead.")


def xnnpack_partitioner(
    left_out: frozenset[str], *, only: frozenset[str] | None = None, small_weights: bool = False
) -> Any:
    """Upstream's partitioner, without the operators of ``left_out`` or with none but ``only``."""
    from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    if not left_out and only is None and not small_weights:
        return XnnpackPartitioner()
    kept: list[Any] = [
        c for c in ALL_PARTITIONER_CONFIGS if c.target_name not in left_out and (only is None or c.target_name in only)
    ]
    if small_weights:
        kept = [linear_config() if c.target_name == "linear.default" else c for c in kept]
    return XnnpackPartitioner(configs=kept)


def culprits(failure: BaseException) -> set[str]:
    """Names of the operators (``hardtanh.default``) that XNNPACK's code was looking at when it failed."""
    return {_short(node.target) for node in suspects(failure)}


def suspects(failure: BaseException) -> list[Any]:
    """The node that XNNPACK's code was looking at when it failed; none when it was something else."""
    import torch

    found: list[Any] = []
    seen: BaseException | None = failure
    while seen is not None:
        frame = seen.__traceback__
        while frame is not None:
            inside = "executorch/backends/xnnpack" in frame.tb_frame.f_code.co_filename.replace("\\", "/")
            node = frame.tb_frame.f_locals.get("node") if inside else None
            if isinstance(node, torch.fx.Node) and node.op == "call_function":
                found = [node]  # the innermost frame is the last
            frame = frame.tb_next
        seen = seen.__cause__ or seen.__context__
    return found


def _short(target: Any) -> str:
    return str(getattr(target, "__name__", target)).removeprefix("aten.")


def _coreml(*, quantized: bool) -> Any:
    if native.version_of("coremltools") is None:
        raise missing_library("coremltools", "coreml", "lowering to Core ML")
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner

    if not quantized:
        return CoreMLPartitioner()
    import coremltools
    from executorch.backends.apple.coreml.compiler import CoreMLBackend

    # The first whose casts take int8 (coremltools: "Parameter dtype of the cast operation").
    specs = CoreMLBackend.generate_compile_specs(minimum_deployment_target=coremltools.target.iOS17)
    return CoreMLPartitioner(compile_specs=specs)


def _vulkan() -> Any:
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    return VulkanPartitioner()


def _mps() -> Any:
    try:
        from executorch.backends.apple.mps.partition import MPSPartitioner
        from executorch.exir.backend.compile_spec_schema import CompileSpec
    except ImportError as error:
        raise UnsupportedError(
            "backend_gone", f"ExecuTorch {native.version_of('executorch')} has no MPS back end.",
            why="It was removed after release 1.4; Core ML took its place on Apple devices.",
            fix="Use --backend coreml, or install an older release: pip install 'executorch<1.5'.",
        ) from error  # fmt: skip
    return MPSPartitioner(compile_specs=[CompileSpec("use_fp16", bytes([True]))])


_OTHERS: dict[str, Callable[[], Any]] = {"vulkan": _vulkan, "mps": _mps}
