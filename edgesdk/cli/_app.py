"""The Typer application: verbs are imported when they are used, options are data classes."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from edgesdk.cli._verbs import VERBS, root_help
from edgesdk.errors import UsageError, nearest

if TYPE_CHECKING:
    from edgesdk.cli._output import Output


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every verb."""

    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout.", rich_help_panel="Every verb")
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress; only the answer.", rich_help_panel="Every verb")
    ] = False
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="More progress, and tracebacks.", rich_help_panel="Every verb")
    ] = False


Options = TypeVar("Options", bound=Common)


class _Command(TyperCommand):
    """A command whose help shows its options under headings (``rich_help_panel``), without colours or boxes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse ``--name --json``: the parser would take the second option as the value of the first."""
        if not ctx.resilient_parsing:  # completion parses what is half written
            self._check_values(ctx, args)
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def _check_values(self, ctx: Any, args: list[str]) -> None:
        params = [param for param in self.get_params(ctx) if param.param_type_name == "option"]
        options = {word: param for param in params for word in param.opts}
        for word, following in zip_longest(args, args[1:]):
            if word == "--":
                return
            takes_value = word in options and not getattr(options[word], "is_flag", False)
            if takes_value and (following is None or following in options):
                raise UsageError(
                    "missing_value", f"'{ctx.command_path}': {word} needs a value, and none is given.",
                    why=f"{word} is the last word." if following is None else f"The next word is the option {following}.",
                    fix=f"Write {word} {options[word].metavar or 'VALUE'}; '{ctx.command_path} --help' says what it takes.",
                )  # fmt: skip

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record:
                kind = "Arguments" if param.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(param, "rich_help_panel", None) or kind, []).append(record)
        every = panels.pop("Every verb", [])
        help_only = panels.pop("Options", []) if len(panels.get("Options", ())) == 1 else []
        for title, records in {**panels, "Every verb": every + help_only}.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class LazyGroup(TyperGroup):
    """The root: knows its verbs by name and imports one when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"edgesdk.cli.{cmd_name}").COMMAND()

    def get_help(self, ctx: Any) -> str:
        return root_help()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(root_help())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in VERBS:
            raise UsageError(
                "unknown_verb", f"There is no verb '{args[0]}'.", why=nearest(args[0], VERBS),
                fix="'edgesdk --help' says what each does.",
            )  # fmt: skip
        return super().resolve_command(ctx, args)


def verb(
    options: type[Options], run: Callable[[Options, Output], int], name: str, *, loose: bool = False
) -> Callable[[], Any]:
    """A verb's ``COMMAND``: builds the parser from the data class of its options.

    Args:
        options: fields are ``Annotated[type, typer.Option(…)]``; the docstring is the help.
        run: does the work and returns the exit code.
        loose: take any words, for a verb that refuses whatever is asked.
    """
    settings = {"help_option_names": ["--help", "-h"], "ignore_unknown_options": loose, "allow_extra_args": loose}

    def build() -> Any:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, cls=_Command, help=inspect.getdoc(options), context_settings=settings)(
            _function(options, run)
        )
        return typer.main.get_command(app)

    return build


def group(text: str, **members: Callable[[], Any]) -> Callable[[], Any]:
    """A verb with verbs of its own (``keys new``)."""

    def build() -> Any:
        app = typer.Typer(add_completion=False, rich_markup_mode=None, help=text)
        app.callback()(_nothing)
        command: Any = typer.main.get_command(app)
        for name, member in members.items():
            command.add_command(member(), name)
        return command

    return build


def _nothing() -> None:
    """Typer makes a group only of an application with a callback."""


def _function(options: type[Options], run: Callable[[Options, Output], int]) -> Callable[..., None]:
    def call(**values: Any) -> None:
        from edgesdk.cli._output import Output

        given = options(**values)
        raise typer.Exit(run(given, Output(given.json, given.quiet, given.verbose)))

    hints = get_type_hints(options, include_extras=True)
    fields = [f for f in dataclasses.fields(options) if f.init]
    for info in (info for hint in hints.values() for info in getattr(hint, "__metadata__", ())):
        if hasattr(info, "readable"):
            # Whoever reads the file says why it can't, with the exit code of a file and not of the command line.
            info.readable = False
    parameters = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[f.name],
            default=inspect.Parameter.empty if f.default is dataclasses.MISSING else f.default,
        ) for f in sorted(fields, key=lambda f: f.name in ("json", "quiet", "verbose"))
    ]  # fmt: skip
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {f.name: hints[f.name] for f in fields}
    return call


def root() -> Any:
    """The command ``edgesdk``."""
    app = typer.Typer(
        cls=LazyGroup, rich_markup_mode=None, name="edgesdk", context_settings={"help_option_names": ["--help", "-h"]}
    )
    app.callback()(_nothing)
    return typer.main.get_command(app)
