"""An exported program as an ONNX graph, quietly, with the signature's names.

torch's own exporter comes first. Where it lacks an operator, or for opsets below the one it is written in, the program
goes through TorchScript (operator by operator, so dynamic sizes stay dynamic) and torch's older exporter.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Dim, Model, Signature
from edgesdk.errors import EdgeError, UnsupportedError
from edgesdk.runtimes import _ts_alias
from edgesdk.runtimes._onnx_versions import DEFAULT_OPSET
from edgesdk.runtimes._ts_tables import source_line

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

_OLD_EXPORTER_OPSETS = range(11, 21)
"""torch.onnx._constants: what the exporter for TorchScript writes."""


def export(model: Model, program: ExportedProgram, opset: int) -> ir.Model:
    """Translate the program.

    Raises:
        UnsupportedError: it keeps state, or no exporter has one of its operators (named, with the user's line).
    """
    if model.stateful or _ts_alias.keeps_state(program):
        raise _stateful()
    first, second = _by_program, _through_torchscript
    if opset < DEFAULT_OPSET:
        first, second = second, first
    with quietly():
        try:
            made = first(model, program, opset)
        except Exception as exc:  # the exporters raise anything
            try:
                made = second(model, program, opset)
            except Exception as other:
                raise _refused(exc if first is _by_program else other, program) from exc
    _name_sizes(made, model.signature)
    return made


# -- the two exporters ------------------------------------------------------------------------------------------------


def _by_program(model: Model, program: ExportedProgram, opset: int) -> ir.Model:
    import torch

    made: Any = torch.onnx.export(
        program, (), dynamo=True, opset_version=opset, verbose=False,
        input_names=[s.name for s in model.signature.inputs], output_names=[s.name for s in model.signature.outputs],
    )  # fmt: skip
    found: ir.Model = made.model
    if found.opset_imports.get("") != opset:
        raise UnsupportedError(
            "opset_not_reached", f"The model can't be written in ONNX opset {opset}.",
            why="One of its operators has no form in that version.", fix=f"Leave the opset out ({DEFAULT_OPSET}).",
        )  # fmt: skip
    return found


def _through_torchscript(model: Model, program: ExportedProgram, opset: int) -> ir.Model:
    import onnx_ir
    import torch

    from edgesdk.runtimes import _ts_build

    if opset not in _OLD_EXPORTER_OPSETS:
        raise ValueError(f"opset {opset}")
    wrap: Any = torch.jit._recursive.wrap_cpp_module
    script = wrap(_ts_build.build(program, ranks=True).module)
    values = [v for v in torch.utils._pytree.tree_leaves(program.example_inputs) if isinstance(v, torch.Tensor)]
    buffer: Any = io.BytesIO()  # works for this exporter, though its annotation says path
    torch.onnx.export(
        script, tuple(values), buffer, dynamo=False, opset_version=opset, dynamic_axes=_axes(model.signature),
        input_names=[s.name for s in model.signature.inputs], output_names=[s.name for s in model.signature.outputs],
    )  # fmt: skip
    import onnx

    made: ir.Model = onnx_ir.from_proto(onnx.load_from_string(buffer.getvalue()))
    return made


def _axes(signature: Signature) -> dict[str, dict[int, str]]:
    names = size_names(signature)
    return {
        spec.name: {axis: names[spec.name, axis] for axis, d in enumerate(spec.shape or ()) if isinstance(d, Dim)}
        for spec in (*signature.inputs, *signature.outputs)
    }


# -- names of dynamic sizes -------------------------------------------------------------------------------------------


def size_names(signature: Signature) -> Mapping[tuple[str, int], str]:
    """A name for every dynamic dimension, by (tensor, axis): ``batch`` for a shared first one, else ``NAME_AXIS``."""
    specs = (*signature.inputs, *signature.outputs)
    dims = {(s.name, axis): d for s in specs for axis, d in enumerate(s.shape or ()) if isinstance(d, Dim)}
    first = {d.symbol for (_, axis), d in dims.items() if axis == 0 and d.symbol}
    leading = {d.symbol for s in signature.inputs for d in (s.shape or ())[:1] if isinstance(d, Dim)}
    batch = next(iter(leading)) if len(leading) == 1 and leading <= first else None
    named: dict[str, str] = {batch: "batch"} if batch else {}
    for (name, axis), dim in dims.items():
        if dim.symbol:
            named.setdefault(dim.symbol, f"{name}_{axis}")
    return {key: named[d.symbol] if d.symbol else f"{key[0]}_{key[1]}" for key, d in dims.items()}


def _name_sizes(made: ir.Model, signature: Signature) -> None:
    """Replace torch's names of symbols (``s77``) in the graph's inputs and outputs."""
    import onnx_ir

    names = size_names(signature)
    known: dict[str, str] = {}
    for value, spec in zip(made.graph.inputs, signature.inputs, strict=False):
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, onnx_ir.SymbolicDim) and dim.value and (spec.name, axis) in names:
                known[str(dim.value)] = names[spec.name, axis]
    for value in (*made.graph.inputs, *made.graph.outputs):
        if value.shape is not None:
            dims = [_renamed(dim, known) if isinstance(dim, onnx_ir.SymbolicDim) else dim for dim in value.shape]
            value.shape = onnx_ir.Shape(dims)


def _renamed(dim: Any, known: Mapping[str, str]) -> str | None:
    text = None if dim.value is None else str(dim.value)
    return text and re.sub(r"[A-Za-z_]\w*", lambda found: known.get(found[0], found[0]), text)


# -- manners and errors -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """No progress on stdout, no advice on stderr; and no garbage collection, which takes a quarter of the time."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    collected = gc.isenabled()
    gc.disable()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if collected:
            gc.enable()


def _stateful() -> UnsupportedError:
    return UnsupportedError(
        "stateful_onnx", "The model keeps state from call to call, and an ONNX graph can't.",
        why="forward() writes to a buffer; ONNX has no variables.",
        fix="Make the state an input and an output of forward(), or use --runtime executorch.",
    )  # fmt: skip


_OPERATOR = re.compile(r"OpOverload\(op='(?P<name>[\w:.]+)', overload='(?P<overload>\w+)'\)")


def _refused(exc: BaseException, program: ExportedProgram) -> EdgeError:
    if isinstance(exc, EdgeError):
        return exc
    text = " ".join(str(e) for e in _chain(exc))
    found = _OPERATOR.search(text)
    if found is None:
        first = next((line.strip() for line in str(exc).splitlines() if line.strip()), type(exc).__name__)
        return UnsupportedError(
            "onnx_export_failed", f"The model can't be written as ONNX: {first[:300]}",
            why="torch's exporter has no translation for a part of it.",
            fix="Rewrite that part, or use --runtime executorch.",
        )  # fmt: skip
    name = f"{found['name']}.{found['overload']}"
    return UnsupportedError(
        "unsupported_op", f"ONNX can't take the operator {name}{_line_of(name, program)}.",
        why="torch's exporter has no translation for it.",
        fix="Rewrite that line with other operators, or use --runtime executorch.", details={"operators": [name]},
    )  # fmt: skip


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    while exc is not None:
        yield exc
        exc = exc.__cause__ or exc.__context__


def _line_of(operator: str, program: ExportedProgram) -> str:
    plain = operator.replace("::", ".")
    return next((source_line(n) for n in program.graph.nodes if str(n.target) in (plain, operator)), "")
