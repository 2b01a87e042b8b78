"""What the templates need to know about a package, computed once from the emission."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgesdk.errors import UnsupportedError
from edgesdk.report import _judged, _leftovers, _words
from edgesdk.targets import _lite, _names
from edgesdk.targets._base import Emission

# Used when neither the variant nor the tools say a version: the set this release of edgesdk is tested with.
_TESTED = {"executorch": "1.5.1"}
# ONNX Runtime reads every older file, so a file that asks for 1.14 should still get a current library: the oldest ones have
# 4 KiB segments. 1.27.0 is the newest Android release that public indexes list; newer files ask for more themselves.
_ORT_FLOOR = "1.27.0"


@dataclass(frozen=True)
class Row:
    """One variant, in words for the README's table."""

    id: str
    runtime: str
    size: str
    fidelity: str
    delegation: str


@dataclass(frozen=True)
class Facts:
    """``runtimes`` maps each runtime shipped to the version of its library to take: it loads all files of the bundle.

    ``bytecode`` is the greatest TorchScript bytecode version inside, None when there is none.
    """

    name: str
    version: str
    license: str | None
    bundle: str
    bundle_bytes: int
    rows: tuple[Row, ...]
    abis: tuple[str, ...]
    runtimes: Mapping[str, str]
    bytecode: int | None
    backends: frozenset[str]
    inputs: tuple[Mapping[str, Any], ...]
    outputs: tuple[Mapping[str, Any], ...]
    classifies: bool
    signed: bool
    not_run: tuple[str, ...]
    executorch_file: str | None

    @property
    def size(self) -> str:
        return _words.size(self.bundle_bytes)


def facts(emission: Emission, abis: Sequence[str]) -> Facts:
    """Read them; ``abis`` are the target's own, used when no variant names any."""
    document, manifest = emission.document, emission.manifest
    variants: Sequence[Mapping[str, Any]] = document.get("variants") or ()
    signature = document.get("signature") or manifest.get("signature") or {}
    named = [abi for v in variants for abi in (v.get("details") or {}).get("abis") or ()]
    return Facts(
        name=_names.clean(emission.name),
        version=_names.clean(emission.version),
        license=_names.clean(emission.license) if emission.license else None,
        bundle=emission.bundle.name,
        bundle_bytes=emission.bundle.stat().st_size,
        rows=tuple(_row(v) for v in variants),
        abis=tuple(dict.fromkeys(named)) or tuple(abis),
        runtimes=_runtimes(variants, document, emission.bundle),
        bytecode=_bytecode(variants, emission.bundle),
        backends=frozenset(v["backend"] for v in variants if v.get("backend")),
        inputs=tuple(signature.get("inputs") or ()),
        outputs=tuple(signature.get("outputs") or ()),
        classifies=bool(manifest.get("preprocess")) and (manifest.get("postprocess") or {}).get("kind") == "classify",
        signed=_signed(emission.bundle),
        not_run=tuple(v["id"] for v in variants if v.get("verified") == "not_run"),
        executorch_file=next(
            (str(v["file"]) for v in variants if v["runtime"] == "executorch" and v.get("file")), None
        ),
    )


def _signed(bundle: Path) -> bool:
    """Whether the bundle carries a signature; the file itself knows best."""
    if not zipfile.is_zipfile(bundle):
        return False
    with zipfile.ZipFile(bundle) as archive:
        return "signature.json" in archive.namelist()


def _row(variant: Mapping[str, Any]) -> Row:
    judged = _judged.verdict(variant)
    if judged:  # what data showed says more than the noise on a few samples
        _, head, tail = judged
        figures = f" ({_judged.agreement(variant)})" if _judged.agreement(variant) else ""
    else:
        head, tail = _words.fidelity(variant)
        snr = _words.worst_snr(variant)
        figures = f" ({_words.decibels(snr)})" if snr is not None else ""
    return Row(
        id=str(variant["id"]),
        runtime=f"{_words.runtime(variant)}, {_words.quantization(variant.get('quantization'))}",
        size=_words.size(variant.get("bytes")),
        fidelity=f"{head}{figures}: {tail}",
        delegation=_leftovers.sentence(variant) or "does not apply",
    )


def _runtimes(variants: Sequence[Mapping[str, Any]], document: Mapping[str, Any], bundle: Path) -> dict[str, str]:
    tools: Mapping[str, Any] = document.get("tools") or {}
    found: dict[str, str] = {}
    for runtime in dict.fromkeys(str(v["runtime"]) for v in variants):
        if runtime == "torchscript":
            found[runtime] = _lite_library(_bytecode(variants, bundle))
            continue
        stated = [(v.get("details") or {}).get("min_runtime") for v in variants if v["runtime"] == runtime]
        if runtime == "onnx":
            stated.append(_ORT_FLOOR)
        least = max(filter(None, map(_release, stated)), key=_key, default="")
        found[runtime] = least or _release(tools.get(runtime)) or _TESTED.get(runtime, "")
    return found


def _bytecode(variants: Sequence[Mapping[str, Any]], bundle: Path) -> int | None:
    """Read from the ``.ptl`` files themselves; None when there is none or it can't be told."""
    files = [str(v.get("file")) for v in variants if v["runtime"] == "torchscript"]
    if not files or not zipfile.is_zipfile(bundle):
        return None
    versions = []
    with zipfile.ZipFile(bundle) as archive:
        for name in set(files) & set(archive.namelist()):
            with archive.open(name) as stream:
                versions.append(_lite.bytecode_version(stream))
    return max((v for v in versions if v is not None), default=None)


def _lite_library(bytecode: int | None) -> str:
    """The newest PyTorch Mobile library that reads it.

    Raises:
        UnsupportedError: no published library does.
    """
    found = _lite.libraries_for(bytecode)
    if not found:
        raise UnsupportedError(
            "lite_bytecode_unreadable",
            f"The TorchScript Lite file has bytecode version {bytecode}, which no published PyTorch Mobile library reads.",
            why="PyTorch Mobile ended with 2.1.0, which reads versions 4 to 9.",
            fix="Lower it with a bytecode version of 4 to 8, or use --runtime executorch",
        )
    return found[0]


def _release(text: Any) -> str:
    """``1.5.1+cpu`` → ``1.5.1``, ``1.22`` → ``1.22.0``, anything else → empty."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", str(text or ""))
    return f"{match[1]}.{match[2]}.{match[3] or 0}" if match else ""


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
