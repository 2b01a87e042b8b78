"""Verbs that write one file: never over what they read, and never under another kind's name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from .conftest import Call


@pytest.fixture
def model(call: Call) -> Path:
    """A model in the folder that ``call`` works in."""
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), "net.pt2")
    Path("link.pt2").symlink_to("net.pt2")
    return Path("net.pt2")


@pytest.mark.parametrize(
    "words",
    [
        ("lower", "net.pt2", "-o", "net.pt2"),
        ("lower", "net.pt2", "-o", "link.pt2"),
        ("quantize", "net.pt2", "--quantize", "weight-int8", "-o", "net.pt2"),
        ("init", "net.pt2", "-o", "net.pt2"),
    ],
)
def test_force_does_not_write_over_the_model(words: tuple[str, ...], model: Path, call: Call) -> None:
    before = model.read_bytes()
    ran = call(*words, "--force", "--json")
    assert (ran.code, ran.document["code"]) == (2, "output_is_input")
    assert model.read_bytes() == before


def test_a_report_is_not_written_over_what_it_tells_about(call: Call) -> None:
    Path("report.json").write_text('{"schema": "edgesdk.package/1"}')
    ran = call("report", ".", "-o", "report.json", "--json")
    assert (ran.code, ran.document["code"]) == (2, "output_is_input")
    assert Path("report.json").read_text() == '{"schema": "edgesdk.package/1"}'


@pytest.mark.parametrize(
    ("name", "more", "advice"),
    [
        ("net.onnx", (), "-o net.pte, or ask for the other kind: --runtime onnx"),
        ("net.PTL", ("--runtime", "onnx"), "-o net.onnx"),
        ("net.ort", ("--runtime", "onnx"), "--ort-format"),  # ONNX Runtime reads a file as what its suffix says
        ("net.onnx", ("--runtime", "onnx", "--ort-format"), "-o net.ort"),
    ],
)
def test_a_file_is_not_named_like_another_kind(
    name: str, more: tuple[str, ...], advice: str, model: Path, call: Call
) -> None:
    ran = call("lower", model, "-o", name, *more, "--json")
    assert (ran.code, ran.document["code"]) == (2, "suffix_of_another_kind")
    assert advice in ran.document["fix"]
    assert not Path(name).exists()


@pytest.mark.parametrize("place", [".", "", "/"])
def test_a_key_needs_a_name(place: str, call: Call) -> None:
    ran = call("keys", "new", "-o", place, "--json")
    assert (ran.code, ran.document["code"]) == (2, "key_is_a_folder")
