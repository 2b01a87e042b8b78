"""ONNX for ONNX Runtime (``.onnx``, or ``.ort`` on request)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from edgesdk._memory import park, relieve
from edgesdk.artifacts import Layer, LayerError, Lowered, Model, Signature, Warn
from edgesdk.errors import EdgeError, InputError, UnsupportedError
from edgesdk.runtimes._base import EdgeRuntime, LowerConfig, Runner

if TYPE_CHECKING:
    import onnx_ir as ir


class OnnxRuntime(EdgeRuntime):
    """One ``.onnx`` per model; a second file with the weights only when they exceed protobuf's 2 GB."""

    name: ClassVar[str] = "onnx"
    suffix: ClassVar[str] = ".onnx"
    quantizations: ClassVar[tuple[str, ...]] = (
        "none", "fp16", "static-int8", "dynamic-int8", "weight-int8", "weight-int4", "qat-int8"
    )  # fmt: skip

    def missing(self) -> str | None:
        from importlib.util import find_spec

        absent = [n for n in ("torch", "onnx", "onnxscript", "onnxruntime") if find_spec(n) is None]
        return f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed." if absent else None

    def version(self) -> str:
        from importlib.metadata import version

        return version("onnxruntime")

    def warm_up(self, *, lowering: bool) -> None:
        import onnxruntime  # noqa: F401

        if lowering:
            import onnxscript  # noqa: F401
            import torch.onnx  # noqa: F401

    def lower(self, model: Model, config: LowerConfig, out: Path) -> Lowered:
        """Write the model's program, or its own ONNX file, in the oldest file version that carries it.

        Raises:
            UnsupportedError: state, an operator without translation or kernel, or an opset that can't be reached.
            UsageError: ``config.opset`` can't be written for the phone's ONNX Runtime.
        """
        if config.ort_format:
            return _lower_ort(model, config, out)
        made = _lower_onnx(model, config, out)
        try:
            made = _check_loads(made, model, config)
        except EdgeError:
            for path in (out, *made.extra_files):
                path.unlink(missing_ok=True)
            raise
        return made

    def layer_errors(
        self, model: Model, config: LowerConfig, samples: int, *, alone: bool = True
    ) -> tuple[LayerError, ...]:
        """Noise by layer on the first calibration samples; both graphs run in ONNX Runtime.

        Raises:
            InputError: there are no calibration samples.
        """
        from edgesdk.quantize import _onnx

        graph, model = _float_graph(model, config, sizes=True)
        return _onnx.layer_errors(graph, model, config, samples, alone)

    def load(self, path: Path, signature: Signature, *, threads: int | None = None) -> Runner:
        from edgesdk.runtimes._onnx_run import OnnxRunner, open_session, options

        return OnnxRunner(open_session(path, options(threads=threads)), signature, path)


def _lower_onnx(model: Model, config: LowerConfig, out: Path, *, sizes: bool = True) -> Lowered:
    from edgesdk.runtimes import _onnx_half, _onnx_write
    from edgesdk.runtimes._onnx_versions import DEFAULT_OPSET, least_runtime, newest

    graph, tuned = _float_graph(model, config, sizes=sizes)
    said: tuple[Warn, ...] = ()
    layers: tuple[Layer, ...] = ()
    least = ""
    half = config.quantization == "fp16"
    if half and not _onnx_write.has_half(graph):
        said = (_onnx_half.store_half(graph),)
    elif half:
        _onnx_half.equal_ranks(graph)
    elif config.quantization not in ("none", "fp16"):
        from edgesdk.quantize import _onnx

        quantized = _onnx.quantize(graph, tuned, config)
        graph, layers, said = quantized.graph, quantized.layers, quantized.warnings
        if config.quantization == "qat-int8":
            said = (*tuned.warnings, *said)
        least = quantized.least_runtime
    _onnx_write.clamp(graph)
    extra, warnings = _onnx_write.write(graph, out, config.external_data_bytes)
    least = newest(least, least_runtime(graph.opset_imports.get("", DEFAULT_OPSET), graph.ir_version))
    return Lowered(
        "onnx",
        None,
        config.quantization,
        out,
        config.rung,
        min_runtime=least,
        warnings=(*said, *warnings),
        extra_files=extra,
        layers=layers,
    )


def _float_graph(model: Model, config: LowerConfig, *, sizes: bool) -> tuple[ir.Model, Model]:
    """The graph before quantization, and the model that it was made from (fine-tuned, where the scheme asks for that)."""
    from edgesdk.runtimes import _onnx_source, _onnx_write
    from edgesdk.runtimes._onnx_export import export
    from edgesdk.runtimes._onnx_versions import check_opset

    opset = check_opset(config.opset)
    if config.quantization == "qat-int8":
        model = _tuned(model, config)
    if model.onnx is not None:  # the user's own graph, not what came out of a conversion and back
        graph = _onnx_source.read(model.onnx)
        _onnx_source.prepare(graph, model, config.opset, model.onnx, sizes=sizes)
    elif model.program is not None:
        graph = export(model, model.program, opset, quick=config.rung == "full")
        park(model.program.state_dict.values())  # unless the quick way did
        relieve()
        _onnx_write.strip(graph)
    else:
        raise model.no_program or _nothing()
    _onnx_write.lift_weights(graph)
    return graph, model


def _tuned(model: Model, config: LowerConfig) -> Model:
    """The model after training with simulated int8; its own warnings are new, the old ones were told before.

    Raises:
        UnsupportedError: there is no PyTorch program to train.
        InputError: samples or labels are missing or don't fit.
    """
    from edgesdk.quantize._qat import fine_tune

    if model.program is None:
        raise UnsupportedError(
            "nothing_to_train", f"qat-int8 can't train {model.source.name}.",
            why="It comes without a PyTorch program; an ONNX file holds no gradients.",
            fix="Package the model's PyTorch source, or use --quantize static-int8.",
        )  # fmt: skip
    # Which layers stay float makes no difference to the training, which is then run once for all choices.
    return fine_tune(replace(model, warnings=()), replace(config, keep_float=()))


def _lower_ort(model: Model, config: LowerConfig, out: Path) -> Lowered:
    from edgesdk.runtimes import _onnx_ort

    with tempfile.TemporaryDirectory(prefix="edgesdk-") as folder:
        made = _lower_onnx(model, replace(config, external_data_bytes=2**31 - 2**20), Path(folder) / "model.onnx")
        listed = _onnx_ort.convert(made.path, out)
    return replace(made, path=out, extra_files=listed, min_runtime=_onnx_ort.MINIMUM)


def _check_loads(made: Lowered, model: Model, config: LowerConfig) -> Lowered:
    """Kernels are looked up at load: a file that dies there must not be shipped.

    A user's graph that got its sizes here is optimized too: a branch for other sizes can then contradict itself, and the
    file is written once more with the sizes it came with. All others are only loaded; optimizing would cost time.
    """
    from edgesdk.runtimes._onnx_run import open_session, options

    own = model.onnx is not None
    relieve()
    try:
        open_session(made.path, options(optimize=own))
    except EdgeError as exc:
        if not own:
            if isinstance(exc, InputError):
                raise _unloadable(exc) from exc
            raise
        made = _lower_onnx(model, config, made.path, sizes=False)
        open_session(made.path)
    return made


def _unloadable(exc: InputError) -> UnsupportedError:
    """The user's file isn't at fault, and lowering it again would give the same one."""
    return UnsupportedError(
        "onnx_export_failed", "The model can't be written as ONNX: ONNX Runtime doesn't load what torch's exporter made of it.",
        why=str(exc.__cause__ or exc).strip().splitlines()[0].rpartition("failed:")[2][:300] or "It gives no reason.",
        fix="Rewrite the part that it names, or use --runtime executorch.",
    )  # fmt: skip


def _nothing() -> UnsupportedError:
    return UnsupportedError(
        "no_program", "There is no graph to write as ONNX.", why="The source could not be exported.",
        fix="Package the model's PyTorch source.",
    )  # fmt: skip


RUNTIME = OnnxRuntime()
