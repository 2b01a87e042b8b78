"""HTML: one self-contained page, no script, no request to anywhere; for a phone, a desk and paper."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.report import _bench, _documents, _package, _words
from edgesdk.report._base import Document, Format
from edgesdk.report.as_json import strict

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

_TEMPLATES = Path(__file__).with_name("templates")


class Html(Format):
    name = "html"

    def text(self, documents: Sequence[Document]) -> str:
        from markupsafe import Markup

        kinds = [_documents.kind(d) for d in documents]
        packages = [_package.view(d) for d, k in zip(documents, kinds, strict=True) if k == "package"]
        benches = [_bench.view(d) for d, k in zip(documents, kinds, strict=True) if k == "bench"]
        return (
            _environment()
            .get_template("report.html.j2")
            .render(
                packages=packages,
                benches=benches,
                several=len(documents) > 1,
                css=Markup((_TEMPLATES / "report.css").read_text("utf-8")),
                data=_embedded(documents),
            )
        )


def _embedded(documents: Sequence[Document]) -> Markup:
    """The raw documents for programs that are handed the page. ``<`` can't appear, so no text can end the element."""
    from markupsafe import Markup

    found = documents[0] if len(documents) == 1 else list(documents)
    text = json.dumps(strict(found), ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _visible(value: Any) -> Any:
    """Control and direction-changing characters in names are shown as a box instead of being obeyed."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(c if c.isprintable() or c in "\n\t\u2009\u00a0\u202f" else "\ufffd" for c in value)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    from edgesdk.report import _charts

    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(charts=_charts, words=_words)
    return found


FORMAT = Html()
