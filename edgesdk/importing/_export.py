"""From an ``nn.Module`` or a saved program to a :class:`~edgesdk.artifacts.Model` that every runtime can lower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Dim, HistoryStep, Model, Signature, TensorSpec, Warn
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._inputs import Call, dtype_name, example, match_inputs, sizes_of
from edgesdk.importing._names import name_outputs, unique

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

    from edgesdk.preprocess import PreprocessSpec


@dataclass(frozen=True)
class ModelHint:
    """What a source says about its model beside the weights; ``--input`` wins over ``inputs``."""

    inputs: tuple[TensorSpec, ...] = ()
    preprocess: PreprocessSpec | None = None
    labels: tuple[str, ...] | None = None
    task: str | None = None
    license: str | None = None
    warnings: tuple[Warn, ...] = ()
    history: tuple[HistoryStep, ...] = ()


def export_module(
    module: nn.Module, located: Located, options: ImportOptions, *, hint: ModelHint | None = None
) -> Model:
    """Export a module in inference form."""
    import torch

    hint = hint or ModelHint()
    module = module.cpu().eval()
    call = match_inputs(module, options.inputs, hint.inputs)
    chosen = {(s.name, i): max(2, d.min) for s in call.specs for i, d in enumerate(s.shape or ()) if isinstance(d, Dim)}
    flat = [example(s, sizes_of(s, chosen), i) for i, s in enumerate(call.specs)]
    args, kwargs = call.bind(flat)
    dims = [
        {i: torch.export.Dim.AUTO(min=d.min, max=d.max) for i, d in enumerate(s.shape or ()) if isinstance(d, Dim)}
        for s in call.specs
    ]
    shapes: Any = None
    if any(dims):
        dargs, dkwargs = call.bind(dims)
        shapes = {**dict(zip(call.positional, dargs, strict=True)), **dkwargs}
    with torch.no_grad():
        found = module(*args, **kwargs)
    program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    pairs = name_outputs(found)
    names = unique([n for n, _ in pairs])
    outputs = tuple(
        TensorSpec(n, dtype_name(t.dtype), _shape(v))
        for n, (_, t), v in zip(names, pairs, _outputs(program), strict=True)
    )
    return Model(
        located.source, Signature(call.specs, outputs), program=program, module=_flat(module, call),
        preprocess=hint.preprocess, labels=hint.labels, task=hint.task, license=hint.license,
        history=hint.history, warnings=hint.warnings,
    )  # fmt: skip


def _outputs(program: ExportedProgram) -> list[Any]:
    from torch.export.graph_signature import OutputKind

    nodes = program.graph.output_node().args[0]
    specs = program.graph_signature.output_specs
    return [n.meta["val"] for n, s in zip(nodes, specs, strict=True) if s.kind is OutputKind.USER_OUTPUT]  # type: ignore[union-attr,arg-type]


def _shape(value: Any) -> tuple[int | Dim, ...]:
    return tuple(d if isinstance(d, int) else Dim(1, 8) for d in value.shape)


def _flat(module: nn.Module, call: Call) -> nn.Module:
    import torch

    class FlatModule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, *flat: Any) -> Any:
            args, kwargs = call.bind(flat)
            return [leaf for _, leaf in name_outputs(self.model(*args, **kwargs))]

    return FlatModule().eval()


def adopt_program(ep: ExportedProgram, located: Located, options: ImportOptions) -> Model:
    """Take over a saved program."""
    specs = [n for n in ep.graph.nodes if n.op == "placeholder" and n.name in ep.graph_signature.user_inputs]
    inputs = tuple(TensorSpec(n.name, dtype_name(n.meta["val"].dtype), _shape(n.meta["val"])) for n in specs)
    values = _outputs(ep)
    names = ["output"] if len(values) == 1 else [f"output_{i}" for i in range(len(values))]
    outputs = tuple(TensorSpec(n, dtype_name(v.dtype), _shape(v)) for n, v in zip(names, values, strict=True))
    return Model(located.source, Signature(inputs, outputs), program=ep, module=ep.module())
