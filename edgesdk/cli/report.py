"""``edgesdk report FILES -o report.html``: one page about packages."""

from __future__ import annotations

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

    documents = [_read(path) for path in options.files]
    with out.working():
        report.write(documents, options.output)
    answer = {"schema": "edgesdk.report/1", "output": str(options.output), "documents": len(documents)}
    out.answer(answer, lambda console: console.print(str(options.output), markup=False), str(options.output))
    return 0


def _read(path: Path) -> dict[str, Any]:
    if path.is_dir():
        path = path / "report.json"
    try:
        with open_file(path) as file:
            if file.read(2) == b"PK":
                return _manifest(path)
        document = parse_json(read_bytes(path, _LIMIT))
    except OSError as exc:
        raise InputError(
            "report_unreadable", f"{path} can't be read: {exc.strerror or exc}.", why="The path is wrong, or it may not be read.",
            fix="Name a report.json, an .edge bundle, or a folder that 'edgesdk package' wrote.",
        ) from exc  # fmt: skip
    except ValueError as exc:
        raise _foreign(path) from exc
    if not isinstance(document, dict) or "schema" not in document:
        raise _foreign(path)
    return document


def _manifest(path: Path) -> dict[str, Any]:
    from edgesdk.bundle import EdgeBundle

    return EdgeBundle.open(path).manifest.to_json()


def _foreign(path: Path) -> InputError:
    return InputError(
        "not_a_report", f"{path} is neither a document of edgesdk nor a bundle.", why="It is damaged, or a file of another kind.",
        fix="Name a report.json, an .edge bundle, or a folder that 'edgesdk package' wrote.",
    )  # fmt: skip


COMMAND = verb(Options, run, "report")
