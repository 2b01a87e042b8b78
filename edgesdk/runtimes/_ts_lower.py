"""From a model to the bytes of a ``.ptl``: decompose what mobile lacks, build, fold, shrink, save, check."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgesdk._memory import park, relieve
from edgesdk._worker import lacks_memory
from edgesdk.artifacts import Layer, Model, Warn
from edgesdk.errors import UnsupportedError
from edgesdk.runtimes import _ts_ops, _ts_save
from edgesdk.runtimes._base import LowerConfig
from edgesdk.runtimes._fp16 import NORMAL
from edgesdk.runtimes._onnx_rewrite import blind_rows

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

_SMALL = 256
"""Constants with fewer elements stay float32: the cast at run time would cost more than the bytes."""

_ROUNDS = 4
"""A decomposition may use another new operator (rms_norm → _fused_rms_norm); none nests deeper than this."""


@dataclass(frozen=True)
class Lite:
    """The file's bytes and what to tell the user about them."""

    data: bytes
    warnings: tuple[Warn, ...] = ()
    layers: tuple[Layer, ...] = ()


def lower(model: Model, config: LowerConfig) -> Lite:
    """Make the bytes of a ``.ptl``.

    Raises:
        UnsupportedError: TorchScript or the published mobile library lacks something.
        UsageError: the bytecode version doesn't exist.
    """
    if config.quantization not in ("none", "fp16"):
        return _quantized(model, config)
    if model.program is not None:
        module, said = _from_program(model.program, config)
    elif model.script is not None:
        module, said = _from_script(model.script, config), ()
    elif model.no_program is not None:
        raise model.no_program
    else:
        raise UnsupportedError(
            "no_torchscript_from_onnx", "An ONNX file can't become TorchScript Lite.",
            why="There is no PyTorch graph to write.", fix="Use --runtime onnx, or package the PyTorch model.",
        )  # fmt: skip
    data = _ts_save.archive(module, config.bytecode)
    del module  # its weights are in the archive
    return Lite(_ts_save.repack(data, config.bytecode), said)


def _quantized(model: Model, config: LowerConfig) -> Lite:
    from edgesdk.quantize import _fx
    from edgesdk.runtimes import _ts_build

    program = quantizable(model, config.quantization)
    made = _fx.quantize(replace(model, program=program), config)
    relieve()  # of the float graph, which is a cycle
    with _fx.engine():  # packed weights are unpacked when they are saved
        built = _ts_build.build(made.work)
        _tidy(built.module._get_method("forward").graph, fold=config.rung == "full")
        data = _ts_save.archive(built.module, config.bytecode)
    return Lite(_ts_save.repack(data, config.bytecode), made.warnings, made.layers)


def quantizable(model: Model, scheme: str) -> ExportedProgram:
    """The program that quantization starts from.

    Raises:
        UnsupportedError: there is none, so that layers and weights can't be told from the rest.
    """
    if model.program is not None:
        return without_newer(model.program)
    if model.script is None and model.no_program is not None:
        raise model.no_program
    kind = "A TorchScript archive" if model.script is not None else "An ONNX file"
    raise UnsupportedError(
        "quantize_without_program", f"{kind} that couldn't be exported can't become a {scheme} TorchScript Lite file.",
        why="Its layers can't be told from the rest of its graph"
            + (f": {str(model.no_program).splitlines()[0][:200]}" if model.no_program else "."),
        fix="Package the model's PyTorch source or its .pt2, or leave out --quantize.",
    )  # fmt: skip


# -- exported programs ------------------------------------------------------------------------------------------------


def _from_program(program: ExportedProgram, config: LowerConfig) -> tuple[Any, tuple[Warn, ...]]:
    from edgesdk.runtimes import _ts_build

    built = _ts_build.build(without_newer(program))
    graph = built.module._get_method("forward").graph
    _tidy(graph, fold=config.rung == "full")
    park(program.state_dict.values())  # batch norms are folded into other weights now
    if config.quantization == "fp16":
        return built.module, (_shrink(graph, exactly=False),)
    if built.widened:
        return built.module, (_shrink(graph, exactly=True),)
    return built.module, ()


def without_newer(program: ExportedProgram) -> ExportedProgram:
    """The program with operators newer than PyTorch Mobile written out in older ones, where torch knows how.

    Its attention answers NaN where a mask forbids everything; torch answers zeros since 2.5.
    """
    program = blind_rows(program)
    if not _newer(program):
        return program
    from torch._decomp import decomposition_table
    from torch.export import default_decompositions

    defaults: Any = default_decompositions()
    known = {**decomposition_table, **dict(defaults.items())}
    for _ in range(_ROUNDS):
        table = {op: known[op] for op in _newer(program) if op in known}
        if not table:
            break
        program = program.run_decompositions(table)
    return program


def _newer(program: ExportedProgram) -> set[Any]:
    import torch

    targets = {n.target for m in program.graph_module.modules() for n in getattr(m, "graph", _Empty).nodes}
    return {t for t in targets if isinstance(t, torch._ops.OpOverload) and _ts_ops.is_newer(_full_name(t))}


class _Empty:
    nodes: tuple[Any, ...] = ()


def _full_name(op: torch._ops.OpOverload) -> str:
    return op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")


def _tidy(graph: Any, *, fold: bool) -> None:
    """Fold batch norms into convolutions and share equal constants; the last pass comes before verification."""
    import torch

    passes: Any = torch._C  # the stubs know only some of the passes
    if fold:
        passes._jit_pass_fold_frozen_conv_bn(graph)
    passes._jit_pass_dce_graph(graph)
    passes._jit_pass_constant_pooling(graph)
    graph.lint()


def _shrink(graph: Any, *, exactly: bool) -> Warn:
    """Store float32 constants as float16 and cast them back where they are used.

    PyTorch Mobile's CPU has no float16 kernels (torch 2.1: '"slow_conv2d_cpu" not implemented for Half'), so the
    arithmetic stays in float32; the file is halved.

    Args:
        exactly: only those that float16 holds without loss.
    """
    import torch

    kept = 0
    for node in graph.findAllNodes("prim::Constant"):
        if not node.hasAttribute("value") or node.kindOf("value") != "t":
            continue
        wide = node.t("value")
        if wide.dtype != torch.float32 or wide.numel() < _SMALL:
            continue
        narrow = wide.half()
        lossless = torch.equal(narrow.float(), wide)
        held = bool(torch.isfinite(narrow).all()) and (lossless or float(wide.abs().max()) >= NORMAL)
        if not held or (exactly and not lossless):
            kept += 1
            continue
        _store_as(graph, node, narrow)
    graph.lint()
    more = f" {kept} constants that float16 can't hold stayed float32." if kept else ""
    return Warn(
        "fp16_storage", "TorchScript Lite has no float16 arithmetic on phones: weights are stored as float16, "
        f"computed in float32.{more}",
    )  # fmt: skip


def _store_as(graph: Any, node: Any, narrow: torch.Tensor) -> None:
    import torch

    with graph.insert_point_guard(node):
        constant = graph.insertConstant(narrow)
        arguments = [constant, *(graph.insertConstant(v) for v in (torch.float32, False, False, None))]
        cast = graph.insertNode(graph.create("aten::to", arguments, 1))
    node.output().replaceAllUsesWith(cast.output())
    node.destroy()


# -- the user's TorchScript -------------------------------------------------------------------------------------------


def _from_script(script: torch.jit.ScriptModule, config: LowerConfig) -> Any:
    import torch

    if config.quantization == "fp16":
        raise UnsupportedError(
            "fp16_from_torchscript", "A TorchScript archive can't be stored as float16.",
            why="Its graph couldn't be exported, so its weights can't be told from its other constants.",
            fix="Package the model's PyTorch source, or leave out --quantize fp16.",
        )  # fmt: skip
    script.eval()
    if config.rung != "full":
        return script._c
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that all of TorchScript is deprecated, our own warning says
            frozen = torch.jit.freeze(script)
    except RuntimeError as error:  # freezing is an optimization; not every module can be frozen
        if lacks_memory(error):
            raise
        return script._c
    drop_no_grad(frozen.graph)
    return frozen._c


def drop_no_grad(graph: Any) -> None:
    """Take ``with torch.no_grad():`` out: inference records no gradients, and the Lite interpreter has no ``with``."""
    for enter in graph.findAllNodes("prim::Enter"):
        context = enter.inputsAt(0)
        uses = [use.user for use in context.uses()]
        known = {user.kind() for user in uses} <= {"prim::Enter", "prim::Exit", "prim::SetAttr"}
        if not known or not str(context.type()).endswith("no_grad"):
            continue
        for user in uses:
            user.destroy()
        context.node().destroy()
