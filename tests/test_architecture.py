"""ARCHITECTURE §10 as rules over the syntax tree: imports point one way, and some deeds have one place."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "edgesdk"
MODULES = sorted(ROOT.rglob("*.py"))
ENGINES = {"executorch", "onnxruntime"}

# From the bottom up. A module may import from its own layer and from those below; what is not listed is a step.
LAYERS = {
    "errors": 0, "_version": 0, "registry": 1, "artifacts": 1,
    "recipe": 3, "recipe_text": 3, "building": 4, "assembly": 4, "planning": 4, "output": 4,
    "variants": 4, "making": 4, "pipeline": 5, "steps": 5, "verdict": 6, "api": 6, "cli": 7, "__main__": 8,
}  # fmt: skip
STEP = 2


def name_of(path: Path) -> str:
    """``edgesdk/runtimes/onnx.py`` → ``runtimes.onnx``; the package itself is empty."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> int:
    return LAYERS.get(module.split(".")[0], STEP)


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported when the code runs, at module level or inside functions; not for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for other in node.orelse:
                yield from imports(other)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base
            # `from edgesdk import pipeline` names a module in the second half.
            yield from (f"{base}.{alias.name}" for alias in node.names if base == "edgesdk")
        else:
            yield from imports(node)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    mine = name_of(path)
    if not mine:
        return  # the package's own names are loaded when they are used
    wrong = []
    for imported in imports(parsed(path)):
        package, _, other = imported.partition(".")
        if package == "edgesdk" and other and layer(other) > layer(mine):
            wrong.append(imported)
    assert wrong == [], f"{mine} imports from above itself"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_runtimes_import_an_engine(path: Path) -> None:
    """And the packages of ``quantize`` that carry a scheme out for one of them."""
    found = {imported.split(".")[0] for imported in imports(parsed(path))} & ENGINES
    assert not found or name_of(path).startswith(("runtimes.", "quantize._")), f"{name_of(path)} imports {found}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_command_line_prints_and_leaves(path: Path) -> None:
    if name_of(path).split(".")[0] in ("cli", "__main__"):
        return
    calls = [ast.unparse(node.func) for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    # A worker's last word is its exit code; it prints nothing to people.
    forbidden = {"print", "exit", "quit", "rprint"} | (
        set() if name_of(path) == "_worker" else {"sys.exit", "os._exit"}
    )
    assert forbidden & set(calls) == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_is_longer_than_a_reader_s_patience(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_inputs_are_not_checked_by_assert(path: Path) -> None:
    """Asserts vanish under ``python -O``."""
    lines = [node.lineno for node in ast.walk(parsed(path)) if isinstance(node, ast.Assert)]
    assert lines == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_failure_is_swallowed(path: Path) -> None:
    """``except Exception: pass``, and a bare ``except``."""
    wrong = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            silent = all(isinstance(part, (ast.Pass, ast.Continue)) for part in node.body)
            if node.type is None or (broad and silent):
                wrong.append(node.lineno)
    assert wrong == []


def test_the_whole_surface_imports_without_torch() -> None:
    """Members are found by scanning, options are parsed and plans are made before anything heavy is loaded."""
    verbs = [name_of(path) for path in MODULES if name_of(path).startswith("cli.")]
    names = [
        "importing",
        "runtimes",
        "targets",
        "preprocess",
        "bundle",
        "report",
        "inspection",
        "pipeline",
        "api",
        *verbs,
    ]
    code = (
        f"import sys, importlib\nfor name in {names!r}: importlib.import_module('edgesdk.' + name)\n"
        "import edgesdk.runtimes, edgesdk.targets, edgesdk.importing, edgesdk.report\n"
        "edgesdk.runtimes.runtimes(); sys.modules['edgesdk.targets'].targets(); sys.modules['edgesdk.importing'].importers()\n"
        "sys.modules['edgesdk.report'].formats()\n"
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'executorch', 'torchvision', 'transformers') if m in sys.modules])"
    )
    code = code.replace("edgesdk.runtimes.runtimes()", "sys.modules['edgesdk.runtimes'].runtimes()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
