"""``edgesdk verify BUNDLE``: is it whole, whose is it, and does it still give the right answers?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgesdk.cli import _options as opt
from edgesdk.cli._app import Common, verb

if TYPE_CHECKING:
    from rich.console import Console

    from edgesdk.cli._output import Output


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Check the hashes and the signature of a bundle, and run its golden vectors on every engine that is installed.

    Leaves with 6 when something does not match, and with 5 when the bundle gives other answers than --against.
    """

    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A .edge file.")]
    against: Annotated[
        str | None, typer.Option("--against", metavar="MODEL", help="Compare with this source model on fresh inputs.")
    ] = None
    key: Annotated[
        Path | None,
        typer.Option(
            "--key", metavar="KEY.pub", help="Trust only this key: a bundle that is unsigned or another's is not ok."
        ),
    ] = None
    inputs: opt.Inputs = None
    arch: opt.Arch = None
    trust_pickle: opt.TrustPickle = False


def run(options: Options, out: Output) -> int:
    source = opt.import_options(options.inputs, options.arch, options.trust_pickle)
    from edgesdk import api

    with out.working() as progress:
        verdict = api.verify(options.bundle, key=options.key, against=options.against, source=source, progress=progress)
    document = verdict.to_json()
    out.answer(document, lambda console: _show(console, options.bundle, document), "ok" if verdict.ok else "not ok")
    return int(verdict.exit)


_SIGNATURES = {
    "valid": "valid (of the manifest)",
    "absent": "none: anybody could have made this bundle",
    "invalid": "INVALID: the manifest was changed after signing",
    "untrusted": "by a key that is not trusted here",
}


def _show(console: Console, bundle: Path, document: Mapping[str, Any]) -> None:
    from edgesdk.cli._output import table

    verdict = "ok" if document["ok"] else "NOT OK"
    console.print(f"{bundle}: {verdict}", style="bold green" if document["ok"] else "bold red", markup=False)
    state = "absent" if "it is not signed" in str(document.get("why")) else document["signature"]
    console.print(f"  signature  {_SIGNATURES.get(state, state)}", markup=False)
    if document.get("why"):
        console.print(f"  why        {document['why']}", markup=False)
    if document["ok"] and not any(v["ran"] for v in document["variants"]):
        console.print("  note       hashes and layout are right; no variant can be run on this machine", markup=False)
    if not document["variants"]:
        return
    console.print()
    console.print(
        table(("variant", "ran", "max error", "SNR", ""), [_row(v) for v in document["variants"]], right=(2, 3))
    )


def _row(variant: Mapping[str, Any]) -> tuple[str, ...]:
    error, snr = variant.get("max_abs_error"), variant.get("snr_db")
    return (
        variant["id"], "yes" if variant["ran"] else "no", "–" if error is None else f"{error:.1e}",
        "–" if snr is None else f"{snr:.0f} dB", variant.get("why") or "",
    )  # fmt: skip


COMMAND = verb(Options, run, "verify")
