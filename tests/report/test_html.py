"""The page: complete, self-contained, escaped, honest."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from edgesdk import report
from tests.report.conftest import Json, bench, package, variant

_VOID = {"meta", "br", "img", "input", "link", "hr", "circle", "path", "rect", "line", "polyline"}


class Page(HTMLParser):
    """Tags that are open, text outside style and script, and every attribute."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.parts: list[str] = []
        self.data = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.data += data
        elif not self.open or self.open[-1] != "style":
            self.parts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.parts).split())


def page(*documents: Json) -> Page:
    found = Page(report.render(list(documents), "html"))
    assert found.open == []
    return found


def test_the_page_tells_what_went_in_and_what_came_out(document: Json) -> None:
    text = page(document).text
    for expected in (
        "mobilenet_v2", "Ready to ship", "14.2 MB", "118 dB", "3.5 million", "301 million", "99.9 %",  # the head
        "exported program", "1…8 × 3 × 224 × 224", "Cut out the centre, 224 × 224 pixels.", "subtract 0.485, 0.456, 0.406",
        "aten::mean.dim", "1.20e-05", "executorch 1.5.1", "avx2 fma", "1,3,224,224", "5.64 MB", "int8_hint",  # what came out
        "14.4 s", "opset = 18", "cd" * 32, "ef" * 32, "2.15.0", "no: anybody could have made it",  # how it was made
    ):  # fmt: skip
        assert expected in text, expected


def test_the_page_needs_no_network_and_no_script(document: Json) -> None:
    html = report.render([document, bench()], "html")
    found = Page(html)
    assert not {name for name, _ in found.attributes} & {
        "src",
        "href",
        "srcset",
        "action",
        "onload",
        "onclick",
        "onerror",
    }
    assert not re.search(r"url\(|@import|<link|<iframe", html)
    assert re.findall(r"<script[^>]*>", html) == ['<script type="application/json" id="edgesdk-data">']
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_the_numbers_behind_the_page_are_embedded(document: Json) -> None:
    assert json.loads(page(document).data) == document
    both = [document, bench()]
    assert json.loads(page(*both).data) == both


HOSTILE = [
    "<script>alert(1)</script>", "</title><script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "</script><b>", "{{ 7*7 }}",
    "a & b", "' onclick='x", "a\u202eb", "a\x00b", "]]>", "<!--", "--><b>", "\ud800", "a" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str) -> None:
    evil = variant(
        name, runtime=name, backend=name, quantization=name, file=name, sha256=name, rung=name,
        outputs=[{"name": name, "max_abs_error": 1.0, "snr_db": 30.0}],
        details={"leftovers": {name: 1}, "engine": name, "shapes": [name], "cpu_flags": [name], "abis": [name], "min_runtime": name},
        metric={"name": name, "value": 1.0, "original": 2.0, "samples": 3},
        latency_ms={"p50": 1.0, "p90": 2.0, "where": name},
    )  # fmt: skip
    document = package(
        evil, variant("executorch-b-none", verified="not_run", outputs=[], details={"why": name}), name=name, version=name, target=name,
        bundle=name, license=name, warnings=[{"code": name, "message": name}], timings_s={name: 1.0, "total": 2.0},
        source={"name": name, "format": name, "sha256": name, "git_commit": name}, tools={name: name},
        signature={"inputs": [{"name": name, "dtype": name, "shape": [name]}], "outputs": []},
        history=[{"step": name, "type": name, "fields": {name: name}}], preprocess={"kind": name, name: name},
        postprocess={"kind": name},
    )  # fmt: skip
    measured = bench()
    measured["model"]["name"] = measured["device"]["model"] = measured["runtime"]["name"] = name
    measured["validity"]["flags"][0].update(code=name, message=name, severity=name)
    measured["preflight"][0].update(check=name, status=name, value=name, message=name)
    html = report.render([document, measured], "html")
    plain = page(package(), package(), bench())
    found = Page(html)
    assert found.open == []
    assert found.tags <= plain.tags | {"small"}
    assert not {n for n, _ in found.attributes} & {"onerror", "onclick", "src", "href"}
    assert "49" not in re.findall(r"\{\{.*?\}\}|\b49\b", found.text)
    assert "\u202e" not in html
    assert "\x00" not in html
    assert name.strip("\x00\u202e\ud800")[:4] in found.text or not name.isprintable()
    html.encode("utf-8", "backslashreplace")


def test_the_verdict_is_that_of_the_worst_file() -> None:
    exact = variant(outputs=[{"name": "y", "max_abs_error": 0.0, "snr_db": None}])
    assert "Ready to ship" in page(package(exact)).text
    assert "identical answers" in page(package(exact)).text
    coarse = variant("executorch-xnnpack-int8", outputs=[{"name": "y", "max_abs_error": 0.6, "snr_db": 26.0}])
    assert "test its accuracy before you ship it" in page(package(variant(), coarse)).text
    noise = variant("executorch-xnnpack-int8", outputs=[{"name": "y", "max_abs_error": 6.0, "snr_db": 3.0}])
    assert "Don't ship this yet" in page(package(variant(), noise)).text
    failed = variant(verified=False, details={"why": "error 4 is over 0.001"})
    assert "Don't ship this yet" in page(package(failed)).text
    assert "error 4 is over 0.001" in page(package(failed)).text


def test_a_file_that_was_not_run_is_never_called_verified() -> None:
    blind = variant("executorch-coreml-none", verified="not_run", outputs=[], details={"why": "Core ML needs a Mac."})
    text = page(package(blind)).text
    assert "Built, but not run" in text
    assert "Core ML needs a Mac." in text
    assert "Ready to ship" not in text
    assert "same answers" not in text
    assert "1 of 2 files that could not be run here" in page(package(variant(), blind)).text


def test_a_document_with_nothing_but_its_schema_is_a_page() -> None:
    assert "Nothing was packaged" in page({"schema": "edgesdk.package/1"}).text
    page({"schema": "edgesdk.bench/1"})
    page(package(variant(outputs=[], details={}, bytes=None, delegated_fraction=None, file=None, sha256=None)))


def test_a_manifest_is_told_like_its_package() -> None:
    manifest = {
        "schema": "edgesdk.bundle/1", "name": "mobilenet_v2", "version": "1.0.0", "labels": ["cat", "dog"],
        "signature": package()["signature"], "source": {"format": "onnx", "sha256": "ef" * 32},
        "postprocess": {"kind": "classify", "version": 1}, "golden": [{"id": "g0"}, {"id": "g1"}],
        "variants": [{
            "id": "onnx-none", "runtime": "onnx", "backend": None, "quantization": "none", "file": "m.onnx", "size": 9_000_000,
            "runtime_version": {"min": "1.24.2"}, "verified": True, "rung": "full",
            "fidelity": {"outputs": [{"name": "logits", "max_abs_error": 2e-5, "snr_db": 110.0}], "tolerance": {"logits": 1e-4},
                         "samples": 8, "engine": "onnxruntime 1.32.0"},
        }],
    }  # fmt: skip
    text = page(manifest).text
    for expected in (
        "9 MB",
        "110 dB",
        "ONNX Runtime 1.24.2",
        "2 labels",
        "2 recorded calls",
        "onnxruntime 1.32.0",
        "1.00e-04",
    ):
        assert expected in text, expected


def test_several_documents_are_compared_and_then_told(document: Json) -> None:
    other = package(variant(bytes=3_500_000), name="mobilenet_v2-small")
    text = page(document, other, bench()).text
    assert text.index("Comparison") < text.index("Ready to ship")
    assert text.count("Ready to ship") == 2
    assert "3.5 MB" in text
    assert "20.5 ms" in text


def test_a_benchmark_shows_its_flags_with_its_numbers() -> None:
    text = page(bench()).text
    for expected in (
        "Valid measurement",
        "20.5 ms",
        "20.9 ms",
        "FREQ_CAPPED",
        "capped at 1.8 GHz",
        "41 ms",
        "31 MB",
        "Phone 1",
    ):
        assert expected in text, expected
    assert "too few samples to say" in text  # p99 of 90 samples
    assert "Not a valid measurement" in page(bench(status="invalid")).text


def test_times_under_emulation_are_never_shown() -> None:
    emulated = page(bench(emulated=True)).text
    assert "Not a speed measurement" in emulated
    assert "EMULATED_TIMING" in emulated
    for number in ("20.5 ms", "20.9 ms", "41 ms", "90 ms", "31 MB"):
        assert number not in emulated, number
    assert "20.5 ms" not in page(bench(emulated=True), package()).text


def test_the_same_documents_give_the_same_bytes(document: Json, tmp_path: Path) -> None:
    report.write(document, tmp_path / "a.html")
    report.write(json.loads(json.dumps(document)), tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_schemas_own_example_is_rendered() -> None:
    for path in Path(__file__).parents[2].glob("edgesdk/schemas/*bench*example*.json"):
        assert "TOO_FEW_SAMPLES" in page(json.loads(path.read_text())).text
