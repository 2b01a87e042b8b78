"""Weights from a file into an architecture, strictly: every parameter gets its weight, or the reason is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgesdk.artifacts import HistoryStep, Model, Warn
from edgesdk.errors import InputError
from edgesdk.importing import _arch
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._families import guess
from edgesdk.importing._library import Built
from edgesdk.importing._match import Architecture, Fit, Shape, fits, other_classes, pruned_channels
from edgesdk.importing._safety import unsafe_torch
from edgesdk.importing._weights import Checkpoint, Table, read_weights

if TYPE_CHECKING:
    import torch
    from torch import nn

_SHOWN: Final = 4


@dataclass(frozen=True)
class _Choice:
    table: Table
    fit: Fit


def load_checkpoint(located: Located, options: ImportOptions, *, only: str | None = None) -> Model:
    """Read the weights, make the architecture, join them, export.

    ``only`` restricts the look-up to one key of the file (Lightning's ``state_dict``).

    Raises:
        InputError: no ``--arch``; weights and architecture don't fit; several sets of weights fit.
    """
    import torch

    from edgesdk.importing._export import export_module

    path = located.path
    if path is None:
        raise ValueError("a state dict is a file")
    checkpoint = read_weights(path)
    tables = [t for t in checkpoint.tables if only is None or t.key == only]
    if not tables:
        raise _no_tables(path, checkpoint)
    if not options.arch:
        raise _arch_missing(path, located.source.format, tables)
    built = _arch.build(options.arch)
    choice, built = _choose(path, located.member, tables, built)
    _assign(built.holder or built.module, choice)
    reports = (*_report(path, checkpoint, choice, only), *unsafe_torch(torch.__version__))
    step = HistoryStep(
        "import", located.source.format,
        fields={"arch": options.arch, "key": choice.table.key, "names": choice.fit.change, "tensors": len(choice.fit.names)},
    )  # fmt: skip
    kept = tuple(s for s in built.hint.history if s.type != "architecture")
    hint = replace(built.hint, warnings=(*built.hint.warnings, *reports), history=(*kept, step))
    return export_module(built.module, located, options, hint=hint)


# --- choosing ---------------------------------------------------------------------------------------------------------


def _choose(path: Path, member: str | None, tables: list[Table], built: Built) -> tuple[_Choice, Built]:
    """The one table and renaming that fits; the architecture is rebuilt when only its number of classes differs."""
    chosen = _selected(path, member, tables)
    found = _all_fits(chosen, built.holder or built.module)
    complete = [choice for choice in found if choice.fit.complete]
    if len(complete) > 1 and not _all_equal(complete):
        raise _ask(path, complete)
    if complete:
        return complete[0], built
    best = max(found, key=lambda choice: len(choice.fit.names))
    classes = other_classes(best.fit)
    if classes and built.rebuild:
        again = built.rebuild(classes)
        refound = [c for c in _all_fits([best.table], again.holder or again.module) if c.fit.complete]
        if refound:
            return refound[0], again
    raise _mismatch(path, best, built.label)


def _selected(path: Path, member: str | None, tables: list[Table]) -> list[Table]:
    """The tables that ``FILE#KEY`` means: a key of the file, or a prefix of names in it."""
    if not member:
        return tables
    named = [t for t in tables if t.key == member or t.key.startswith(f"{member}.")]
    if named:
        return named
    prefix = f"{member}."
    below = [
        Table(t.key, {n.removeprefix(prefix): v for n, v in t.tensors.items() if n.startswith(prefix)}) for t in tables
    ]
    below = [t for t in below if t.tensors]
    if below:
        return below
    keys = [t.key for t in tables if t.key] or sorted({n.partition(".")[0] for t in tables for n in t.tensors})[:8]
    raise InputError(
        "no_such_key", f"{path} has no weights under '{member}'.", why=f"It has {', '.join(keys)}.",
        fix=f"Write {path}#{keys[0]}",
    )  # fmt: skip


def _all_fits(tables: Iterable[Table], module: nn.Module) -> list[_Choice]:
    arch = describe(module)
    return [_Choice(table, fit) for table in tables for fit in fits(arch, shapes_of(table.tensors))]


def describe(module: nn.Module) -> Architecture:
    """Names and sizes of a module's state."""
    from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

    from edgesdk.importing._library import entries

    state = entries(module)
    sizes: dict[str, Shape] = {
        name: None if isinstance(value, (UninitializedParameter, UninitializedBuffer)) else tuple(value.shape)
        for name, value in state.items()
    }
    named = list(module.named_parameters(remove_duplicate=False))
    groups: dict[int, set[str]] = {}
    for name, parameter in named:
        groups.setdefault(id(parameter), set()).add(name)
    children = {name for name, _ in module.named_children()} | {name.partition(".")[0] for name in sizes}
    return Architecture(
        sizes, frozenset(n for n, _ in named if n in sizes), frozenset(children),
        tuple(frozenset(group) for group in groups.values() if len(group) > 1),
    )  # fmt: skip


def shapes_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _all_equal(choices: list[_Choice]) -> bool:
    import torch

    first = {new: choices[0].table.tensors[old] for old, new in choices[0].fit.names.items()}
    for choice in choices[1:]:
        other = {new: choice.table.tensors[old] for old, new in choice.fit.names.items()}
        if first.keys() != other.keys() or not all(torch.equal(first[n], other[n]) for n in first):
            return False
    return True


# --- assigning --------------------------------------------------------------------------------------------------------


def _assign(module: nn.Module, choice: _Choice) -> None:
    """Copy the weights in. The fit was checked; what torch still refuses is reported as it says it."""
    own = dict(module.state_dict())
    state: dict[str, Any] = {new: choice.table.tensors[old] for old, new in choice.fit.names.items()}
    for name, tensor in state.items():
        if own[name].is_floating_point() and not (tensor.is_floating_point() or tensor.is_quantized):
            raise InputError(
                "weights_mismatch", f"The weight '{name}' is {str(tensor.dtype).removeprefix('torch.')} in the file.",
                why="The architecture computes in float; these are quantized or packed values of another program.",
                fix="Use the original float weights, and --quantize to make them small.",
            )  # fmt: skip
    try:
        module.load_state_dict(state, strict=False)
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as exc:
        reason = str(exc).strip().splitlines()[-1].strip()[:300]
        raise InputError(
            "weights_mismatch", f"The weights can't be put into the architecture: {reason}",
            why="The module has its own way to load a state dict, and it refused.",
            fix="Load them in a factory of your own, and give file.py:FACTORY as MODEL.",
        ) from exc  # fmt: skip


def _report(path: Path, checkpoint: Checkpoint, choice: _Choice, only: str | None) -> Iterable[Warn]:
    """What was used and what was left out, wherever that isn't everything under its own name."""
    fit, key = choice.fit, choice.table.key
    unused = [t.key or "the outermost level" for t in checkpoint.tables if t is not choice.table and t.key != key]
    if key and key != only:
        left = [*unused, *checkpoint.others]
        tail = f"; left out: {', '.join(left[:8])}" if left else ""
        yield Warn("weights_chosen", f"Took the {len(fit.names)} weights under '{key}' of {path.name}{tail}.")
    if fit.change:
        yield Warn("weights_renamed", f"Names of the weights were changed to match: {fit.change}.")
    if fit.extra:
        yield Warn(
            "weights_left_out",
            f"{len(fit.extra)} entries belong to no part of the architecture and were left out: {_some(fit.extra)}.",
        )
    unset = [name for name in fit.unset if not name.endswith("num_batches_tracked")]
    if unset:
        yield Warn("buffers_kept", f"{len(unset)} constant buffers keep the architecture's value: {_some(unset)}.")
    broken = [n for n in fit.names if not bool(choice.table.tensors[n].isfinite().all())]
    if broken:
        yield Warn("weights_not_finite", f"Weights hold NaN or infinity: {_some(broken)}.")


# --- errors -----------------------------------------------------------------------------------------------------------


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_SHOWN]) + (f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else "")


def _ask(path: Path, choices: list[_Choice]) -> InputError:
    keys = []
    for choice in choices:
        prefix = choice.fit.change.partition("'")[2].partition("'")[0].rstrip(".") if not choice.table.key else ""
        keys.append(choice.table.key or prefix)
    return InputError(
        "several_weights", f"{path} holds {len(keys)} sets of weights that fit: {', '.join(keys)}.",
        why="A moving average (ema) is usually the better one, but only you know which was evaluated.",
        fix=f"Choose one: {' or '.join(f'{path}#{key}' for key in keys)}",
        details={"keys": keys},
    )  # fmt: skip


def _mismatch(path: Path, choice: _Choice, arch: str) -> InputError:
    fit, tensors = choice.fit, choice.table.tensors
    pruned = pruned_channels(fit)
    if pruned:
        return InputError(
            "pruned_weights", f"{path} is a structurally pruned form of {arch}: {pruned}, and so on.",
            why="Pruning removed channels, so the weights no longer fit the original class.",
            fix="Give the pruned network itself: a .pt2 exported after pruning (edgesdk compress writes one), a factory "
            "that builds the narrow layers, or the whole pickled module with --trust-pickle.",
            details={"mismatched": len(fit.mismatched)},
        )  # fmt: skip
    parts = []
    if fit.mismatched:
        shown = [f"{n} {_size(a)} in the file, {_size(b)} in the architecture" for n, (a, b) in fit.mismatched.items()]
        parts.append(f"{len(shown)} of other size: {'; '.join(shown[:_SHOWN])}")
    if fit.missing:
        parts.append(f"{len(fit.missing)} missing in the file: {_some(fit.missing)}")
    left = [*fit.unexpected, *(fit.extra if not fit.names else ())]
    if left:
        shown = [f"{n} {_size(tuple(tensors[n].shape))}" for n in left]
        parts.append(f"{len(shown)} unexpected: {_some(shown)}")
    likely = guess(shapes_of(tensors))
    hint = f"The names look like {likely}: --arch {likely}. " if likely and likely != arch else ""
    return InputError(
        "weights_mismatch", f"The weights of {path} don't fit {arch}: {len(fit.names)} match; {'. '.join(parts)}.",
        why="A parameter without its weight would keep a random value, and the model would be silently wrong.",
        fix=f"{hint}Name the architecture that these weights were trained with (same class, same arguments).",
        details={"matched": len(fit.names), "missing": list(fit.missing), "unexpected": left, "renamed": fit.change},
    )  # fmt: skip


def _size(shape: Shape) -> str:
    return "[?]" if shape is None else f"[{','.join(map(str, shape))}]"


def _no_tables(path: Path, checkpoint: Checkpoint) -> InputError:
    return InputError(
        "no_weights", f"{path} holds no table of weights.",
        why=f"Its keys are {', '.join(checkpoint.others[:8])}." if checkpoint.others else "It has no tensors with names.",
        fix="Save the weights: torch.save(model.state_dict(), 'weights.pth')",
    )  # fmt: skip


def _arch_missing(path: Path, form: str, tables: list[Table]) -> InputError:
    table = max(tables, key=lambda t: len(t.tensors))
    likely = guess(shapes_of(table.tensors))
    kind = "a Lightning checkpoint" if form == "lightning" else "a state dict"
    return InputError(
        "arch_missing", f"{path} is {kind}: {len(table.tensors)} weights without the network they belong to.",
        why=f"The code that makes the network isn't in the file. Its first names are {_some(table.tensors)}.",
        fix=(f"They look like {likely}: add --arch {likely}" if likely else "Say where the code is: --arch file.py:FACTORY")
        + (". If it is another network: --arch file.py:FACTORY." if likely else " (or torchvision:NAME, timm:NAME)."),
        details={"guess": likely},
    )  # fmt: skip
