"""``edgesdk cache``: what was lowered before and is kept."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from edgesdk.cli._app import Common, verb
from edgesdk.cli._options import choices
from edgesdk.errors import UsageError, nearest

if TYPE_CHECKING:
    from edgesdk.cli._output import Output

_ACTIONS = ("show", "clean")
_complete = choices(lambda: _ACTIONS)  # named here: an annotation is read where the module's names are not known
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Show the cache of lowered files, or clean it.

    The cache lies in the user's cache folder (EDGESDK_CACHE_DIR puts it elsewhere); it may be removed at any time.
    """

    action: Annotated[str, typer.Argument(metavar="[show|clean]", help="What to do.", autocompletion=_complete)] = (
        "show"
    )
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size", metavar="SIZE", help="With clean: keep the most recently used up to this size, e.g. 2GB."
        ),
    ] = None


def run(options: Options, out: Output) -> int:
    if options.action not in _ACTIONS:
        raise UsageError(
            "unknown_choice", f"There is no 'edgesdk cache {options.action}'.", why=nearest(options.action, _ACTIONS),
            fix="Write 'edgesdk cache show' or 'edgesdk cache clean'.",
        )  # fmt: skip
    if options.max_size is not None and options.action != "clean":
        raise UsageError(
            "bad_usage", "--max-size belongs to 'edgesdk cache clean'.", why="Showing the cache removes nothing.",
            fix=f"Write 'edgesdk cache clean --max-size {options.max_size}'.",
        )  # fmt: skip
    limit = _bytes(options.max_size) if options.max_size is not None else 0
    from edgesdk import units
    from edgesdk.cache import Cache

    cache = Cache()
    freed = cache.clean(limit) if options.action == "clean" else None
    stats = cache.stats()
    document = {"schema": "edgesdk.cache/1", **asdict(stats), "path": str(stats.path)}
    if freed is not None:
        document["freed_bytes"] = freed
    lines = [
        f"{stats.path}",
        f"  {stats.entries} results, {units.size(stats.bytes)} of at most {units.size(stats.max_bytes)}",
    ]
    if freed is not None:
        lines.append(f"  freed {units.size(freed)}")
    out.answer(document, lambda console: console.print("\n".join(lines), markup=False))
    return 0


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if not found:
        raise UsageError(
            "bad_value", f"--max-size {text!r} is no size.", why="A size is a number with kB, MB or GB.",
            fix="Write e.g. --max-size 2GB.",
        )  # fmt: skip
    return int(float(found[1]) * _UNITS[found[2]])


COMMAND = verb(Options, run, "cache")
