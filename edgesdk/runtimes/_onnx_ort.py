"""ONNX Runtime's own format (``.ort``) and the list of operators and types that a reduced build must contain."""

from __future__ import annotations

import logging
from pathlib import Path

from edgesdk.runtimes._onnx_run import open_session, options

MINIMUM = "1.16"
"""Format version 6, which ONNX Runtime writes since 1.16 (core/flatbuffers/ort_format_version.h)."""


def convert(path: Path, out: Path) -> tuple[Path, ...]:
    """Write ``out`` in ORT format from the ``.onnx`` at ``path``, and the operator list beside it.

    Fusions that need only the CPU kernels of every build are applied; layouts that depend on this machine's CPU
    aren't. ONNX Runtime orders parts of the file by memory address: two runs give equal models in different bytes. The
    list is what ``--include_ops_by_config`` of ONNX Runtime's build script takes.

    Returns:
        the path of the list, ``NAME.required_operators_and_types.config``.

    Raises:
        UnsupportedError: ONNX Runtime lacks an operator of the graph.
    """
    import onnxruntime

    temporary = out.with_name(out.name + ".part")
    settings = options(exact=False)  # what this machine's CPU needs must not go into the file
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    settings.optimized_model_filepath = str(temporary)
    settings.add_session_config_entry("session.save_model_format", "ORT")
    try:
        open_session(path, settings)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return (_list_operators(out),)


def _list_operators(out: Path) -> Path:
    listed = out.with_name(out.name + ".required_operators_and_types.config")
    root, logger = logging.getLogger(), logging.getLogger("ort_format_model.utils")
    handlers, level = root.handlers[:], root.level
    try:  # importing these tools configures logging for the whole process
        from onnxruntime.tools.ort_format_model import create_config_from_models

        logger.setLevel(logging.WARNING)
        create_config_from_models([out], listed, True)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    lines = listed.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line and not line.startswith("#")]  # comments name this machine's folders
    listed.write_text("\n".join([f"# Required by {out.name}", *kept, ""]), encoding="utf-8")
    return listed
