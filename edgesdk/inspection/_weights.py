"""Files that hold weights or pickles, read from their headers: no torch, nothing unpickled, no weight loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgesdk.errors import InputError
from edgesdk.importing import _pickle
from edgesdk.importing._sniff import is_safetensors, read_safetensors_header, scan_file

# State that layers keep and nobody trains (BatchNorm, embeddings' position numbers, attention masks).
_BUFFERS: Final = ("running_mean", "running_var", "num_batches_tracked", "position_ids", "token_type_ids", "attn_mask",
                   "relative_position_index", "inv_freq")  # fmt: skip
_TRAINED: Final = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
# torch's storage classes; the last part of their name says the type: torch.FloatStorage.
_FLOAT_STORAGES: Final = ("FloatStorage", "HalfStorage", "BFloat16Storage", "DoubleStorage", "CFloatStorage")
# Parts of a checkpoint that hold tensors which are no weights, or a second set of them.
_BESIDE: Final = ("optim", "sched", "scaler", "rng", "callbacks", "loops", "metrics", "history", "ema", "teacher")


@dataclass(frozen=True)
class Weight:
    """One tensor of a file, known by name and size; ``storage`` is equal for tensors that share memory."""

    name: str
    shape: tuple[int, ...]
    trained: bool
    storage: Any = None


@dataclass(frozen=True)
class WeightFacts:
    """Weights without a network.

    Attributes:
        parameters: numbers that look trained: floats that are no running statistics, shared ones once.
        layers: the first and last weights, name and size.
    """

    parameters: int
    tensors: int
    table: str
    layers: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]


def read_weights(path: Path, key: str | None = None) -> WeightFacts:
    """Weights of a ``.safetensors`` file or of what ``torch.save`` wrote.

    Raises:
        InputError: it is damaged.
    """
    with path.open("rb") as file:
        head = file.read(64)
    if is_safetensors(head):
        return _facts("", _from_safetensors(path))
    tables = dict(_tables(path))
    if not tables:
        return _facts("", [])
    chosen = key if key in tables else max(tables, key=lambda name: _rank(name, tables[name]))
    return _facts(chosen, tables[chosen])


def _rank(name: str, weights: list[Weight]) -> tuple[bool, int]:
    return not any(word in name.lower() for word in _BESIDE), sum(math.prod(w.shape) for w in weights)


def _facts(table: str, weights: list[Weight]) -> WeightFacts:
    trained = {w.storage if w.storage is not None else w.name: w for w in weights if w.trained}
    named = [f"{w.name} [{', '.join(map(str, w.shape))}]" for w in weights]
    return WeightFacts(
        parameters=sum(math.prod(w.shape) for w in trained.values()),
        tensors=len(weights),
        table=table,
        layers=tuple(named if len(named) <= 4 else [*named[:2], *named[-2:]]),
        shapes={w.name: w.shape for w in weights},
    )


def _from_safetensors(path: Path) -> list[Weight]:
    weights = []
    for name, entry in read_safetensors_header(path).items():
        shape = entry.get("shape")
        if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
            raise InputError(
                "damaged_file", f"{path} is damaged: its entry '{name}' has no sizes.", why="The header was changed.",
                fix="Get the file again.",
            )  # fmt: skip
        weights.append(Weight(name, tuple(shape), entry.get("dtype") in _TRAINED and not _is_buffer(name)))
    return weights


def _is_buffer(name: str) -> bool:
    return name.rpartition(".")[2] in _BUFFERS


def _tables(path: Path) -> Iterable[tuple[str, list[Weight]]]:
    found = scan_file(path)
    for place, node in _pickle.walk_dicts(found.top):
        values = node.mapping()
        weights = [_weight(name, values[name]) for name in _pickle.tensor_keys(node)]
        if weights:
            yield place, weights


def _weight(name: str, node: _pickle.Node) -> Weight:
    shape = _pickle.tensor_shape(node) or ()
    inner = node
    if node.callee.startswith("torch._utils._rebuild_parameter") and isinstance(node.args, tuple) and node.args:
        inner = node.args[0] if isinstance(node.args[0], _pickle.Node) else node
    args = inner.args if isinstance(inner.args, tuple) else ()
    storage = _storage(args[0]) if args else None
    kind = str(storage[1]) if storage and len(storage) > 2 else ""
    place = (storage[2], args[1]) if storage and len(storage) > 2 and len(args) > 1 else None
    # UntypedStorage (quantized weights and odd dtypes) says no type: it counts.
    trained = not _is_buffer(name) and (kind.rpartition(".")[2] in _FLOAT_STORAGES or "Storage" not in kind)
    return Weight(name, shape, trained, (place, shape) if place else None)


def _storage(value: Any) -> tuple[Any, ...] | None:
    """torch's persistent id ``("storage", class, key, device, count)``, behind a node or as it is."""
    args = value.args if isinstance(value, _pickle.Node) else value
    while isinstance(args, tuple) and len(args) == 1:
        args = args[0]
    if isinstance(args, tuple) and args and args[0] == "storage":
        return tuple(a.path if isinstance(a, _pickle.Global) else a for a in args)
    return None


def candidates(shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """``torchvision:resnet18`` …: architectures with layers of these names, the likeliest family only."""
    from edgesdk.importing._families import _FAMILIES, _PREFIXES

    for prefix in ("", *_PREFIXES):
        names = {name.removeprefix(prefix) for name in shapes} if prefix else set(shapes)
        for needed, library, members in _FAMILIES:
            if all(name in names for name in needed):
                return tuple(f"{library}:{member}" for member in members)
    return ()


# --- pickled modules --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PickleFacts:
    """A pickled module: its class, the user's classes it needs, and functions in it that run code."""

    module: str | None
    classes: tuple[str, ...]
    dangerous: tuple[str, ...]


def read_pickle(path: Path) -> PickleFacts:
    """What unpickling would call, from the opcodes; nothing is called.

    Raises:
        InputError: the file is damaged.
    """
    found = scan_file(path)
    own = [
        g for g in found.globals if g.split(".")[0] not in ("torch", "collections", "builtins", "__builtin__", "numpy")
    ]
    return PickleFacts(_pickle.find_module(found.top), tuple(own), found.dangerous)


# --- Hugging Face folders ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FolderFacts:
    """A Hugging Face folder: what its configuration says, and the weights' sizes."""

    model_type: str
    architectures: tuple[str, ...]
    parameters: int | None
    labels: int
    own_code: bool


def read_folder(folder: Path) -> FolderFacts:
    """Read ``config.json`` and the headers of the weight files.

    Raises:
        InputError: the configuration is no JSON object, or a weight file is damaged.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise _bad_config(path, str(exc)) from exc
    if not isinstance(config, dict):
        raise _bad_config(path, "it is no JSON object")
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    named = config.get("architectures")
    return FolderFacts(
        model_type=str(config.get("model_type") or "unknown"),
        architectures=tuple(map(str, named)) if isinstance(named, list) else (),
        parameters=sum(read_weights(file).parameters for file in files) if files else None,
        labels=len(config["id2label"]) if isinstance(config.get("id2label"), dict) else 0,
        own_code=bool(config.get("auto_map")),
    )


def _bad_config(path: Path, problem: str) -> InputError:
    return InputError(
        "damaged_file", f"{path} can't be read: {problem}.", why="It is the description of the model, a JSON object.",
        fix="Download the folder again: hf download ORG/MODEL --local-dir FOLDER",
    )  # fmt: skip
