"""What to feed: ``forward()``'s parameters matched with ``--input``, and example tensors made from specs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.errors import InputError, UsageError, nearest
from edgesdk.importing._guess import picture_input, propose_inputs

if TYPE_CHECKING:
    import torch
    from torch import nn


class _Branch(dict[str, Any]):
    """A level of nesting, told apart from a leaf that is itself a dictionary."""


@dataclass(frozen=True)
class Call:
    """How flat tensors become a call of ``forward()``.

    Attributes:
        specs: the flat inputs, in the order of ``forward()``'s parameters; nested ones have dotted names.
        positional: parameters given by position, in order.
        keyword: parameters given by keyword (keyword-only ones, and all that follow a left-out default).
        lists: parameters (or dotted paths) whose numbered children form a list, not a tuple.
    """

    specs: tuple[TensorSpec, ...]
    positional: tuple[str, ...]
    keyword: tuple[str, ...] = ()
    lists: frozenset[str] = frozenset()

    def bind(self, flat: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments and keyword arguments of ``forward()`` holding the flat values."""
        tree: dict[str, Any] = _Branch()
        for spec, value in zip(self.specs, flat, strict=True):
            *parents, last = spec.name.split(".")
            branch = tree
            for word in parents:
                branch = branch.setdefault(word, _Branch())
            branch[last] = value
        values = {name: self._nest(branch, name) for name, branch in tree.items()}
        return tuple(values[n] for n in self.positional), {n: values[n] for n in self.keyword}

    def _nest(self, branch: Any, path: str) -> Any:
        if not isinstance(branch, _Branch):
            return branch
        children = {k: self._nest(v, f"{path}.{k}") for k, v in branch.items()}
        if all(k.isdigit() for k in children):
            ordered = [children[k] for k in sorted(children, key=int)]
            return ordered if path in self.lists else tuple(ordered)
        return children


def match_inputs(module: nn.Module, asked: Sequence[TensorSpec], hinted: Sequence[TensorSpec]) -> Call:
    """Match ``--input``, or else what the source says, with the parameters of ``forward()``.

    Raises:
        UsageError: a name that ``forward()`` doesn't have.
        InputError: ``forward()`` takes ``*args`` or ``**kwargs`` that are needed, an input without default has no
            spec, or nothing is known about shapes (the fix then proposes the likeliest ``--input``).
    """
    return match_parameters(module, forward_parameters(module), asked, hinted)


def hinted_by_picture(module: nn.Module, sides: tuple[int, int] | None) -> tuple[TensorSpec, ...]:
    """The only input, where ``--image`` tells its size; empty where it can't."""
    return picture_input(module, _required(forward_parameters(module)) or ["input"], sides)


def match_parameters(
    module: nn.Module, params: Sequence[inspect.Parameter], asked: Sequence[TensorSpec], hinted: Sequence[TensorSpec]
) -> Call:
    """:func:`match_inputs` for parameters that are known already."""
    if not asked and not hinted:
        if not params:
            raise _no_inputs()
        raise propose_inputs(module, _required(params))
    specs = merge(asked, hinted)
    _check_known(specs, params)
    roots = {spec.name.split(".")[0] for spec in specs}
    missing = [p for p in _required(params) if p not in roots]
    if missing:
        raise _missing(missing, specs)
    named = {p.name: p for p in params if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    order = list(named)
    ordered = tuple(sorted(specs, key=lambda s: order.index(s.name.split(".")[0])))
    positional, keyword = _split(list(named.values()), roots)
    lists = frozenset(n for n in roots if _is_list(named[n]))
    call = Call(ordered, positional, keyword, lists)
    flat = torch_leaves(call.bind(ordered))
    return replace(call, specs=tuple(flat))


def torch_leaves(value: Any) -> list[Any]:
    """Leaves in the order in which torch.export flattens arguments."""
    from torch.utils import _pytree as pytree

    return pytree.tree_leaves(value)


def merge(asked: Sequence[TensorSpec], hinted: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """What the user said wins over what the source says, input by input; the others take over the sizes that it settles.

    So ``--input 'input_ids=int64[1,64]'`` settles the mask and the token types too: a model needs them alike.
    """
    said = {s.name: s for s in asked}
    if not hinted:
        return tuple(asked)
    if not set(said) & {s.name for s in hinted}:
        return tuple(asked) or tuple(hinted)
    kept = [said[s.name] if s.name in said else _settled(s, said, hinted) for s in hinted]
    known = {s.name for s in hinted}
    return (*kept, *(s for s in asked if s.name not in known))


def _settled(spec: TensorSpec, said: Mapping[str, TensorSpec], hinted: Sequence[TensorSpec]) -> TensorSpec:
    """An input that the user didn't name: shaped as its like that was named, or with the sizes that it shares."""
    pairs = [(h.shape, said[h.name].shape) for h in hinted if h.name in said]
    if spec.shape is None or not any(isinstance(d, Dim) and d.symbol for d in spec.shape):
        return spec
    for theirs, asked in pairs:
        if asked is not None and theirs == spec.shape:
            return replace(spec, shape=asked)
    sizes = {
        old.symbol: new
        for theirs, asked in pairs
        for old, new in zip(theirs or (), asked or (), strict=False)
        if isinstance(old, Dim) and old.symbol
    }
    return replace(spec, shape=tuple(sizes.get(d.symbol or "", d) if isinstance(d, Dim) else d for d in spec.shape))


def forward_parameters(module: nn.Module) -> list[inspect.Parameter]:
    """The parameters of ``forward()``, without ``self``."""
    forward: Callable[..., Any] = module.forward
    return list(inspect.signature(forward).parameters.values())


def _required(params: Sequence[inspect.Parameter]) -> list[str]:
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in params if p.kind in plain and p.default is inspect.Parameter.empty]


def _check_known(specs: Sequence[TensorSpec], params: Sequence[inspect.Parameter]) -> None:
    known = [p.name for p in params if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for spec in specs:
        root = spec.name.split(".")[0]
        if root in known:
            continue
        star = next((p for p in params if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)), None)
        if star is not None:
            raise InputError(
                "variable_arguments",
                f"forward() takes '{star}', so '{root}' names no single input.",
                why="A file on a phone needs a fixed list of named tensors.",
                fix="Wrap the model in a class whose forward() names its inputs, and pass it as file.py:factory.",
            )
        raise UsageError(
            "unknown_input",
            f"The model has no input '{root}'.",
            why=nearest(root, known) if known else "Its forward() takes no inputs.",
            fix=f"Name forward()'s parameters in --input: {', '.join(known)}.",
        )


def _no_inputs() -> InputError:
    return InputError(
        "no_inputs", "The model's forward() takes no inputs.",
        why="It would answer the same whenever it is called; there is nothing to compare and nothing to feed.",
        fix="Give forward() the tensors that it works on as parameters, or store its answer as a constant in the app.",
    )  # fmt: skip


def _missing(missing: Sequence[str], specs: Sequence[TensorSpec]) -> UsageError:
    given = ", ".join(s.name for s in specs)
    return UsageError(
        "missing_input",
        f"forward() needs {len(missing)} more input{'s' * (len(missing) > 1)}: {', '.join(missing)}.",
        why=f"Only {given} was described, and these have no default.",
        fix=" ".join(f"--input '{name}=float32[SIZES]'" for name in missing) + " added to the command.",
    )


def _split(params: Sequence[inspect.Parameter], given: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    positional: list[str] = []
    keyword: list[str] = []
    for p in params:
        if p.name not in given:
            continue
        gap = len(positional) < len([q for q in params[: params.index(p)] if q.kind is not q.KEYWORD_ONLY])
        (keyword if gap or p.kind is p.KEYWORD_ONLY else positional).append(p.name)
    return tuple(positional), tuple(keyword)


def _is_list(p: inspect.Parameter) -> bool:
    text = p.annotation if isinstance(p.annotation, str) else getattr(p.annotation, "__name__", str(p.annotation))
    return text.lower().split("[")[0].rsplit(".", 1)[-1] in ("list", "sequence", "iterable")


def torch_dtype(name: str) -> torch.dtype:
    import torch

    dtype: torch.dtype = getattr(torch, name)
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def sizes_of(spec: TensorSpec, chosen: Mapping[tuple[str, int], int]) -> tuple[int, ...]:
    """Concrete sizes of one input, dynamic dimensions replaced by the chosen ones."""
    return tuple(chosen[spec.name, i] if isinstance(d, Dim) else d for i, d in enumerate(spec.shape or ()))


def example(spec: TensorSpec, sizes: Sequence[int], seed: int, span: tuple[int, int] = (0, 2)) -> torch.Tensor:
    """A seeded example: normal floats, whole numbers from the half-open ``span``, coin flips for booleans."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    dtype = torch_dtype(spec.dtype)
    if dtype is torch.bool:
        mask = torch.randint(0, 2, tuple(sizes), generator=generator).bool()
        if mask.dim() and mask.shape[-1] > 1:  # a row that masks everything is no typical one, and may fail
            mask[..., 0], mask[..., -1] = seed % 2 == 0, seed % 2 == 1
        return mask
    if dtype.is_complex:
        return torch.randn(tuple(sizes), generator=generator, dtype=dtype)
    if dtype.is_floating_point:
        return torch.randn(tuple(sizes), generator=generator).to(dtype)
    return torch.randint(span[0], span[1], tuple(sizes), generator=generator).to(dtype)


def with_symbols(spec: TensorSpec, shape: Sequence[int | Dim]) -> TensorSpec:
    return replace(spec, shape=tuple(shape))
