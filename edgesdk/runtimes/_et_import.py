"""Import ExecuTorch's compiler in a quarter of its usual time, with the same result.

Two things cost 2 of the 2.5 seconds (executorch 1.5.1): an 8,388-line YAML file read by a parser in pure Python, and
``torch._inductor``, pulled in for a pass that does nothing unless the program holds ``auto_functionalized`` nodes.
Both are replaced only while the import runs and only when the sources are the ones that were tested.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from typing import Any

from edgesdk.runtimes._et_patch import Swap, fingerprint, root, swapped

# executorch 1.5.1 with torch 2.15.0.
SOURCES = ("executorch:exir/dialects/edge/_ops.py", "torch:export/_remove_auto_functionalized_pass.py")
TESTED = "f3e16f0ae1ca793408740f48669a61fb1cd138243d8893ccb157f8037410e9fc"
LAZY = "torch.export._remove_auto_functionalized_pass"


def import_compiler() -> None:
    """Make ``executorch.exir`` importable for free afterwards."""
    if "executorch.exir" in sys.modules:
        return
    if fingerprint(SOURCES) != TESTED:
        importlib.import_module("executorch.exir")
        return
    import torch.export  # noqa: F401 - the parent of the stub
    from ruamel.yaml import YAML

    with swapped([Swap(YAML, "load", _fast_load(YAML.load))]), _lazy_inductor():
        importlib.import_module("executorch.exir")


def _fast_load(plain: Any) -> Any:
    def load(self: Any, stream: Any) -> Any:
        folder = root("executorch")
        edge = folder / "exir/dialects/edge/edge.yaml" if folder else None
        if edge is not None and isinstance(stream, str) and stream == edge.read_text(encoding="utf-8"):
            with contextlib.suppress(ValueError):
                return parse_edge_yaml(stream)
        return plain(self, stream)

    return load


def parse_edge_yaml(text: str) -> list[dict[str, Any]]:
    """The operators of ``edge.yaml``, as ruamel reads them.

    The file is generated and has one form; anything else is refused.

    Raises:
        ValueError: a line is not of that form.
    """
    operators: list[dict[str, Any]] = []
    constraint: dict[str, str] | None = None
    section: Any = None
    for line in text.splitlines():
        body = line.strip()
        if not body or body.startswith("#"):
            continue
        key, colon, value = body.removeprefix("- ").partition(": ")
        if not colon and not key.endswith(":"):
            raise ValueError(line)
        if line.startswith("- "):
            operators.append({key: _word(value)})
            section = None
        elif line.startswith(("  type_alias:", "  type_constraint:")):
            section = operators[-1][key[:-1]] = {} if "alias" in key else []
        elif line.startswith("    ") and isinstance(section, dict):
            section[key] = [_word(w.strip()) for w in _inside(value).split(",")]
        elif line.startswith(("  - ", "    ")) and isinstance(section, list):
            if line.startswith("  - "):
                constraint = {}
                section.append(constraint)
            if constraint is None or not section:
                raise ValueError(line)
            constraint[key] = _word(value)
        elif line.startswith("  ") and line[2] != " ":
            operators[-1][key] = _word(value)
        else:
            raise ValueError(line)
    return operators


def _word(value: str) -> str:
    if not value or not all(c.isalnum() or c in "_:." for c in value) or value[0].isdigit() or value[0] in ".:":
        raise ValueError(value)
    if value.lower() in ("true", "false", "null", "yes", "no", "on", "off"):
        raise ValueError(value)
    return value


def _inside(value: str) -> str:
    if not (value.startswith("[") and value.endswith("]")):
        raise ValueError(value)
    return value[1:-1]


@contextlib.contextmanager
def _lazy_inductor() -> Any:
    """Stand in for the module that pulls ``torch._inductor`` in, while the import runs."""
    if LAZY in sys.modules:
        yield
        return
    stub = types.ModuleType(LAZY)
    vars(stub)["unsafe_remove_auto_functionalized_pass"] = remove_auto_functionalized
    sys.modules[LAZY] = stub
    try:
        yield
    finally:
        del sys.modules[LAZY]


def remove_auto_functionalized(program: Any) -> Any:
    """What torch's pass of that name does, without its imports when there is nothing to remove."""
    import torch
    from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2

    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    targets = {node.target for module in modules for node in module.graph.nodes if node.op == "call_function"}
    if targets & {auto_functionalized, auto_functionalized_v2, torch.ops.aten.copy_.default}:
        return importlib.import_module(LAZY).unsafe_remove_auto_functionalized_pass(program)
    hook = program.graph_signature.get_replace_hook()
    with program.graph_module._set_replace_hook(hook):
        program.graph.eliminate_dead_code()
    return program
