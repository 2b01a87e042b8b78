"""Which weight of a file belongs to which parameter of an architecture: names and sizes only, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Shape = tuple[int, ...] | None
"""Sizes of a tensor; None when the architecture decides them on loading (lazy layers)."""

# Counters that optimizers' averaging leaves beside the weights (torch.optim.swa_utils.AveragedModel).
_BOOKKEEPING: Final = frozenset({"n_averaged"})
_COMPILED: Final = "_orig_mod."  # torch.compile's wrapper, also around inner modules
_MAX_STRIPS: Final = 6
_MAX_SUBTREE_DEPTH: Final = 3
# Buffers that training fills: keeping their first value gives wrong results without any error.
_TRAINED_BUFFERS: Final = ("running_mean", "running_var")


@dataclass(frozen=True)
class Architecture:
    """Names and sizes of a network's state.

    Attributes:
        shapes: of every entry of ``state_dict()``.
        parameters: those that are trained; a name whose tensor is tied to another one is satisfied by either.
        tied: groups of names that share one tensor.
        children: names of the network's direct members.
    """

    shapes: Mapping[str, Shape]
    parameters: frozenset[str]
    children: frozenset[str]
    tied: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True)
class Fit:
    """How a file's weights meet an architecture under one renaming.

    Attributes:
        names: file's name → architecture's name, for all that agree in name and size.
        change: what was done to the names, for people: ``"prefix 'module.' removed"``; empty for nothing.
        missing: parameters (and trained buffers) that the file doesn't have.
        unset: other buffers that the file doesn't have.
        mismatched: architecture's name → (size in the file, size in the architecture).
        unexpected: names in the file that belong to a part which the architecture has in another form.
        extra: names in the file that belong to parts which the architecture doesn't have at all.
    """

    names: Mapping[str, str]
    change: str
    missing: tuple[str, ...]
    unset: tuple[str, ...] = ()
    mismatched: Mapping[str, tuple[Shape, Shape]] = field(default_factory=dict)
    unexpected: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Every parameter gets its weight, and nothing is left over that should have had a place."""
        return not (self.missing or self.mismatched or self.unexpected)


def fits(arch: Architecture, file: Mapping[str, Shape]) -> list[Fit]:
    """Ways to give the file's weights to the architecture, the best first; several complete ones are a question.

    A prefix is removed only when all names share it and the result matches better than the names as they are. Names
    below one prefix are taken out of a larger file only when they match completely.
    """
    whole = [_fit(arch, file, renamed, change) for renamed, change in _renamings(arch, file)]
    best = max(whole, key=_score)  # the first of equals: the least changed
    if best.complete:
        return [best]
    parts = [_fit(arch, file, renamed, change) for renamed, change in _subtrees(file)]
    complete = [part for part in parts if part.complete]
    return complete or [best]


def _score(fit: Fit) -> tuple[bool, int, int]:
    return (fit.complete, len(fit.names), -len(fit.unexpected))


def _fit(arch: Architecture, file: Mapping[str, Shape], renamed: Mapping[str, str], change: str) -> Fit:
    names: dict[str, str] = {}
    mismatched: dict[str, tuple[Shape, Shape]] = {}
    left: list[str] = [name for name in file if name not in renamed and name not in _BOOKKEEPING]
    unexpected: list[str] = []
    for old, new in renamed.items():
        if new not in arch.shapes:
            known = new.partition(".")[0] in arch.children
            (unexpected if known else left).append(old)
        elif arch.shapes[new] is None or arch.shapes[new] == file[old]:
            names[old] = new
        else:
            mismatched[new] = (file[old], arch.shapes[new])
    found = _with_tied(arch, set(names.values()) | mismatched.keys())
    absent = [name for name in arch.shapes if name not in found]
    needed = [n for n in absent if n in arch.parameters or n.endswith(_TRAINED_BUFFERS)]
    return Fit(
        names,
        change,
        tuple(needed),
        tuple(n for n in absent if n not in needed),
        mismatched,
        tuple(unexpected),
        tuple(left),
    )


def _with_tied(arch: Architecture, found: set[str]) -> set[str]:
    for group in arch.tied:
        if group & found:
            found |= group
    return found


def _renamings(arch: Architecture, file: Mapping[str, Shape]) -> Iterator[tuple[dict[str, str], str]]:
    """Candidates over all names: as they are, without compile's wrapper, without shared prefixes, with the wrapper's."""
    plain = {name: name for name in file if name not in _BOOKKEEPING}
    found = list(_strips(plain, ""))
    if any(_COMPILED in name for name in plain):
        found += _strips({o: n.replace(_COMPILED, "") for o, n in plain.items()}, f"'{_COMPILED}' removed")
    yield from found
    wrapper = _common_prefix(list(arch.shapes))
    for names, change in found if wrapper else ():
        added = f"prefix '{wrapper}' added"
        yield {old: wrapper + new for old, new in names.items()}, f"{change}; {added}" if change else added


def _strips(names: dict[str, str], change: str) -> Iterator[tuple[dict[str, str], str]]:
    removed = ""
    for _ in range(_MAX_STRIPS):
        yield names, "; ".join(filter(None, [change, f"prefix '{removed}' removed" if removed else ""]))
        prefix = _common_prefix(list(names.values()))
        if not prefix:
            return
        removed += prefix
        names = {old: new.removeprefix(prefix) for old, new in names.items()}


def _common_prefix(names: Sequence[str]) -> str:
    """First component with its dot, when every name has it and something after it."""
    firsts = {name.partition(".")[0] for name in names if "." in name}
    return f"{firsts.pop()}." if len(firsts) == 1 and all("." in name for name in names) else ""


def _subtrees(file: Mapping[str, Shape]) -> Iterator[tuple[dict[str, str], str]]:
    prefixes: dict[str, None] = {}
    for name in file:
        parts = name.split(".")[:-1]
        for depth in range(1, min(len(parts), _MAX_SUBTREE_DEPTH) + 1):
            prefixes[".".join(parts[:depth]) + "."] = None
    for prefix in prefixes:
        below = {n: n.removeprefix(prefix).replace(_COMPILED, "") for n in file if n.startswith(prefix)}
        yield below, f"only what is below '{prefix}' taken"


def pruned_channels(fit: Fit) -> str | None:
    """A phrase for the first channels that are missing, when the file is a structurally pruned form of the network.

    That is: all names agree, several layers are narrower in the file, none is wider, and ranks are equal.
    """
    if fit.missing or fit.unexpected or len(fit.mismatched) < 3:
        return None
    for theirs, ours in fit.mismatched.values():
        if theirs is None or ours is None or len(theirs) != len(ours):
            return None
        if any(a > b for a, b in zip(theirs, ours, strict=True)) or theirs[2:] != ours[2:]:
            return None
    name, (theirs, ours) = next(iter(fit.mismatched.items()))
    at = next(i for i, (a, b) in enumerate(zip(theirs or (), ours or (), strict=True)) if a != b)
    return f"{name} has {(theirs or ())[at]} of {(ours or ())[at]} channels"


def other_classes(fit: Fit) -> int | None:
    """Number of classes in the file, when only the last layer differs, and only in that."""
    if fit.missing or fit.unexpected or not 1 <= len(fit.mismatched) <= 4:
        return None
    sizes = set()
    for theirs, ours in fit.mismatched.values():
        if not theirs or not ours or theirs[1:] != ours[1:]:
            return None
        sizes.add(theirs[0])
    return sizes.pop() if len(sizes) == 1 else None
