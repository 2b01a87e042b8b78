"""Tensors by name out of a file, without running anything that the file brings along."""

from __future__ import annotations

import _compat_pickle
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgesdk.errors import InputError, missing_library
from edgesdk.importing import _pickle
from edgesdk.importing._safety import force_weights_only, quiet_torch
from edgesdk.importing._sniff import is_safetensors, scan_file
from edgesdk.importing._zips import damaged

if TYPE_CHECKING:
    import torch

# Parts of a training checkpoint whose tensors are no weights.
_NOT_WEIGHTS: Final = (
    "optim", "sched", "scaler", "rng", "random_state", "callbacks", "loops", "metrics", "history", "sampler", "loss",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Tensors by name that lie together in a file; ``key`` is the path to them, ``""`` for the outermost level."""

    key: str
    tensors: Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Checkpoint:
    """The tables of a file, and the outermost keys that hold no weights (``optimizer``, ``epoch``)."""

    tables: tuple[Table, ...]
    others: tuple[str, ...] = ()


def read_weights(path: Path) -> Checkpoint:
    """Every table of weights in a ``.safetensors`` file or a file of ``torch.save``, on the CPU.

    Classes that a training script left in the file (argument namespaces, meters) are replaced by inert stand-ins.

    Raises:
        InputError: the file is damaged, or a pickle in it reaches for functions that run code.
        MissingToolError: safetensors isn't installed.
    """
    with path.open("rb") as file:
        head = file.read(64)
    if is_safetensors(head):
        return Checkpoint((Table("", _read_safetensors(path)),))
    found = scan_file(path)
    refuse_dangerous(path, found)
    keys = [key for key, node in _pickle.walk_dicts(found.top) if _pickle.tensor_keys(node) and _may_be_weights(key)]
    content = _load(path, found)
    tables = tuple(Table(key, _tensors(_at(content, key))) for key in keys)
    used = {key.partition(".")[0] for key in keys}
    others = (
        () if "" in used or not isinstance(content, Mapping) else tuple(str(k) for k in content if str(k) not in used)
    )
    return Checkpoint(tuple(table for table in tables if table.tensors), others)


def refuse_dangerous(path: Path, found: _pickle.Scan) -> None:
    """Refuse a pickle that names functions which run code, although they would not be run.

    Raises:
        InputError: it does.
    """
    if found.dangerous:
        raise InputError(
            "unsafe_pickle", f"{path} is refused: its pickle calls {', '.join(found.dangerous[:3])}.",
            why="Those functions can run programs or touch files; no weights or network needs them, an attack does.",
            fix="Don't load this file anywhere. Get the weights from a source you trust, best as .safetensors.",
            details={"functions": list(found.dangerous)},
        )  # fmt: skip


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as exc:
        raise missing_library("safetensors", "torch", f"reading {path}") from exc
    try:
        tensors: dict[str, torch.Tensor] = load_file(path, device="cpu")
    except (SafetensorError, ValueError, KeyError, OSError) as exc:
        raise damaged(path, f"safetensors can't read it ({exc})") from exc
    return tensors


def _may_be_weights(key: str) -> bool:
    return not any(word in part.lower() for part in key.split(".") for word in _NOT_WEIGHTS)


def _at(content: Any, key: str) -> Any:
    """Follow a path of :func:`_pickle.walk_dicts`; keys may have dots themselves."""
    if not key or not isinstance(content, Mapping):
        return content
    for name, value in content.items():
        if isinstance(name, str) and (key == name or key.startswith(f"{name}.")):
            found = _at(value, key[len(name) + 1 :])
            if isinstance(found, Mapping):
                return found
    return None


def _tensors(value: Any) -> dict[str, torch.Tensor]:
    import torch

    items = value.items() if isinstance(value, Mapping) else ()
    return {name: t.detach() for name, t in items if isinstance(name, str) and isinstance(t, torch.Tensor)}


# --- torch.load with stand-ins ----------------------------------------------------------------------------------------


class _StandIn:
    """Takes the place of a class that isn't needed: it accepts whatever a pickle gives it and keeps nothing."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Arguments are dropped."""

    def __setstate__(self, state: Any) -> None:
        """State is dropped."""


class _MappingStandIn:
    """For mappings of other classes (``easydict.EasyDict``): becomes a plain one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return OrderedDict()


class _ListStandIn:
    """For sequences of other classes (``collections.deque``): becomes a list."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return []


def _load(path: Path, found: _pickle.Scan) -> Any:
    import torch

    stand_ins: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = list(_stand_ins(found))
    mapped = _is_zip(path)
    try:
        with quiet_torch(), force_weights_only(), torch.serialization.safe_globals(stand_ins):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as exc:
        raise InputError(
            "unreadable_checkpoint", f"{path} can't be read safely: {_first_line(exc)}.",
            why="It holds objects that only unpickling could rebuild, mixed with the weights.",
            fix="Save the weights alone, in the program that made it: torch.save(model.state_dict(), 'weights.pth')",
            details={"classes": list(found.globals)},
        ) from exc  # fmt: skip
    except Exception as exc:  # torch raises nearly every built-in class for damaged archives
        raise damaged(path, f"torch can't read its tensors ({_first_line(exc)})") from exc


def _stand_ins(found: _pickle.Scan) -> Iterator[tuple[type, str]]:
    """One fresh class per name: torch tells them apart by identity. Its own classes keep precedence."""
    for name in found.globals:
        kind: type = _StandIn
        if name in found.dict_like or name == "collections.defaultdict":
            kind = _MappingStandIn
        elif name in found.list_like or name == "collections.deque":
            kind = _ListStandIn
        yield type("StandIn", (kind,), {}), _modern(name)


def _modern(path: str) -> str:
    """Python 2's name of a class in Python 3, as torch's unpickler translates it."""
    module, _, name = path.rpartition(".")
    if (module, name) in _compat_pickle.NAME_MAPPING:
        return ".".join(_compat_pickle.NAME_MAPPING[module, name])
    return f"{_compat_pickle.IMPORT_MAPPING.get(module, module)}.{name}"


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0][:200].rstrip(".")
