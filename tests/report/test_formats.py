"""The other formats, the choice between them, and what happens when a report can't be written."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import stat
from pathlib import Path

import pytest

from edgesdk import report
from edgesdk.errors import InputError, UsageError
from tests.report.conftest import Json, bench, package, variant


@pytest.mark.parametrize("suffix", ["html", "md", "csv", "json"])
def test_the_suffix_chooses_the_format(document: Json, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"report.{suffix.upper()}"
    report.write(document, path)
    start = {"html": "<!DOCTYPE html>", "md": "# mobilenet", "csv": "kind,name", "json": "{"}[suffix]
    assert path.read_text().startswith(start)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # no temporary file is left


def test_an_unknown_format_lists_the_known_ones(document: Json, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        report.write(document, tmp_path / "report.htm")
    assert "Did you mean 'html'?" in caught.value.why
    assert list(tmp_path.iterdir()) == []


def test_documents_of_other_kinds_are_refused_with_a_reason(tmp_path: Path) -> None:
    for document, code in (
        ({}, "unknown_document"),
        ({"schema": "edgesdk.packge/1"}, "unknown_document"),
        ({"schema": "edgesdk.package/2"}, "document_too_new"),
    ):
        with pytest.raises(InputError) as caught:
            report.write(document, tmp_path / "report.html")
        assert caught.value.code == code
    with pytest.raises(InputError):
        report.write([], tmp_path / "report.html")


def test_a_failed_write_keeps_the_old_report_and_leaves_nothing(document: Json, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(InputError):
        report.write({"schema": "edgesdk.package/9"}, path)
    with pytest.raises(InputError) as caught:
        report.write(document, tmp_path / "absent" / "report.html")
    assert caught.value.code == "cannot_write"
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InputError):
        report.write(document, tmp_path / "folder.html")
    assert path.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.html", "report.html"]


def test_a_report_is_readable_by_others(document: Json, tmp_path: Path) -> None:
    report.write(document, tmp_path / "report.json")
    (tmp_path / "plain").write_text("")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("report.json", "plain")}
    assert len(modes) == 1


def test_json_is_the_document_itself_and_strict(document: Json) -> None:
    assert json.loads(report.render(document, "json")) == document
    both = [document, bench()]
    assert json.loads(report.render(both, "json")) == both
    odd = package(variant(outputs=[{"name": "y", "max_abs_error": math.nan, "snr_db": -math.inf}]))
    text = report.render(odd, "json")
    assert "NaN" not in text
    assert "Infinity" not in text
    report.render(odd, "html")


def test_csv_has_a_row_per_file_with_numbers_a_program_can_use() -> None:
    document = package(variant(), variant("onnx-none", verified="not_run", outputs=[]))
    rows = list(csv.DictReader(io.StringIO(report.render([document, bench(), bench(emulated=True)], "csv"))))
    assert [row["kind"] for row in rows] == ["package", "package", "bench", "bench"]
    assert (rows[0]["bytes"], float(rows[0]["snr_db"]), rows[0]["verified"]) == ("14000000", 118.4, "true")
    assert rows[1]["verified"] == "not_run"
    assert rows[1]["max_abs_error"] == ""
    assert (rows[2]["p50_ns"], rows[2]["emulated"]) == ("20500000", "false")
    assert (rows[3]["p50_ns"], rows[3]["peak_rss_bytes"], rows[3]["emulated"]) == ("", "", "true")


@pytest.mark.parametrize("name", ["=1+1", "@SUM(A1)", "+x", "-x", 'a"b,c', "a\nb"])
def test_no_name_is_a_formula_or_breaks_a_row(name: str) -> None:
    (row,) = csv.DictReader(io.StringIO(report.render(package(name=name), "csv"), newline=""))
    assert row["name"][0] not in "=@+-"
    assert row["name"].removeprefix("'") == name


def test_markdown_tells_the_same_as_the_page(document: Json) -> None:
    text = report.render(document, "md")
    for expected in (
        "**Ready to ship.**",
        "118 dB",
        "99.9 %",
        "`pixels`",
        "`aten::mean.dim` × 1",
        "## Preprocessing",
        "cd" * 32,
    ):
        assert expected in text, expected
    measured = report.render(bench(), "md")
    assert "20.5 ms" in measured
    assert "FREQ" in measured
    assert "20.5 ms" not in report.render(bench(emulated=True), "md")


@pytest.mark.parametrize("name", ["a|b", "`x`", "``", "<img src=x>", "[a](b)", "a\n# b", "*b*", "![x](y)"])
def test_no_name_is_markup_in_markdown(name: str) -> None:
    document = package(
        variant(name, outputs=[{"name": name, "max_abs_error": 1.0, "snr_db": 40.0}]), name=name, version="1"
    )
    text = report.render(document, "md")
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    tables = [line for line in text.splitlines() if line.startswith("|")]
    columns = {len(re.findall(r"(?<!\\)\|", line)) for line in tables}
    assert columns == {9, 5}  # eight and four columns: no name made another
    outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    assert not re.search(r"(?<!\\)<(?!br>)", outside)


def test_a_new_format_is_one_file() -> None:
    assert sorted(report.formats()) == ["csv", "html", "json", "md"]
