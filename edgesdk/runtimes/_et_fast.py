"""Lower with ExecuTorch in a third of its usual time, to the same bytes.

Where upstream's time goes and what is done about it, for the length of one lowering:

* Seventeen passes rebuild the graph node by node even when they found nothing to change. Rebuilding a graph that was
  just rebuilt gives the same graph, so it is left out when the graph is untouched since and the pass has no say in it.
* Two XNNPACK passes export reference networks (bilinear upsampling, attention) to search for them. They are exported
  only when the network holds an operator of each kind that they are made of.
* A third decomposition runs over a graph in which nothing is left to decompose; upstream itself leaves it out for
  partitioners without a filter.
* Graphs are checked, printed into strings and translated into Python that nobody reads, several times per pass.
* The garbage collector walks all modules again and again.

``_et_memory`` adds what spares copies of the weights.

None of this holds for other versions: the sources that the reasoning depends on are fingerprinted, and for any other
the plain way is taken. ``tests/runtimes/test_executorch_fast.py`` compares the bytes.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

from edgesdk.runtimes import _et_memory
from edgesdk.runtimes._et_patch import Swap, fingerprint, swapped
from edgesdk.runtimes._et_rules import rules

_PASSES = "executorch:backends/xnnpack/_passes/"
_EXIR = "executorch:exir/passes/"
SOURCES = (
    "executorch:exir/pass_base.py",
    "executorch:exir/pass_manager.py",
    "executorch:exir/program/_program.py",
    "executorch:exir/passes/__init__.py",
    "executorch:exir/backend/backend_api.py",
    "executorch:exir/backend/canonical_partitioners/config_partitioner.py",
    "executorch:backends/transforms/remove_getitem_op.py",
    "executorch:backends/xnnpack/xnnpack_preprocess.py",
    "executorch:backends/xnnpack/partition/graphs/bilinear_2d.py",
    "executorch:backends/xnnpack/partition/graphs/sdpa.py",
    *(f"{_PASSES}{name}.py" for name in (
        "__init__", "channels_last_tagged_reshape_pass", "conv1d_unsqueeze_pass", "convert_to_linear",
        "convert_to_sdpa", "convert_to_upsample_bilinear2d", "decompose_batch_norm", "decompose_cat",
        "fuse_activation_pass", "fuse_batch_norm", "insert_pad_qdq", "prelu_reshape_pass",
        "propagate_custom_meta_pass", "remove_redundant_copy_pass", "xnnpack_pass",
    )),
    *(f"{_EXIR}{name}.py" for name in (
        "const_prop_pass", "dim_order_ops_registry", "memory_format_ops_pass", "normalize_transpose_pass",
        "remove_mixed_type_operators", "replace_broken_ops_with_function_ops_pass", "scalar_to_tensor_pass",
        "sym_to_tensor_pass",
    )),
    "torch:fx/graph_module.py",
    "torch:fx/interpreter.py",
    "torch:fx/passes/infra/pass_base.py",
    "torch:export/exported_program.py",
    *_et_memory.SOURCES,
)  # fmt: skip
TESTED = "71235ebd071e8221da9ed1c852a02dd225c8cdd5db7732f46e3aa4e00ad9a9f2"

# Operators that every reference graph of ``partition/graphs`` holds; without all of them nothing can match.
_BILINEAR = frozenset({"aten.upsample_bilinear2d.vec"})
_ATTENTION = frozenset(
    {"aten.bmm.default", "aten._softmax.default", "aten.add.Tensor", "aten.mul.Scalar", "aten.where.self"}
)


@functools.cache
def trusted() -> bool:
    """Whether the installed sources are the ones that were tested."""
    return fingerprint(SOURCES) == TESTED


@contextlib.contextmanager
def fast() -> Iterator[None]:
    """Within the block lowering is fast; a plain block when the versions are unknown."""
    with collected_once():
        if not trusted():
            yield
            return
        with swapped(_swaps()):
            yield


@contextlib.contextmanager
def collected_once() -> Iterator[None]:
    """Put what exists beyond the collector's reach and collect what the block leaves behind once, at its end."""
    was_on = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def _swaps() -> list[Swap]:
    from executorch.backends.xnnpack._passes import convert_to_sdpa, convert_to_upsample_bilinear2d
    from executorch.exir import pass_base, pass_manager
    from executorch.exir.program import _program
    from torch.fx import GraphModule

    export, recompiles = _program.ExportedProgram.run_decompositions, _Recompiles(GraphModule)
    retraces, checks = _Retraces(pass_base._ExportPassBase.call), _Checks(pass_manager.ExportedProgramPassManager.check)
    bilinear, attention = convert_to_upsample_bilinear2d.ConvertToUpsampleBilinear2d, convert_to_sdpa.ConvertToSDPAPass
    return [
        Swap(pass_base._ExportPassBase, "call", retraces.bound()),
        Swap(pass_manager.ExportedProgramPassManager, "check", checks.bound()),
        Swap(bilinear, "call", _only_with(_BILINEAR, bilinear)),
        Swap(attention, "call", _only_with(_ATTENTION, attention)),
        Swap(GraphModule, "print_readable", _unread(GraphModule.print_readable)),
        *recompiles.swaps(GraphModule),
        Swap(_program.ExportedProgram, "run_decompositions", _decompose(export, recompiles)),
        *_et_memory.swaps(),
    ]


def _targets(module: Any) -> set[Any]:
    return {node.target for node in module.graph.nodes if node.op == "call_function"}


def _only_with(needed: frozenset[str], owner: Any) -> Any:
    """The pass, its search left out when an operator of the pattern is missing; the rest stays as it is upstream."""
    plain, parent = owner.call, owner.__mro__[1]

    def call(self: Any, module: Any) -> Any:
        from torch.fx.passes.infra.pass_base import PassResult

        present = {getattr(target, "__name__", "") for target in _targets(module)}
        if needed <= present:
            return plain(self, module)
        module.recompile()
        return PassResult(parent.call(self, module).graph_module, True)

    return call


def _unread(plain: Any) -> Any:
    def print_readable(self: Any, print_output: bool = True, *args: Any, **kwargs: Any) -> Any:
        # Two passes build the text of the whole graph as an argument of logger.debug.
        return plain(self, print_output, *args, **kwargs) if print_output else ""

    return print_readable


class _Recompiles:
    """Writes a graph's Python code when it is called or read, which for most graphs is never."""

    def __init__(self, module_class: Any) -> None:
        self._plain, self._text, self._code = module_class.recompile, module_class.__str__, module_class.code
        self.lazy = True

    def swaps(self, module_class: Any) -> list[Swap]:
        return [
            Swap(module_class, "recompile", self._recompile()),
            Swap(module_class, "__str__", lambda module: self._text(self._written(module))),
            Swap(module_class, "code", property(lambda module: self._code.fget(self._written(module)))),
        ]

    def _written(self, module: Any) -> Any:
        if type(module).forward is self._forward():
            self._plain(module)
        return module

    @functools.cache  # noqa: B019 - one object a lowering, and it must be the same function each time
    def _forward(self) -> Any:
        plain = self._plain

        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            plain(module)
            return module.forward(*args, **kwargs)

        return forward

    def _recompile(self) -> Any:
        def recompile(module: Any) -> Any:
            if not self.lazy:
                return self._plain(module)
            info = getattr(module.graph._codegen, "pytree_info", None)
            if info is not None:
                module._in_spec, module._out_spec = info.in_spec, info.out_spec
            type(module).forward = self._forward()  # each graph module has a class of its own
            return None

        return recompile


def _decompose(plain: Any, recompiles: _Recompiles) -> Any:
    def run_decompositions(self: Any, decomp_table: Any = None, *args: Any, **kwargs: Any) -> Any:
        from executorch.exir.graph_module import contains_any_call_fn_target_op

        # Made functional by an earlier call, and nothing of the table occurs: the call would rebuild it as it is.
        # An empty table asks for the step that makes it functional, so that one always runs.
        if (
            decomp_table
            and not args
            and not kwargs
            and getattr(self, _DECOMPOSED, False)
            and not contains_any_call_fn_target_op(self.graph_module, decomp_table)
        ):
            return self
        recompiles.lazy = False  # torch.export looks at the signature of what it traces
        try:
            program = plain(self, decomp_table, *args, **kwargs)
        finally:
            recompiles.lazy = True
        setattr(program, _DECOMPOSED, True)
        return program

    return run_decompositions


_DECOMPOSED = "_edgesdk_decomposed"


class _Snapshot:
    """A graph as it stood: the nodes in order, each with what a rebuild would read."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._rows = _rows(module)

    def unchanged(self, module: Any) -> bool:
        if module is not self._module:
            return False
        rows = _rows(module)
        return len(rows) == len(self._rows) and all(
            all(a is b for a, b in zip(new, old, strict=True)) for new, old in zip(rows, self._rows, strict=True)
        )


def _rows(module: Any) -> list[tuple[Any, ...]]:
    return [(n, n.target, n.name, n.args, n.kwargs, n.meta.get("val")) for n in module.graph.nodes]


class _Checks:
    """Leaves out checks of a graph that passed them and has not changed since."""

    def __init__(self, plain: Callable[[Any, Any], None]) -> None:
        self._plain = plain
        self._last: tuple[_Snapshot, Any] | None = None

    def bound(self) -> Any:
        def check(manager: Any, program: Any) -> None:
            module = program.graph_module
            if self._last and self._last[1] is program.verifier and self._last[0].unchanged(module):
                return
            self._plain(manager, program)
            self._last = (_Snapshot(module), program.verifier)

        return check


class _Retraces:
    """Leaves out rebuilding a graph that was just rebuilt and that the pass has no reason to change."""

    def __init__(self, plain: Callable[[Any, Any], Any]) -> None:
        self._plain = plain
        self._last: _Snapshot | None = None

    def bound(self) -> Any:
        def call(self_: Any, module: Any) -> Any:
            from torch.fx.passes.infra.pass_base import PassResult

            if self._last is not None and self._last.unchanged(module) and not _acts(self_, module):
                return PassResult(module, True)
            result = self._plain(self_, module)
            self._last = _Snapshot(result.graph_module) if _flat(result.graph_module) else None
            return result

        return call


def _flat(module: Any) -> bool:
    """No submodules and no constants kept as attributes; others are always rebuilt."""
    return all(node.op in ("placeholder", "call_function", "output") for node in module.graph.nodes)


def _acts(pass_: Any, module: Any) -> bool:
    """Whether the pass might change a node while it rebuilds; True for every pass not known here."""
    kind: Any = type(pass_)
    rule = rules().get(kind)
    if rule is not None:
        return rule(module)
    return not _plain_rebuild(kind)


@functools.cache
def _plain_rebuild(kind: Any) -> bool:
    """Whether the class leaves every method that the rebuild calls as ``ExportPass`` has it."""
    from executorch.exir.pass_base import ExportPass

    return all(getattr(kind, hook, None) is getattr(ExportPass, hook) for hook in _hooks())


# Methods of a pass around the rebuild, not within it.
_NOT_REBUILDING = {"call", "ensures", "requires"}


@functools.cache
def _hooks() -> tuple[str, ...]:
    from executorch.exir.pass_base import ExportPass

    names = {name for base in ExportPass.__mro__[:-1] for name, value in vars(base).items() if callable(value)}
    return tuple(sorted(name for name in names if not name.startswith(("__", "_abc")) and name not in _NOT_REBUILDING))
