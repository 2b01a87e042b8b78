"""``edgesdk keys new -o KEY``: a key that signs bundles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgesdk.cli._app import Common, group, verb

if TYPE_CHECKING:
    from edgesdk.cli._output import Output


@dataclass(frozen=True, kw_only=True)
class New(Common):
    """Make an Ed25519 key: KEY (private, readable by you alone, never over an existing file) and KEY.pub.

    Keep KEY out of the repository. Apps and 'edgesdk verify --key KEY.pub' need only KEY.pub.
    """

    output: Annotated[Path, typer.Option("--output", "-o", metavar="KEY", help="Where to write the private key.")]


def new(options: New, out: Output) -> int:
    from edgesdk.bundle.signing import new_key

    private, public = new_key(options.output)
    document = {"schema": "edgesdk.keys/1", "private": str(private), "public": str(public)}
    lines = (
        f"{private}  private: keep it secret, and keep a copy",
        f"{public}  public: for apps and for 'edgesdk verify --key'",
    )
    out.answer(document, lambda console: console.print("\n".join(lines), markup=False))
    return 0


COMMAND = group("Make a key that signs bundles.", new=verb(New, new, "new"))
