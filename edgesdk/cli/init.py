"""``edgesdk init MODEL``: a commented recipe."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgesdk.cli import _options as opt
from edgesdk.cli._app import Common, verb
from edgesdk.errors import EdgeError, UsageError

if TYPE_CHECKING:
    from edgesdk.artifacts import TensorSpec
    from edgesdk.cli._output import Output
    from edgesdk.importing import ImportOptions, Located


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Write a recipe for MODEL: every setting, with a comment and its default; the inputs as the model says them.

    'edgesdk package --recipe FILE' then needs nothing else.
    """

    model: Annotated[str, typer.Argument(metavar="MODEL", help=opt.MODEL)]
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The recipe. Default: NAME.toml.", rich_help_panel="Output"
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.", rich_help_panel="Output")] = (
        False
    )
    targets: opt.Target = None
    inputs: opt.Inputs = None
    arch: opt.Arch = None
    trust_pickle: opt.TrustPickle = False


def run(options: Options, out: Output) -> int:
    from edgesdk.importing import arch_missing, locate
    from edgesdk.output import check_not_read
    from edgesdk.recipe import DEFAULTS, resolve
    from edgesdk.recipe_text import recipe_text

    source = opt.import_options(options.inputs, options.arch, options.trust_pickle)
    located = locate(options.model, source)
    output = options.output or Path(f"{located.source.name}.toml")
    if output.exists() and not options.force:
        raise UsageError(
            "output_exists", f"{output} exists already.", why="A recipe that was edited by hand must not be lost.",
            fix="Choose another name with -o, or replace it with --force.",
        )  # fmt: skip
    check_not_read(output, [path for path in (*(located.files or ()), located.path) if path])
    chosen = tuple(options.targets or ("android",))
    resolve({"model": options.model, "targets": chosen}, DEFAULTS)  # an unknown target is refused before any work
    with out.working() as progress:
        progress.stage("reading the signature")
        inputs, said = _inputs(options.model, source)
    missing = arch_missing(located, options.arch)
    text = recipe_text(
        _seen_from(output.parent, located), options.arch, options.trust_pickle, inputs, chosen, needs_arch=bool(missing)
    )
    _write(output, text)
    warning = f"{missing.message} {missing.fix}" if missing else ""
    document = {
        "schema": "edgesdk.init/1",
        "output": str(output),
        "inputs": [spec.to_json() for spec in inputs],
        "note": " ".join(filter(None, (warning, said))),
        "warnings": [{"code": missing.code, "message": warning}] if missing else [],
    }
    notes = [f"  warning: {warning}"] if warning else []
    notes += [f"  {said}"] if said else []
    blanks = [*(["arch"] if missing else []), *([] if inputs else ["[input]"])]
    first = f"fill in {' and '.join(blanks)}, then " if blanks else ""
    lines = [f"{output}", *notes, f"  next  {first}edgesdk package --recipe {output}"]
    out.answer(document, lambda console: console.print("\n".join(lines), markup=False), str(output))
    return 0


def _inputs(model: str, source: ImportOptions) -> tuple[tuple[TensorSpec, ...], str]:
    """The inputs that the user or the model names, and a sentence when there are none."""
    from edgesdk import inspection
    from edgesdk.artifacts import TensorSpec

    if source.inputs:
        return source.inputs, ""
    try:
        found = inspection.inspect(model, source).to_json()["inputs"]
    except EdgeError as error:
        return (), f"The inputs are not known: {error.message} Fill in [input]."
    specs = tuple(TensorSpec.from_json(spec) for spec in found)
    if not specs or any(spec.shape is None for spec in specs):
        return (), "The model does not say its inputs: fill in [input]."
    return specs, ""


def _seen_from(folder: Path, located: Located) -> str:
    """MODEL as the recipe has to write it: relative paths in a recipe start at the recipe's folder."""
    if located.path is None or located.path.is_absolute():
        return located.text
    path = os.path.relpath(located.path, folder)
    return f"{path}:{located.member}" if located.member else path


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    from edgesdk.errors import InputError

    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            partial = Path(folder) / path.name
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
    except OSError as exc:
        raise InputError(
            "not_writable", f"{path} can't be written: {exc.strerror or exc}.", why="The folder is missing, read-only or full.",
            fix="Choose another place with -o.",
        ) from exc  # fmt: skip


COMMAND = verb(Options, run, "init")
