"""Fills the templates of ``templates/`` and writes text files with the same bytes everywhere."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.report import _markdown, _words
from edgesdk.targets import _names

if TYPE_CHECKING:
    import jinja2

_TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, **values: Any) -> str:
    """The text of ``templates/TEMPLATE``; a value that the template needs and isn't given is an error."""
    return _environment().get_template(template).render(**values)


def write(path: Path, text: str) -> None:
    """Write UTF-8 with ``\\n`` line ends; folders above are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=lambda name: name is not None and name.endswith(".xml.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters.update(
        kotlin=_names.kotlin_string,
        java=_names.java_string,
        swift=_names.swift_string,
        python=lambda text: ascii(_names.clean(text)),
        line=_markdown.line,
        xml=_names.xml_text,
        pom=_names.pom_text,
        md=_markdown.text,
        code=_markdown.code,
        shape=_words.shape,
        shell=lambda text: shlex.quote(_markdown.line(text)),
    )
    return found
