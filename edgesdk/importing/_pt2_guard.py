"""What must hold before torch may deserialise a ``.pt2``.

``torch.export.load`` unpickles parts of the archive, feeds text to ``eval`` (through sympy) and ``exec`` (guards, and
the graph's generated Python), and imports modules by name. So the graph's JSON is checked against the small language
that torch itself writes; whatever falls outside is refused. The checks read the document only.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD: Final = re.compile(r"(?:[A-Za-z_]\w*)?", re.ASCII)
# Names that end up inside quotes in generated Python: anything but quotes, backslashes and control characters.
_QUOTABLE: Final = re.compile(r"[^\"'\\\x00-\x1f\x7f{}]*")
_SYMBOL: Final = re.compile(r"[a-z]+\d+(?:_\d+)?", re.ASCII)
_OPERATOR: Final = re.compile(r"torch\.ops\.(?P<space>[a-z]\w*)\.(?P<op>\w+)(?:\.\w+)?", re.ASCII)
_SYMBOLIC_CALL: Final = re.compile(r"torch\.(?:_?sym_\w+)|math\.[a-z]\w*", re.ASCII)
_PYTHON_OPERATORS: Final = _words(
    "abs add and_ eq floordiv ge getitem gt index inv invert le lshift lt mod mul ne neg not_ or_ pos pow rshift sub "
    "truediv xor"
)
NAMESPACES: Final = _words("aten prim prims higher_order quantized quantized_decomposed _quantized torchvision torchao")
_FORBIDDEN_OPERATORS: Final = frozenset({"aten.from_file", "aten._reinterpret_tensor", "aten.set_", "aten.set"})
_WORD_KEYS: Final = frozenset({"name", "as_name"})
_QUOTED_KEYS: Final = frozenset({
    "parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name", "user_input_name", "fqn", "class_fqn",
})  # fmt: skip
_FUNCTIONS: Final = _words(
    "Symbol Integer Float Rational Add Mul Pow Max Min Mod Eq Ne Lt Le Gt Ge And Or Not Abs Equality Unequality "
    "StrictLessThan LessThan StrictGreaterThan GreaterThan floor ceiling sqrt log exp sin cos FloorDiv ModularIndexing "
    "Where PythonMod CleanDiv CeilToInt FloorToInt CeilDiv LShift RShift PowByNatural FloatPow FloatTrueDiv "
    "IntTrueDiv IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt RoundDecimal ToFloat Identity "
    "Piecewise ExprCondPair Tuple"
)
_CONSTANTS: Final = _words("oo zoo nan int_oo inf true false True False Infinity NegativeInfinity")
_GUARD_NAMES: Final = _words("L math inf max min abs int float bool round pow sym_sum cast_symbool_to_symint_guardless")
_GUARD_ATTRIBUTES: Final = _words(
    "size stride storage_offset numel item dim shape isnan inf floor ceil trunc sqrt log log2 pow ndim"
)
_SYNTAX: Final = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.keyword, ast.Name, ast.Constant,
    ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Tuple,
)  # fmt: skip
_MAX_EXPRESSION: Final = 20_000
_MAX_EXPONENT: Final = 64
_FACTORY_TYPES: Final = _words("list dict int float set tuple str bool")


def objections(document: Any) -> Iterator[str]:
    """What a deserialiser must not see, one phrase each; empty for everything that ``torch.export.save`` writes."""
    stack: list[tuple[str, Any]] = [("", document)]
    while stack:
        key, value = stack.pop()
        if isinstance(value, Mapping):
            stack += value.items()
        elif isinstance(value, list):
            stack += [(key, item) for item in value]
        elif isinstance(value, str):
            problem = _objection(key, value)
            if problem:
                yield problem
    if any(True for node in _nodes(document, "custom_obj_values") if node):
        yield "it holds custom objects, which would have to be unpickled"


def operators(document: Any) -> set[str]:
    """Targets of every call in the graph and its subgraphs: ``torch.ops.aten.conv2d.default``."""
    return {target for target in _nodes(document, "target") if isinstance(target, str)}


def unknown_namespaces(targets: Iterable[str]) -> list[str]:
    """Custom operators among the targets, as ``namespace::operator``."""
    found = [match for target in targets if (match := _OPERATOR.fullmatch(target))]
    return sorted({f"{m['space']}::{m['op']}" for m in found if m["space"] not in NAMESPACES})


def _nodes(document: Any, wanted: str) -> Iterator[Any]:
    stack: list[Any] = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            if wanted in value:
                yield value[wanted]
            stack += value.values()
        elif isinstance(value, list):
            stack += value


def _objection(key: str, text: str) -> str | None:
    shown = repr(text[:60])
    if key in _WORD_KEYS or key == "forward_arg_names":
        return None if _WORD.fullmatch(text) else f"the name {shown} is no name"
    if key in _QUOTED_KEYS:
        return None if _QUOTABLE.fullmatch(text) else f"the name {shown} holds quotes or control characters"
    if key in ("target", "as_operator"):
        return None if is_safe_target(text) else f"it calls {shown}, which is no operator of a network"
    if key == "expr_str":
        return None if is_safe_expression(text) else f"the size {shown} is no arithmetic expression"
    if key == "guards_code":
        return None if is_safe_guard(text) else f"the guard {shown} is no comparison of sizes"
    if key in ("in_spec", "out_spec"):
        return None if _is_safe_spec(text) else "the nesting of its inputs or outputs names classes to import"
    return None


def is_safe_target(target: str) -> bool:
    """Whether a node's target is an operator, a symbolic-size function or a Python arithmetic operator."""
    if target.startswith("_operator."):
        return target.removeprefix("_operator.") in _PYTHON_OPERATORS
    match = _OPERATOR.fullmatch(target)
    if match:
        return f"{match['space']}.{match['op']}" not in _FORBIDDEN_OPERATORS
    return bool(_SYMBOLIC_CALL.fullmatch(target))


def is_safe_expression(text: str) -> bool:
    """Whether sympy may evaluate the text: arithmetic on symbols and numbers, with the functions torch writes."""
    tree = _parse(text)
    return tree is not None and all(_fits_expression(node) for node in ast.walk(tree))


def is_safe_guard(text: str) -> bool:
    """Whether the text only compares sizes and values of inputs: ``L['x'].size()[0] == 3``."""
    tree = _parse(text)
    return tree is not None and all(_fits_guard(node) for node in ast.walk(tree))


def _parse(text: str) -> ast.Expression | None:
    if len(text) > _MAX_EXPRESSION:
        return None
    try:
        return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _fits_expression(node: ast.AST) -> bool:
    if not isinstance(node, _SYNTAX):
        return False
    if isinstance(node, ast.Name):
        return node.id in _FUNCTIONS or node.id in _CONSTANTS or bool(_SYMBOL.fullmatch(node.id))
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
            return False
        return node.func.id not in ("Pow", "PowByNatural") or len(node.args) == 2 and _is_small(node.args[1])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        return _is_small(node.right)
    return _fits_constant(node)


def _fits_guard(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _GUARD_ATTRIBUTES
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, (ast.Constant, ast.Name, ast.UnaryOp))
    if not isinstance(node, _SYNTAX):
        return False
    if isinstance(node, ast.Name):
        return node.id in _GUARD_NAMES or node.id in _FUNCTIONS or node.id in _CONSTANTS
    if isinstance(node, ast.Call):
        return isinstance(node.func, (ast.Attribute, ast.Name))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        return _is_small(node.right)
    return _fits_constant(node)


def _fits_constant(node: ast.AST) -> bool:
    if not isinstance(node, ast.Constant):
        return True
    if isinstance(node.value, str):
        return bool(_QUOTABLE.fullmatch(node.value)) and len(node.value) < 200
    return isinstance(node.value, (int, float)) or node.value is None


def _is_small(node: ast.expr) -> bool:
    """A power's exponent, written as a number or as ``Integer(2)``: big ones would keep sympy busy for ever."""
    while isinstance(node, (ast.Call, ast.UnaryOp)):
        if isinstance(node, ast.UnaryOp):
            node = node.operand
        elif (
            len(node.args) >= 1 and isinstance(node.func, ast.Name) and node.func.id in ("Integer", "Float", "Rational")
        ):
            node = node.args[0]
        else:
            return False
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and abs(node.value) <= _MAX_EXPONENT


def _is_safe_spec(text: str) -> bool:
    """A pytree spec without enumerations (torch imports their module) and with harmless default factories."""
    if "__enum__" in text:
        return False
    try:
        document = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return False
    for context in _nodes(document, "default_factory_name"):
        if context not in _FACTORY_TYPES:
            return False
    if any(module != "builtins" for module in _nodes(document, "default_factory_module")):
        return False
    return all(_QUOTABLE.fullmatch(key) for key in _context_keys(document))


def _context_keys(document: Any) -> Iterator[str]:
    """Keys of dictionaries in a spec; a context is JSON inside JSON."""
    for context in _nodes(document, "context"):
        try:
            keys = json.loads(context) if isinstance(context, str) else context
        except (ValueError, RecursionError):
            yield '"'  # unreadable: let it be refused
            continue
        yield from (key for key in (keys if isinstance(keys, list) else ()) if isinstance(key, str))
