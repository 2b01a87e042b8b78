"""An exported program as an ONNX graph, quietly, with the signature's names.

Two ways lead there. The quick one writes the program as TorchScript, operator by operator, so that dynamic sizes stay
dynamic, and gives that to torch's C++ exporter: a tenth of the time, and any opset from 11 on. Its result must answer as
the TorchScript does, at two sizes; otherwise, and for what it can't take, torch's newer exporter does the work.
"""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import logging
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk._memory import park, relieve
from edgesdk._worker import lacks_memory
from edgesdk.artifacts import Dim, Model, Signature
from edgesdk.errors import EdgeError, UnsupportedError
from edgesdk.runtimes import _ts_alias
from edgesdk.runtimes._et_patch import Swap, swapped
from edgesdk.runtimes._onnx_rewrite import blind_rows, four_dimensional, own_divisors, typed_ranges
from edgesdk.runtimes._onnx_versions import DEFAULT_OPSET
from edgesdk.runtimes._ts_tables import source_line

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

_OLD_EXPORTER_OPSETS = range(11, 21)
"""torch.onnx._constants: what the exporter for TorchScript writes."""
_INLINE_BYTES = 1024
"""Weights below this stay in the graph: shapes and axes must be readable for the runtime."""
_ALIGNMENT = 4096
"""Of weights in a file, so that ONNX Runtime maps them."""
_COPYABLE = 200 * 2**20
"""Bytes of weights up to which the quick way's three copies don't matter."""


def export(model: Model, program: ExportedProgram, opset: int, *, quick: bool = True) -> ir.Model:
    """Translate the program.

    Args:
        quick: try the quick way first.

    Raises:
        UnsupportedError: it keeps state, or no exporter has one of its operators (named, with the user's line).
    """
    if model.stateful or _ts_alias.keeps_state(program):
        raise _stateful()
    _refuse_projection(program)
    with quietly():
        program = blind_rows(own_divisors(program))
        made = _through_torchscript(model, program, opset) if quick and _is_quick(program, opset) else None
        if made is None:
            try:
                made = _by_program(model, four_dimensional(typed_ranges(program)), opset)
            except Exception as exc:  # the exporter raises anything
                if lacks_memory(exc):
                    raise
                raise _refused(exc, program) from exc
    _name_sizes(made, model.signature)
    return made


def _refuse_projection(program: ExportedProgram) -> None:
    """torch's exporters write an LSTM with ``proj_size`` as a plain one, which ONNX Runtime then can't run.

    Raises:
        UnsupportedError: there is one.
    """
    for node in program.graph.nodes:
        if str(node.target) != "aten.lstm.input":
            continue
        hidden, cell = (state.meta["val"].shape[-1] for state in node.args[1])
        if hidden != cell:
            raise UnsupportedError(
                "unsupported_op", f"ONNX can't take the operator aten::lstm.input with proj_size{source_line(node) or ''}.",
                why="ONNX's LSTM has no projection of the hidden state.",
                fix="Use a plain LSTM and a Linear after it (another network: it must be trained again), or --runtime executorch.",
                details={"operators": ["aten::lstm.input"]},
            )  # fmt: skip


def _is_quick(program: ExportedProgram, opset: int) -> bool:
    """Whether the quick way is open: float32 (TorchScript computes in nothing less), and small enough to copy."""
    import torch

    if _writes_through_views(program):  # the C++ exporter crashes on some of these
        return False
    tensors = [t for t in (*program.state_dict.values(), *program.constants.values()) if isinstance(t, torch.Tensor)]
    wide = all(t.dtype not in (torch.float16, torch.bfloat16) for t in tensors)
    return opset in _OLD_EXPORTER_OPSETS and wide and sum(t.nbytes for t in tensors) <= _COPYABLE


def _writes_through_views(program: ExportedProgram) -> bool:
    """Whether an in-place operator writes to a part of a tensor: ``y[:, 1] = 0``, ``y[0] += 2``."""
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable or not node.all_input_nodes:
            continue
        made_by = getattr(node.all_input_nodes[0].target, "_schema", None)
        if made_by is not None and not made_by.is_mutable and any(r.alias_info for r in made_by.returns):
            return True
    return False


# -- the two exporters ------------------------------------------------------------------------------------------------


def _by_program(model: Model, program: ExportedProgram, opset: int) -> ir.Model:
    import torch

    made: Any = torch.onnx.export(
        program, (), dynamo=True, opset_version=opset, verbose=False,
        input_names=[s.name for s in model.signature.inputs], output_names=_output_names(model.signature),
    )  # fmt: skip
    found: ir.Model = made.model
    if found.opset_imports.get("") != opset:
        raise UnsupportedError(
            "opset_not_reached", f"The model can't be written in ONNX opset {opset}.",
            why="One of its operators has no form in that version.", fix=f"Leave the opset out ({DEFAULT_OPSET}).",
        )  # fmt: skip
    return found


def _output_names(signature: Signature) -> list[str]:
    """The signature's, but for an output with an input's name (a state that is handed on): a graph knows a name once.

    Readers then go by the order.
    """
    taken = {s.name for s in (*signature.inputs, *signature.outputs)}
    names = []
    for name in (s.name for s in signature.outputs):
        if any(name == s.name for s in signature.inputs):
            name = next(free for i in itertools.count(1) if (free := f"{name}_out" + "_" * (i - 1)) not in taken)
            taken.add(name)
        names.append(name)
    return names


def _through_torchscript(model: Model, program: ExportedProgram, opset: int) -> ir.Model | None:
    """None when this way doesn't lead to a graph that answers as the program does."""
    import onnx_ir
    import torch

    from edgesdk.runtimes import _onnx_check, _ts_build

    wrap: Any = torch.jit._recursive.wrap_cpp_module
    folder = tempfile.TemporaryDirectory(prefix="edgesdk-")
    file = Path(folder.name) / "model.onnx"
    try:
        script = wrap(_ts_build.build(program, ranks=True).module)
        inputs = tuple(_onnx_check.example_tensors(program))
        names: Any = {
            "input_names": [s.name for s in model.signature.inputs],
            "output_names": _output_names(model.signature),
        }
        with _no_native_log(), swapped([*_weights_beside(file, program), *_spared_copy()]):
            torch.onnx.export(
                script,
                inputs,
                str(file),
                dynamo=False,
                opset_version=opset,
                dynamic_axes=_axes(model.signature),
                **names,
            )
        relieve()
        if not _onnx_check.agrees(script, file, program, model.signature):
            return None
        park(program.state_dict.values())  # the script had a look at them
        made = onnx_ir.load(file)
        onnx_ir.external_data.load_to_model(made)
        return made
    except Exception as exc:  # whatever it was, the other exporter reports it better
        if lacks_memory(exc):  # this machine's state, which must not shape a file
            raise
        return None
    finally:
        folder.cleanup()


def _weights_beside(file: Path, program: ExportedProgram) -> list[Swap]:
    """Let the C++ exporter leave the weights out, and write them to a file beside: it holds them three times otherwise.

    With ``defer_weight_export``, which its caller always leaves off, it hands them out by name instead.
    """
    import torch

    graph: Any = torch._C.Graph
    plain = graph._export_onnx

    def export_onnx(self: Any, params: Any, opset: Any, axes: Any, _defer: bool, *rest: Any) -> Any:
        park(program.state_dict.values())  # the graph has its own by now
        relieve()
        data, weights, _, names = plain(self, params, opset, axes, True, *rest)
        return _joined(data, weights, file.with_suffix(".weights")), {}, False, names

    return [Swap(graph, "_export_onnx", export_onnx)]


def _joined(data: bytes, weights: dict[str, bytes], beside: Path) -> bytes:
    """The graph with references to the weights in the place of what stands for them; small ones are put in."""
    import onnx

    made = onnx.load_model_from_string(data)
    with beside.open("wb") as file:
        for tensor in made.graph.initializer:
            if tensor.name not in weights:
                continue
            value = weights.pop(tensor.name)
            if len(value) < _INLINE_BYTES:
                tensor.raw_data = value
                continue
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            place = {"location": beside.name, "offset": str(file.tell()), "length": str(len(value))}
            for key, text in place.items():
                tensor.external_data.add(key=key, value=text)
            file.write(value)
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    return made.SerializeToString()  # type: ignore[no-any-return]


def _spared_copy() -> list[Swap]:
    """Without the look for functions of onnxscript, which parses the whole file anew, unless somebody registered operators."""
    from torch.onnx._internal.torchscript_exporter import onnx_proto_utils, registration

    spaces = {name.partition("::")[0] for name in registration.registry.all_functions()}
    if not spaces <= _WITHOUT_FUNCTIONS:
        return []
    return [Swap(onnx_proto_utils, "_add_onnxscript_fn", lambda data, opsets: data)]


_WITHOUT_FUNCTIONS = {"aten", "onnx", "prim", "quantized", "torchvision"}
"""Whose operators the exporter's own tables translate."""


def _axes(signature: Signature) -> dict[str, dict[int, str]]:
    names = size_names(signature)
    own = (*(s.name for s in signature.inputs), *_output_names(signature))
    return {
        name: {axis: names[spec.name, axis] for axis, d in enumerate(spec.shape or ()) if isinstance(d, Dim)}
        for name, spec in zip(own, (*signature.inputs, *signature.outputs), strict=True)
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
def _no_native_log() -> Iterator[None]:
    """Keep the C++ log off: torch asks whether it was on by naming the function, not calling it, so it always is, and
    writes whole graphs to stdout when an operator is missing."""
    import torch

    native: Any = torch._C
    switch = native._jit_set_onnx_log_enabled
    switch(False)  # an export that somebody made before us in this process left it on
    native._jit_set_onnx_log_enabled = lambda _: None
    try:
        yield
    finally:
        native._jit_set_onnx_log_enabled = switch


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
    reasons = [str(e) for e in _chain(exc)]
    found = _OPERATOR.search(" ".join(reasons))
    if found is None:
        first = next((line.strip() for line in reasons[-1].splitlines() if line.strip()), type(exc).__name__)
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
    line = next((source_line(n) for n in program.graph.nodes if str(n.target) == plain), None)
    if line is None:  # the exporter met it inside another operator
        with contextlib.suppress(Exception):
            inner = program.run_decompositions()
            line = next((source_line(n) for n in inner.graph.nodes if str(n.target) == plain), None)
    return line or ""
