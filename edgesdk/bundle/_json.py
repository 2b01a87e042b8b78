"""JSON as bundles hold it: one way to write a document, and nothing ambiguous or oversized when reading."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 32
MAX_INTEGER = 2**63 - 1
_DIGITS = 20


def encode(document: Any) -> bytes:
    """UTF-8, no spaces, keys in the document's own order, no NaN or infinity.

    Raises:
        ValueError: a number is not finite, or a string holds half a surrogate pair.
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8")


def decode(data: bytes) -> Any:
    """Read one document.

    Raises:
        ValueError: no UTF-8, no JSON, a key twice, a number outside the signed 64-bit or the finite float range,
            nesting deeper than ``MAX_DEPTH``, half a surrogate pair.
    """
    try:
        document = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_real,
            parse_constant=_constant,
        )
    except RecursionError as exc:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from exc
    _walk(document)
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _integer(text: str) -> int:
    if len(text) > _DIGITS or not -MAX_INTEGER <= int(text) <= MAX_INTEGER:
        raise ValueError("a whole number is outside the 64-bit range")
    return int(text)


def _real(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is outside the range of a double")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _walk(document: Any) -> None:
    """Iterative, so that depth is bounded by us and not by the interpreter's stack."""
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH + 1:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.keys())
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str) and not value.isascii():
                value.encode("utf-8")
        level = below
