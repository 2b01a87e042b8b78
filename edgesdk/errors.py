"""Every error a user can meet, and the exit code each leaves with.

    EdgeError
    ├── UsageError        2  the command line or the arguments of a call
    ├── InputError        3  model, recipe, data or bundle: missing, damaged, of another kind, not trusted
    ├── UnsupportedError  4  an operator, dtype or shape that the chosen runtime can't take
    ├── GateError         5  accuracy, fidelity or speed fell short; nothing is shipped
    ├── IntegrityError    6  hash, signature or golden vectors don't match
    ├── DeviceError       7  no device, unauthorised, lost, out of space, crashed there
    └── MissingToolError  8  an optional library or tool is absent

Anything else that escapes is a bug of ours and leaves with 1. Callers write:

    try:
        edgesdk.package("model.pt2", target="android")
    except edgesdk.EdgeError as error:
        print(error.message, error.why, error.fix)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

SCHEMA = "edgesdk.error/1"


class EdgeError(Exception):
    """What failed, why it usually does, and what to do about it.

    Args:
        code: stable identifier in snake_case, equal in Python, Java and Swift (``bundle_corrupt``).
        message: one sentence that names what failed, with the file, operator or option.
        why: the usual cause.
        fix: what the user can do next.
        details: further JSON-serialisable facts (numbers of a gate, candidates of a look-up).
    """

    exit: ClassVar[int] = 1

    def __init__(
        self, code: str, message: str, *, why: str, fix: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.why = why
        self.fix = fix
        self.details = dict(details or {})

    def __str__(self) -> str:
        return f"{self.message} {self.why} {self.fix}"

    def to_json(self) -> dict[str, Any]:
        """The ``edgesdk.error/1`` object that ``--json`` prints."""
        return {
            "schema": SCHEMA,
            "code": self.code,
            "exit": self.exit,
            "message": self.message,
            "why": self.why,
            "fix": self.fix,
            **({"details": self.details} if self.details else {}),
        }


class UsageError(EdgeError):
    exit = 2


class InputError(EdgeError):
    exit = 3


class UnsupportedError(EdgeError):
    exit = 4


class GateError(EdgeError):
    exit = 5


class IntegrityError(EdgeError):
    exit = 6


class DeviceError(EdgeError):
    exit = 7


class MissingToolError(EdgeError):
    exit = 8


_BY_EXIT: dict[int, type[EdgeError]] = {
    kind.exit: kind
    for kind in (
        EdgeError,
        UsageError,
        InputError,
        UnsupportedError,
        GateError,
        IntegrityError,
        DeviceError,
        MissingToolError,
    )
}


def from_json(document: Mapping[str, Any]) -> EdgeError:
    """Rebuild an error that another process reported with :meth:`EdgeError.to_json`."""
    kind = _BY_EXIT.get(int(document["exit"]), EdgeError)
    return kind(
        document["code"],
        document["message"],
        why=document["why"],
        fix=document["fix"],
        details=document.get("details"),
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """The known words nearest to a mistyped one, as a phrase: ``"Did you mean 'android'? Known: …"``."""
    names = sorted(known)
    family = [name for name in names if word.lower() in name.split("-")]  # int8: static-int8, dynamic-int8, …
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.66) if len(family) < 2 else family
    *others, last = [f"'{name}'" for name in close] or [""]
    hint = f"Did you mean {', '.join(others) + ' or ' if others else ''}{last}? " if last else ""
    return f"{hint}Known: {', '.join(names)}."


def missing_library(library: str, extra: str, needed_for: str) -> MissingToolError:
    """An optional Python library is absent; the message holds the exact install command."""
    return MissingToolError(
        "runtime_missing",
        f"{library} is not installed.",
        why=f"It is needed for {needed_for} and is an optional part of edgesdk.",
        fix=f"Install it: pip install 'edgesdk[{extra}]'",
        details={"library": library, "extra": extra},
    )
