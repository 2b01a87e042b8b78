"""Lower an exported program to a ``.pte``, down the ladder: full delegate, part of it, portable kernels."""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Lowered, Model, Rung, Warn
from edgesdk.errors import EdgeError, UnsupportedError
from edgesdk.runtimes import _et_native as native
from edgesdk.runtimes import _et_verifier
from edgesdk.runtimes._base import LowerConfig
from edgesdk.runtimes._et_backends import DELEGATES, Attempt, attempts
from edgesdk.runtimes._et_coverage import Coverage, cover
from edgesdk.runtimes._et_kernels import refuse_missing_kernels
from edgesdk.runtimes._et_patch import swapped
from edgesdk.runtimes._et_prepare import prepare
from edgesdk.runtimes._et_smoke import smoke
from edgesdk.runtimes._et_translate import lowering_failed, needs_lenient_check

if TYPE_CHECKING:
    from torch.export import ExportedProgram

MEMORY_BUDGET = 1 << 30
"""Most bytes of planned activation memory that a file may ask of a phone: a quarter of the 4 GiB of a small one."""

WELL_DELEGATED = 0.9
"""Below this share of multiply-accumulates in the delegate the user is warned (pitfall E-11)."""

NOTEWORTHY_PLAN = 64 << 20
"""Planned bytes of a dynamic model above which the user is told what the upper bounds cost."""


@dataclass(frozen=True)
class Made:
    """What one attempt made: the program to write, and the edge program it came from."""

    program: Any
    edge: ExportedProgram
    attempt: Attempt


def lower(model: Model, config: LowerConfig, out: Path) -> Lowered:
    """Write ``out``; see ``EdgeRuntime.lower``."""
    prepared = prepare(model, config)
    backend = config.backend or "xnnpack"
    made = _climb_down(replace(model, program=prepared.program), prepared.program, Order(backend, config.rung, out))
    coverage, planned = cover(made.edge), planned_bytes(made.program.executorch_program)
    return Lowered(
        runtime="executorch", backend=backend, quantization=config.quantization, path=out, rung=made.attempt.rung,
        delegated_fraction=coverage.fraction, delegates=sum(coverage.delegates.values()),
        leftovers=coverage.leftovers, planned_bytes=planned, min_runtime=_release(native.version_of("executorch") or ""),
        warnings=(
            *prepared.notes, *made.attempt.notes, *_remarks(backend, made.attempt.rung, coverage, model, planned)
        ), layers=prepared.layers,
    )  # fmt: skip


@dataclass(frozen=True)
class Order:
    """For which back end, from which rung, and where to."""

    backend: str
    rung: Rung
    out: Path


def _climb_down(model: Model, program: ExportedProgram, order: Order) -> Made:
    """The first attempt that gives a file which loads and runs.

    Raises:
        UnsupportedError: none did; the first failure is told, since later ones follow from it.
    """
    first: Exception | None = None
    for attempt in attempts(program, order.backend, order.rung):
        try:
            made = _make(program, attempt)
            _check(made, model, order.backend)
            _write(made.program, order.out, functools.partial(_try, model, made.edge, order.backend))
            return made
        except (EdgeError, OSError):
            raise
        except Exception as error:  # whatever a compiler raises, a slower file may still be possible
            attempt.failure = error
            first = first or error
    raise lowering_failed(first or RuntimeError("no attempt was made"), program, order.backend) from first


def _check(made: Made, model: Model, backend: str) -> None:
    refuse_missing_kernels(made.program.executorch_program, made.edge)
    _check_memory(planned_bytes(made.program.executorch_program), model)
    _check_delegate(backend, cover(made.edge))


def _try(model: Model, edge: ExportedProgram, backend: str, path: Path) -> None:
    if backend in ("xnnpack", "portable"):
        smoke(path, model, edge)


def _make(program: ExportedProgram, attempt: Attempt) -> Made:
    """Upstream's two steps: with our shortcuts, and without them should that fail."""
    from edgesdk.runtimes._et_fast import fast, trusted

    if trusted():
        try:
            with fast():
                return _leniently(program, attempt)
        except Exception as error:
            if needs_lenient_check(error) or isinstance(error, EdgeError):
                raise
    return _leniently(program, attempt)


def _leniently(program: ExportedProgram, attempt: Attempt) -> Made:
    try:
        return _upstream(program, attempt, lenient=False)
    except Exception as error:
        if not needs_lenient_check(error):
            raise
    # An operator outside the core set: fine if the library has a kernel for it, which is checked afterwards.
    return _upstream(program, attempt, lenient=True)


def _upstream(program: ExportedProgram, attempt: Attempt, *, lenient: bool) -> Made:
    from edgesdk.runtimes._et_import import import_compiler

    import_compiler()
    import torch
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    if any(str(node.target).startswith("quantized_decomposed") for node in program.graph.nodes):
        native.with_quantized_kernels()  # what no delegate takes is written in their out-variants
    with warnings.catch_warnings(), torch.no_grad(), _without_logs(), swapped(_et_verifier.swaps()):
        warnings.simplefilter("ignore")  # upstream's own deprecations; nothing that the user can act on
        manager = to_edge_transform_and_lower(
            program,
            partitioner=attempt.partitioners(),
            compile_config=EdgeCompileConfig(_check_ir_validity=False) if lenient else None,
        )
        edge = manager.exported_program()
        _as_wide_as_asked(edge, program)
        before = copy.copy(edge)
        before._graph_module = copy.copy(edge.graph_module)
        made = manager.to_executorch(_backend_config(edge))
    return Made(made, before, attempt)


def _as_wide_as_asked(edge: ExportedProgram, program: ExportedProgram) -> None:
    """Give dynamic sizes the ranges back that the program promises: memory is planned for their upper ends.

    Tracing a convolution again asks PyTorch which of its own kernels it would take, and one of them is for batches of 16 and
    more (``ConvParams::use_nnpack`` in ATen): the answer "not that one" cuts every batch to 15, though nothing of ExecuTorch
    depends on it.
    """
    import torch

    symbolic: Any = torch.SymInt
    for node in edge.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, symbolic):
                known = size.node.shape_env.var_to_range
                for symbol, limits in program.range_constraints.items():
                    if symbol in known:
                        known[symbol] = limits
                return


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """Partitioners log every node that they look at; what matters is in the coverage."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _backend_config(edge: ExportedProgram) -> Any:
    """None, upstream's default, unless there is state: upstream forgets the initial values of mutable buffers."""
    mutated = set(edge.graph_signature.buffers_to_mutate.values())
    if not mutated:
        return None
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    names = [name for name, buffer in edge.graph_signature.inputs_to_buffers.items() if buffer in mutated]
    return ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(names)])


def planned_bytes(program: Any) -> int:
    """Activation memory that the program's methods plan ahead; buffer 0 holds constants and does not count."""
    return max((sum(plan.non_const_buffer_sizes[1:]) for plan in program.execution_plan), default=0)


def _check_memory(planned: int, model: Model) -> None:
    if planned <= MEMORY_BUDGET:
        return
    bounds = "; ".join(str(spec) for spec in model.signature.inputs)
    raise UnsupportedError(
        "memory_budget", f"The program plans {planned / 2**30:.1f} GiB of working memory for {bounds}.",
        why=f"Memory is planned for the upper bound of every dynamic size; phones give an app about {MEMORY_BUDGET >> 30} GiB.",
        fix="Give a smaller upper bound (--input 'NAME=float32[1,3,64..512,64..512]'), or package several static sizes.",
        details={"planned_bytes": planned, "budget_bytes": MEMORY_BUDGET},
    )  # fmt: skip


def _check_delegate(backend: str, coverage: Coverage) -> None:
    """A file for a back end that can't run here must at least hold its delegate."""
    delegate = DELEGATES.get(backend)
    if backend == "xnnpack" or delegate is None or delegate in coverage.delegates:
        return
    raise UnsupportedError(
        "nothing_delegated", f"The back end '{backend}' takes none of the model's operators.",
        why=f"Left behind: {_listed(coverage)}.", fix="Use --backend xnnpack, or --backend portable.",
    )  # fmt: skip


def _listed(coverage: Coverage, most: int = 4) -> str:
    common = sorted(coverage.leftovers.items(), key=lambda item: (-item[1], item[0]))
    more = f" and {len(common) - most} others" if len(common) > most else ""
    return ", ".join(f"{name} ×{n}" for name, n in common[:most]) + more


def _remarks(backend: str, rung: Rung, coverage: Coverage, model: Model, planned: int) -> list[Warn]:
    found = []
    if backend != "portable" and rung != "portable" and coverage.macs and coverage.fraction < WELL_DELEGATED:
        found.append(Warn(
            "low_delegation", f"Only {coverage.fraction:.0%} of the multiply-accumulates run in the {backend} delegate; "
            f"slow portable kernels do the rest: {_listed(coverage)}.",
        ))  # fmt: skip
    if model.signature.dynamic and planned > NOTEWORTHY_PLAN:
        found.append(Warn(
            "planned_memory", f"{planned / 2**20:.0f} MiB of working memory are planned, for the upper bound of the "
            "dynamic sizes; smaller bounds need less.",
        ))  # fmt: skip
    if backend == "coreml":
        found.append(
            Warn("coreml_fp16", "Core ML computes in float16 by default; the file can't be run on this machine.")
        )
    return found


def _write(program: Any, out: Path, check: Callable[[Path], None]) -> None:
    """Through a file beside it, put in place when it passed: neither a full disk nor a bad file leaves anything."""
    temporary = out.with_name(out.name + ".part")
    try:
        with temporary.open("wb") as stream:
            program.write_to_file(stream)
        check(temporary)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _release(version: str) -> str:
    """``1.5.1`` of ``1.5.1+cpu``."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return found[0] if found else version
