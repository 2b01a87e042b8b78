"""TorchScript: read by ``torch.jit.load``, which runs no Python; Lite archives by their bytecode alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import TensorSpec
from edgesdk.inspection._result import UNKNOWN

if TYPE_CHECKING:
    import torch

# Steps of the language, not of the network: constants, attributes, lists, type checks.
_SHOWN = ("If", "Loop", "CallMethod", "CallFunction")


@dataclass(frozen=True)
class ScriptFacts:
    """What a TorchScript module says about itself; sizes aren't stored in it."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: int
    operators: Mapping[str, int]


def read_script(script: torch.jit.ScriptModule) -> ScriptFacts:
    """Read a loaded module; nothing of it is called."""
    schema = script.forward.schema  # type: ignore[attr-defined]  # made by torch.jit
    given = schema.arguments[1:]  # the first is the module, whatever its author calls it
    made = [str(a.type) for a in schema.returns]
    return ScriptFacts(
        inputs=tuple(TensorSpec(a.name, _dtype(str(a.type)), None) for a in given),
        outputs=_outputs(made[0] if made else ""),
        parameters=sum(p.numel() for p in script.parameters()),
        operators=Counter(_name(node) for node in _walk(script.inlined_graph) if _counts(node)),
    )


def _dtype(kind: str) -> str:
    return {"int": "int64", "bool": "bool", "float": "float64"}.get(kind, UNKNOWN)


def _outputs(kind: str) -> tuple[TensorSpec, ...]:
    """From the declared type: ``Tensor``, ``Tuple[Tensor, Tensor]``; a dictionary's keys aren't declared."""
    if kind.startswith("Tuple[") and kind.count("[") == 1:
        words = [w.strip() for w in kind[6:-1].split(",")]
        return tuple(TensorSpec(f"output_{i}", _dtype(w), None) for i, w in enumerate(words))
    return (TensorSpec("output", _dtype(kind), None),) if kind == "Tensor" else ()


def _walk(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _walk(inner)


def _counts(node: Any) -> bool:
    space, _, name = node.kind().partition("::")
    return space != "prim" or name in _SHOWN


def _name(node: Any) -> str:
    return str(node.kind()).replace("::", ".", 1)


def load_script(path: Path) -> torch.jit.ScriptModule:
    """The module of a TorchScript archive.

    Raises:
        InputError: it is damaged or needs operators that aren't here.
    """
    from edgesdk.artifacts import Source
    from edgesdk.importing import Located
    from edgesdk.importing.torchscript import _read

    return _read(Located("torchscript", str(path), Source(path.stem, "torchscript"), path=path))


def lite_details(path: Path) -> tuple[dict[str, int], dict[str, Any], Mapping[str, int]]:
    """Operators (bytecode lists each once, whatever its number of calls), version, and arguments by full name.

    torch isn't needed.

    Raises:
        InputError: it is damaged.
    """
    from edgesdk.runtimes._ts_save import RELEASES, read_bytecode

    found = read_bytecode(path)
    operators = Counter(name.partition(".")[0].replace("::", ".", 1) for name in found.operators)
    details = {
        "bytecode": found.version,
        "needs_pytorch_mobile": RELEASES.get(found.version),
        "stateful": found.stateful,
    }
    return dict(operators), details, found.operators
