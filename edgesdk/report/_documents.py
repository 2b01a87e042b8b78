"""Tells the kinds of documents apart, and gives a bundle's manifest the shape of a package's document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from edgesdk.errors import InputError, nearest
from edgesdk.report._base import Document

Kind = Literal["package", "bench"]

_KINDS: Mapping[str, Kind] = {"edgesdk.package": "package", "edgesdk.bundle": "package", "edgesdk.bench": "bench"}
_MAJOR = "1"


def kind(document: Document) -> Kind:
    """What the document is.

    Raises:
        InputError: it has no schema, an unknown one, or one of a newer major version.
    """
    schema = document.get("schema") if isinstance(document, Mapping) else None
    name, _, version = str(schema or "").partition("/")
    if name not in _KINDS:
        raise InputError(
            "unknown_document",
            f"A document with the schema {schema!r} can't be reported." if schema else "A document has no schema.",
            why=nearest(name, _KINDS) if name else "Every JSON that edgesdk prints says its schema.",
            fix="Give the report.json of a package, an .edge bundle, or the result of edgesdk bench.",
        )
    if version != _MAJOR:
        raise InputError(
            "document_too_new",
            f"A document has the schema {schema}; this edgesdk reads {name}/{_MAJOR}.",
            why="It was made by another major version of edgesdk.",
            fix="Upgrade: pip install -U edgesdk",
        )
    return _KINDS[name]


def package(document: Document) -> Document:
    """The document in the shape of ``edgesdk.package/1``; a manifest is translated, a package is itself."""
    if not str(document.get("schema")).startswith("edgesdk.bundle/"):
        return document
    files = document.get("files") or ()
    return {
        **document,
        "variants": [_variant(v) for v in document.get("variants") or ()],
        "labels": len(document.get("labels") or ()) or None,
        "bundle_bytes": document.get("bundle_bytes"),
        "payload_bytes": sum(f.get("size") or 0 for f in files) or None,
        "bundle_parts": _parts(document, {str(f.get("name")): f.get("size") or 0 for f in files}),
    }


def _parts(manifest: Document, sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of the entries by what they are; the manifest's own and padding are the rest, where the whole is known."""
    models = {name for v in manifest.get("variants") or () for name in (v.get("file"), *(v.get("extra_files") or ()))}
    calls = [call.get(side) or () for call in manifest.get("golden") or () for side in ("inputs", "outputs")]
    golden = {tensor.get("file") for tensors in calls for tensor in tensors}
    found = {"models": models, "golden": golden - models}
    parts = {name: sum(sizes.get(str(entry), 0) for entry in entries) for name, entries in found.items()}
    whole = manifest.get("bundle_bytes")
    return parts if whole is None else {**parts, "rest": whole - sum(parts.values())}


def _variant(part: Mapping[str, Any]) -> dict[str, Any]:
    fidelity: Mapping[str, Any] = part.get("fidelity") or {}
    outputs: Sequence[Mapping[str, Any]] = fidelity.get("outputs") or ()
    agreed = [o["top1_agreement"] for o in outputs if o.get("top1_agreement") is not None]
    found: Mapping[str, Any] = part.get("evaluation") or {}
    return {
        **part,
        "bytes": part.get("size"),
        "outputs": outputs,
        "top1_agreement": found["top1"] if found.get("top1") is not None else min(agreed, default=None),
        "metric": found.get("score"),
        "details": {
            "guard": {"evaluation": found, "brief": True} if found else None,
            "min_runtime": (part.get("runtime_version") or {}).get("min"),
            "abis": part.get("abis") or (),
            "planned_bytes": part.get("planned_bytes"),
            **{name: fidelity.get(name) for name in ("samples", "shapes", "tolerance", "engine", "cpu_flags", "why")},
        },
    }
