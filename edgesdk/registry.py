"""Members of a folder, found by scanning: a new runtime, method or target is one new file.

Content files have plain names; machinery starts with an underscore and is skipped.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TypeVar

T = TypeVar("T")


def collect(package: str, attribute: str, kind: type[T]) -> dict[str, T]:
    """Members of ``package``: the constant ``attribute`` of each content module, by the member's ``name``.

    The modules themselves must be cheap to import: heavy imports sit inside the functions that need them.

    Raises:
        TypeError: a module has no such constant or one of another kind, or two members share a name.
    """
    parent = importlib.import_module(package)
    members: dict[str, T] = {}
    for found in sorted(pkgutil.iter_modules(parent.__path__), key=lambda m: m.name):
        if found.name.startswith("_"):
            continue
        member = getattr(importlib.import_module(f"{package}.{found.name}"), attribute, None)
        if not isinstance(member, kind):
            raise TypeError(f"{package}.{found.name} has no {attribute} of type {kind.__name__}")
        name: str = getattr(member, "name")  # noqa: B009 - T is any class with a name
        if name in members:
            raise TypeError(f"two members of {package} are called {name!r}")
        members[name] = member
    return members
