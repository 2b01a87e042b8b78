"""``edgesdk report FILES -o report.html``: one page about packages."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgesdk.cli import _options as opt
from edgesdk.cli._app import Common, verb
from edgesdk.errors import InputError
from edgesdk.reading import open_file, parse_json, read_bytes

if TYPE_CHECKING:
    from edgesdk.cli._output import Output

_LIMIT = 256 * 2**20  # bytes of a JSON document; a report.json has some hundred kilobytes


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Write a page about one or more packages; the suffix of -o says which kind: .html, .md, .csv or .json."""

    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="report.json files, .edge bundles, or output folders of package."),
    ]
    output: opt.OutputFile


def run(options: Options, out: Output) -> int:
    from edgesdk import report
    from edgesdk.output import check_not_read

    check_not_read(options.output, [path / "report.json" if path.is_dir() else path for path in options.files])
    documents = [_read(path) for path in options.files]
    with out.working():
        report.write(documents, options.output)
    answer = {"schema": "edgesdk.report/1", "output": str(options.output), "documents": len(documents)}
    out.answer(answer, lambda console: console.print(str(options.output), markup=False), str(options.output))
    return 0


_NAMES = "Name a report.json, an .edge bundle, or a folder that 'edgesdk package' wrote: edgesdk report dist/NAME-TARGET -o report.html"


def _read(path: Path) -> dict[str, Any]:
    if path.is_dir():
        path = path / "report.json"
        if not path.exists():
            raise _no_report(path.parent)
    try:
        with open_file(path) as file:
            if file.read(2) == b"PK":
                return _manifest(path)
        document = parse_json(read_bytes(path, _LIMIT))
    except FileNotFoundError as exc:
        raise _missing(path) from exc
    except OSError as exc:
        raise InputError(
            "report_unreadable", f"{path} can't be read: {exc.strerror or exc}.", why="The path is wrong, or it may not be read.",
            fix=_NAMES,
        ) from exc  # fmt: skip
    except ValueError as exc:
        raise _foreign(path) from exc
    if not isinstance(document, dict) or "schema" not in document:
        raise _foreign(path)
    return document


def _no_report(folder: Path) -> InputError:
    """A folder without a report.json: a bundle in it, a package below it, or a model that must be packaged first."""
    bundles = sorted(folder.glob("*.edge"))
    below = sorted(path.parent for path in folder.glob("*/report.json"))
    found = [*bundles, *below]
    if found:
        why = f"It holds {', '.join(path.name for path in found[:4])}."
        fix = f"Name that: {_command(found[0])}"
    else:
        why = "No package was written there; a report tells about a package, not about a model."
        fix = f"Make one: edgesdk package MODEL --target android -o NEW_FOLDER; its report is NEW_FOLDER/report.html. {_other()}".rstrip()
    return InputError("no_report", f"The folder {folder} holds no report.json.", why=why, fix=fix)


def _missing(path: Path) -> InputError:
    near = sorted(path.parent.glob("*.edge")) if path.parent.is_dir() else []
    fix = f"There is another: {_command(near[0])}" if near else _other() or f"{_NAMES}."
    return InputError("report_missing", f"{path} doesn't exist.", why="No file or folder has that name.", fix=fix)


def _other() -> str:
    """The command for a package that lies where packages are written, if there is one."""
    found = sorted(path.parent for path in Path("dist").glob("*/report.json"))
    return f"Of an existing one: {_command(found[0])}" if found else ""


def _command(path: Path) -> str:
    return f"edgesdk report {shlex.quote(str(path))} -o report.html"


def _manifest(path: Path) -> dict[str, Any]:
    from edgesdk.bundle import EdgeBundle

    try:
        with EdgeBundle.open(path) as bundle:
            return {**bundle.manifest.to_json(), "bundle_bytes": path.stat().st_size}
    except InputError as exc:
        if path.suffix.lower() == ".edge":
            raise
        raise _foreign(path) from exc  # models and other archives are ZIP files too


def _foreign(path: Path) -> InputError:
    return InputError(
        "not_a_report", f"{path} is neither a document of edgesdk nor a bundle.",
        why="It is a file of another kind (a model, say), or damaged; a report tells about a package.",
        fix=f"{_NAMES}. Of a model make a package first: edgesdk package {shlex.quote(str(path))} --target android",
    )  # fmt: skip


COMMAND = verb(Options, run, "report")
