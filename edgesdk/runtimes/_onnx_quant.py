"""What quantization asks of ONNX Runtime itself: optimise a graph, and hand out the tensors inside it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk._memory import give_back, trim
from edgesdk.errors import EdgeError
from edgesdk.runtimes._onnx_run import _failed, open_session, options
from edgesdk.runtimes._onnx_write import weight_bytes, write

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    Array = np.ndarray

_EXTERNAL_ABOVE = 2**20
"""Bytes from which weights of a temporary file lie beside it: ONNX Runtime maps them, and a message isn't built in memory."""
_TOO_LARGE = 2**30
"""Bytes of weights from which the optimiser's copy isn't worth its memory; such models are transformers, without
batch norms to fold."""
_LIVE_BYTES = 16 * 2**20
"""Bytes of inner tensors that are alive at once; above, a sample is run once for each group of tensors."""
_ASKED = 4
"""Inner tensors that are asked for at once while their sizes are unknown."""


def optimise(graph: ir.Model) -> ir.Model:
    """The graph as ONNX Runtime's basic level rewrites it: batch norms folded, constants computed, in standard operators.

    A very large graph comes back as it was, and so does one that the optimizer chokes on (a branch for other sizes than the
    fixed ones contradicts itself); whether it runs is seen at the end.
    """
    import onnx_ir as ir
    import onnxruntime
    from onnx_ir.passes.common import RemoveUnusedOpsetsPass

    if weight_bytes(graph) > _TOO_LARGE:
        return graph
    with tempfile.TemporaryDirectory(prefix="edgesdk-") as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        write(graph, before, _EXTERNAL_ABOVE)
        settings = options()
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        settings.optimized_model_filepath = str(after)
        settings.add_session_config_entry("session.disable_prepacking", "1")
        settings.enable_cpu_mem_arena = False
        try:
            open_session(before, settings)
        except EdgeError:
            return graph
        made = ir.load(after)
        ir.external_data.load_to_model(made)
    give_back()
    RemoveUnusedOpsetsPass()(made)
    return made


class Probe:
    """Runs a graph and yields tensors inside it, a few at a time, so that memory doesn't depend on how many there are."""

    def __init__(self, graph: ir.Model, names: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="edgesdk-")
        path = Path(self._folder.name) / "probe.onnx"
        with _watched(graph, names):
            write(graph, path, _EXTERNAL_ABOVE)
        self._session = _opened(path)
        trim()  # a session is no cycle: nothing to collect
        self._inputs = {i.name for i in self._session.get_inputs()}
        self._names = [n for n in names if n not in self._inputs]
        self._fed = [n for n in names if n in self._inputs]
        self._groups: list[list[str]] | None = None

    def run(self, feed: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        """The watched tensors of one sample, in no order.

        Raises:
            InputError: the sample isn't what the graph takes.
        """
        given = {name: feed[name] for name in self._inputs if name in feed}
        yield from ((name, feed[name]) for name in self._fed)
        if self._groups is None:
            self._groups = self._grouped(given)
        for group in self._groups:
            yield from zip(group, self._call(group, given), strict=True)

    def _call(self, names: list[str], given: Mapping[str, Array]) -> list[Array]:
        try:
            found: list[Array] = self._session.run(names, dict(given))
        except Exception as exc:  # its classes share no base
            raise _failed(exc) from exc
        return found

    def _grouped(self, given: Mapping[str, Array]) -> list[list[str]]:
        """Tensors that fit together into ``_LIVE_BYTES`` at the first sample's sizes."""
        groups: list[list[str]] = [[]]
        room = _LIVE_BYTES
        for begin in range(0, len(self._names), _ASKED):
            part = self._names[begin : begin + _ASKED]
            for name, array in zip(part, self._call(part, given), strict=True):
                if array.nbytes > room and groups[-1]:
                    groups.append([])
                    room = _LIVE_BYTES
                groups[-1].append(name)
                room -= array.nbytes
        return [g for g in groups if g]

    def close(self) -> None:
        del self._session
        self._folder.cleanup()
        trim()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _opened(path: Path) -> Any:
    """A session that holds the weights once.

    Some graphs load without ONNX Runtime's rewriting only: a branch for other sizes than the fixed ones contradicts itself.
    """
    import onnxruntime

    def settings(level: Any) -> Any:
        made = options(threads=1)
        made.graph_optimization_level = level
        made.enable_cpu_mem_arena = False  # it grows by doubling and keeps what it has
        made.add_session_config_entry("session.disable_prepacking", "1")  # a second copy of the weights
        return made

    levels = onnxruntime.GraphOptimizationLevel
    try:
        return open_session(path, settings(levels.ORT_ENABLE_BASIC))  # beyond, weights are copied for faster kernels
    except EdgeError:
        return open_session(path, settings(levels.ORT_DISABLE_ALL))


@contextmanager
def _watched(graph: ir.Model, names: Sequence[str]) -> Iterator[None]:
    """The graph with these values as outputs too."""
    own = list(graph.graph.outputs)
    known = {v.name for v in (*own, *graph.graph.inputs)}
    wanted = set(names) - known
    try:
        for node in graph.graph:
            graph.graph.outputs.extend(v for v in node.outputs if v.name in wanted)
        yield
    finally:
        graph.graph.outputs[:] = own


def operators_after_load(path: Path) -> dict[str, int]:
    """Number of nodes by operator in the graph that ONNX Runtime executes after all its fusions."""
    import onnx_ir as ir
    import onnxruntime

    with tempfile.TemporaryDirectory(prefix="edgesdk-") as folder:
        settings: Any = options()
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        settings.optimized_model_filepath = str(Path(folder) / "fused.onnx")
        open_session(path, settings)
        fused = ir.load(Path(folder) / "fused.onnx")
        counts: dict[str, int] = {}
        for node in fused.graph:
            counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return counts
