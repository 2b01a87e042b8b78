"""Verbs that are documented and not in this version: they say so, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgesdk.cli._app import Common, verb

if TYPE_CHECKING:
    from edgesdk.cli._output import Output


def later(name: str, text: str, instead: str) -> Callable[[], Any]:
    """The command of a verb that leaves with exit 8."""

    @dataclass(frozen=True, kw_only=True)
    class Options(Common):
        words: Annotated[list[str] | None, typer.Argument(metavar="...", hidden=True)] = None

    def run(options: Options, out: Output) -> int:
        from edgesdk.recipe import not_in_this_version

        raise not_in_this_version(f"'edgesdk {name}'", instead)

    Options.__doc__ = f"{text}\n\nNot in this version of edgesdk. {instead}"
    return verb(Options, run, name, loose=True)
