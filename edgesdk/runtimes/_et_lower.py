"""Lower an exported program to a ``.pte``, down the ladder: full delegate, part of it, portable kernels."""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk._memory import park
from edgesdk._worker import lacks_memory
from edgesdk.artifacts import Lowered, Model, Rung, Warn
from edgesdk.errors import EdgeError, UnsupportedError
from edgesdk.runtimes import _et_layers as layers
from edgesdk.runtimes import _et_layout, _et_verifier
from edgesdk.runtimes import _et_native as native
from edgesdk.runtimes import _et_stand_in as stand_in
from edgesdk.runtimes._base import LowerConfig
from edgesdk.runtimes._et_backends import DELEGATES, Attempt, attempts
from edgesdk.runtimes._et_coverage import Coverage, cover
from edgesdk.runtimes._et_kernels import refuse_missing_kernels
from edgesdk.runtimes._et_memory import forget_parts
from edgesdk.runtimes._et_patch import swapped
from edgesdk.runtimes._et_prepare import Prepared, prepare
from edgesdk.runtimes._et_smoke import SmokeError, smoke
from edgesdk.runtimes._et_translate import lowering_failed, needs_lenient_check

if TYPE_CHECKING:
    from torch.export import ExportedProgram

MEMORY_BUDGET = 1 << 30
"""Most bytes of planned activation memory that a file may ask of a phone: a quarter of the 4 GiB of a small one."""

WELL_DELEGATED = 0.9
"""Below this share of multiply-accumulates in the delegate the user is warned (pitfall E-11)."""

_MOST_REFUSED = 3
"""Times that layers which XNNPACK refuses are looked for; each costs a lowering and more."""

NOTEWORTHY_PLAN = 64 << 20
"""Planned bytes of a dynamic model above which the user is told what the upper bounds cost."""


@dataclass
class Made:
    """What one attempt made: the program to write, the edge program it came from, and why the first attempt failed.

    ``program`` is None once it is written: it holds the file's bytes.
    """

    program: Any
    edge: ExportedProgram
    attempt: Attempt
    planned: int
    failure: Exception | None = None

    def write(self, out: Path, check: Callable[[Path], None]) -> None:
        """Through a file beside it, put in place when it passed: neither a full disk nor a bad file leaves anything."""
        temporary = out.with_name(out.name + ".part")
        try:
            with temporary.open("wb") as stream:
                self.program.write_to_file(stream)
            self.program = None
            forget_parts(self.edge)
            check(temporary)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)


def lower(model: Model, config: LowerConfig, out: Path) -> Lowered:
    """Write ``out``; see ``EdgeRuntime.lower``."""
    backend = config.backend or "xnnpack"
    prepared, made = _lowered(model, config, Order(backend, config.rung, out))
    if backend == "coreml" and prepared.layers:
        stand_in.write(prepared.program, out)
    coverage, planned = cover(made.edge), made.planned
    return Lowered(
        runtime="executorch", backend=backend, quantization=config.quantization, path=out, rung=made.attempt.rung,
        delegated_fraction=coverage.fraction, delegates=sum(coverage.delegates.values()),
        leftovers=coverage.leftovers, planned_bytes=planned, min_runtime=_release(native.version_of("executorch") or ""),
        warnings=(
            *prepared.notes, *made.attempt.notes, *_remarks(config, made.attempt.rung, coverage, model, planned)
        ), layers=prepared.layers,
    )  # fmt: skip


@dataclass(frozen=True)
class Order:
    """For which back end, from which rung, and where to."""

    backend: str
    rung: Rung
    out: Path


def _lowered(model: Model, config: LowerConfig, order: Order) -> tuple[Prepared, Made]:
    """Quantized layers that XNNPACK doesn't take are found and left in float, one after the other."""
    prepared = prepare(model, config)
    made = _climb_down(replace(model, program=prepared.program), prepared.program, order)
    if not prepared.layers or order.backend != "xnnpack" or order.rung != "full":
        return prepared, made
    refused: dict[str, str] = {}
    for _ in range(_MOST_REFUSED):
        more = _refused(model, config, prepared, made, refused)
        if not more:
            break
        refused |= more
        try:
            again = prepare(model, config, refused)
            better = _climb_down(replace(model, program=again.program), again.program, order)
        except UnsupportedError as error:
            if error.code != "nothing_quantized":
                raise
            return _with_note(prepared, refused), made
        prepared, made = again, better
    return prepared, made


def _refused(
    model: Model, config: LowerConfig, prepared: Prepared, made: Made, known: Mapping[str, str]
) -> dict[str, str]:
    """Layers, not known yet, that keep the file from the top of the ladder or stay outside the delegate."""
    if made.failure is None:
        found = layers.left_behind(made.edge, prepared.layers)
    elif found := layers.blamed(made.failure, prepared.layers):
        pass
    elif isinstance(made.failure, SmokeError):

        def works(refused: Mapping[str, str]) -> bool:
            return _runs(model, config, {**known, **refused})

        found = layers.search(prepared.layers, works, made.failure)
    return {name: why for name, why in found.items() if name not in known}


def _runs(model: Model, config: LowerConfig, refused: Mapping[str, str]) -> bool:
    """Whether the file with these layers in float runs at the top of the ladder."""
    try:
        program = prepare(model, config, refused).program
    except UnsupportedError as error:
        if error.code != "nothing_quantized":
            raise
        return True  # float works, or another rung is the answer
    attempt = next(iter(attempts(program, "xnnpack", "full")))
    with tempfile.TemporaryDirectory(prefix="edgesdk-") as folder:
        try:
            made = _make(program, attempt)
            check = functools.partial(_try, replace(model, program=program), made.edge, "xnnpack")
            made.write(Path(folder) / "trial.pte", check)
        except Exception as error:  # whatever it is, the answer is no
            if lacks_memory(error):
                raise
            return False
    return True


def _with_note(prepared: Prepared, refused: Mapping[str, str]) -> Prepared:
    """Nothing would be left in int8: the file stays as it is, and the user knows."""
    listed = "; ".join(f"{name}: {why}" for name, why in refused.items())
    table = tuple(replace(x, why=refused.get(x.name, x.why)) for x in prepared.layers)
    note = Warn("layers_not_taken", f"Stored in int8, computed in float by slower kernels: {listed}.")
    return replace(prepared, notes=(*prepared.notes, note), layers=table)


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
            made.write(order.out, functools.partial(_try, model, made.edge, order.backend))
            made.failure = first
            return made
        except (EdgeError, OSError):
            raise
        except Exception as error:  # whatever a compiler raises, a slower file may still be possible
            if lacks_memory(error):  # this machine's state, which must not shape a file
                raise
            attempt.failure = error
            first = first or error
    raise lowering_failed(first or RuntimeError("no attempt was made"), program, order.backend) from first


def _check(made: Made, model: Model, backend: str) -> None:
    refuse_missing_kernels(made.program.executorch_program, made.edge)
    _check_memory(made.planned, model)
    _check_delegate(backend, cover(made.edge))


def _try(model: Model, edge: ExportedProgram, backend: str, path: Path) -> None:
    program: Any = model.program
    park(program.state_dict.values())  # needed again only if the file fails
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

    if native.is_quantized(program):
        native.with_quantized_kernels()  # what no delegate takes is written in their out-variants
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        _without_logs(),
        swapped([*_et_verifier.swaps(), *_et_layout.swaps()]),
    ):
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
    return Made(made, before, attempt, planned_bytes(made.executorch_program))


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


def _remarks(config: LowerConfig, rung: Rung, coverage: Coverage, model: Model, planned: int) -> list[Warn]:
    found, backend = [], config.backend or "xnnpack"
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
    if backend == "coreml" and config.quantization not in ("none", "fp16"):
        found += _about_coreml(config)
    elif backend == "coreml":
        found.append(
            Warn("coreml_fp16", "Core ML computes in float16 by default; the file can't be run on this machine.")
        )
    return found


def _about_coreml(config: LowerConfig) -> list[Warn]:
    return [
        Warn("coreml_ios17", f"{config.quantization} in Core ML needs iOS 17 or macOS 14."),
        Warn(
            "coreml_stand_in", "The file itself was not run: Core ML runs on Apple devices only. What is said of its accuracy "
            "was measured on the same quantized program in PyTorch, in float32 between the int8 tensors, where Core ML "
            "computes in float16. Check it on a device.",
        ),
    ]  # fmt: skip


def _release(version: str) -> str:
    """``1.5.1`` of ``1.5.1+cpu``."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return found[0] if found else version
