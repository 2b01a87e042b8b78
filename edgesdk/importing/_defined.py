"""Whether a Python file can hold a name, read without running it: for refusals before any work."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from edgesdk.importing._user_code import guarded

_DYNAMIC = frozenset({"exec", "eval", "globals", "vars", "setattr", "__getattr__", "__dict__", "import_module"})
"""Who uses these may define any name."""


def may_define(file: Path, member: str, shown: str) -> bool:
    """False only when running the file certainly leaves no ``member`` (of ``a.b``, the first part).

    Raises:
        InputError: it is no Python, in the same words as when it is run.
    """
    tree: ast.Module = guarded(lambda: ast.parse(file.read_bytes(), str(file.resolve())), shown, file)
    for node in ast.walk(tree):
        words = (getattr(node, field, None) for field in ("id", "attr", "name"))
        if _DYNAMIC & {word for word in words if isinstance(word, str)}:
            return True
    return member.partition(".")[0] in set(_bound(tree)) or "*" in set(_bound(tree))


def _bound(tree: ast.AST) -> Iterator[str]:
    """Names that statements outside of functions and classes bind, and those that functions declare global."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            yield from (name for part in ast.walk(node) if isinstance(part, ast.Global) for name in part.names)
            continue
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        yield from _bound(node)
