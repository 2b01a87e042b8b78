"""Every sentence of a wrong command line, pinned: what failed, why, what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgesdk.cli._verbs import VERBS

from .conftest import Call

KNOWN = "Known: " + ", ".join(sorted(VERBS)) + "."
PACKAGE = ("package", "m.pt2", "--target", "android")
LATER = (
    "It is part of the documented commands and arrives with a later version.",
    "Leave it out; --quantize makes files smaller too.",
)
RANGE = "The value is of another kind or out of range."
SCHEMES = "Known: auto, dynamic-int8, fp16, none, qat-int8, static-int8, weight-int4, weight-int8."

CASES = {
    "unknown verb": (
        ("packge",), 2, "unknown_verb",
        "There is no verb 'packge'.", f"Did you mean 'package'? {KNOWN}", "'edgesdk --help' says what each does.",
    ),
    "unknown option": (
        (*PACKAGE, "--calibrtion", "x.npz"), 2, "unknown_option",
        "'edgesdk package' has no option --calibrtion.", "Did you mean --calibration?", "'edgesdk package --help' lists the options.",
    ),
    "option of another world": (
        (*PACKAGE, "--zzz"), 2, "unknown_option",
        "'edgesdk package' has no option --zzz.", "'edgesdk package' has no option of that or a similar name.",
        "'edgesdk package --help' lists the options.",
    ),
    "option before the verb": (
        ("--verbose", *PACKAGE), 2, "unknown_option",
        "'edgesdk' has no option --verbose.", "--verbose belongs to the verb.",
        "Write it after the verb: edgesdk package MODEL --target android --verbose.",
    ),
    "option without value": (
        ("package", "--name"), 2, "missing_value",
        "'edgesdk package': --name needs a value, and none is given.", "The next word is the option --json.",
        "Write --name VALUE; 'edgesdk package --help' says what it takes.",
    ),
    "two models": (
        ("package", "a", "b", "c"), 2, "too_many_words",
        "'edgesdk package' does not know what to do with: b c", "It takes fewer words, or an option is missing.",
        "'edgesdk package --help' shows how to write it; a name with spaces stands in quotes.",
    ),
    "missing argument": (
        ("verify",), 2, "missing_argument",
        "'edgesdk verify' needs BUNDLE, and it is not given.", "There is no default for BUNDLE.",
        "'edgesdk verify --help' shows what to write.",
    ),
    "missing option": (
        ("keys", "new"), 2, "missing_argument",
        "'edgesdk keys new' needs --output, and it is not given.", "There is no default for --output.",
        "Add it: edgesdk keys new --json --output KEY. 'edgesdk keys new --help' shows what to write.",
    ),
    "no number": (
        (*PACKAGE, "--opset", "x"), 2, "bad_value",
        "--opset: the value is no whole number.", RANGE, "'edgesdk package --help' says what each option takes.",
    ),
    "quiet and verbose": (
        (*PACKAGE, "--quiet", "--verbose"), 2, "bad_usage",
        "--quiet and --verbose contradict each other.", "One asks for less, the other for more.", "Leave one of them out.",
    ),
    "no model": (
        ("package", "--target", "android"), 2, "missing_model",
        "No model is named.", "Neither the command line nor a recipe says which model to package.",
        "Write edgesdk package MODEL --target android.",
    ),
    "no target": (
        ("package", "m.pt2"), 2, "missing_target",
        "No target is named.", "A package is made for one platform, and none is assumed.",
        "Add --target android, --target ios or --target linux.",
    ),
    "unknown target": (
        ("package", "m.pt2", "--target", "androd"), 2, "unknown_target",
        "--target: there is no 'androd'.", "Did you mean 'android'? Known: android, ios, linux.", "Choose one of them.",
    ),
    "a target that is like none": (
        ("package", "m.pt2", "--target", "windows"), 2, "unknown_target",
        "--target: there is no 'windows'.", "Known: android, ios, linux.", "Choose one of them.",
    ),
    "a dtype of another language": (
        (*PACKAGE, "--input", "x=float[1,3]"), 2, "bad_input_spec",
        "--input 'x=float[1,3]': unknown dtype 'float'.",
        "Did you mean 'float32'? Known: bfloat16, bool, complex64, float16, float32, float64, int16, int32, int64, int8, uint16, uint8.",
        "Write --input 'x=float32[1,3]'.",
    ),
    "unknown runtime": (
        (*PACKAGE, "--runtime", "executorh"), 2, "unknown_runtime",
        "--runtime: there is no 'executorh'.", "Did you mean 'executorch'? Known: auto, executorch, onnx, torchscript.",
        "Choose one of them.",
    ),
    "unknown back end": (
        (*PACKAGE, "--backend", "xnnpak"), 2, "unknown_backend",
        "--backend: there is no 'xnnpak'.", "Did you mean 'xnnpack'? Known: coreml, mps, portable, vulkan, xnnpack.",
        "Choose one of them.",
    ),
    "unknown scheme": (
        (*PACKAGE, "--quantize", "static-in8"), 2, "unknown_scheme",
        "--quantize: there is no 'static-in8'.", f"Did you mean 'static-int8'? {SCHEMES}", "Choose one of them.",
    ),
    "unknown resize": (
        (*PACKAGE, "--resize", "shortr"), 2, "unknown_choice",
        "--resize: there is no 'shortr'.", "Did you mean 'shorter'? Known: letterbox, shorter, stretch.", "Choose one of them.",
    ),
    "mean of words": (
        (*PACKAGE, "--mean", "a,b"), 2, "bad_value",
        "--mean is 'a,b', but must be numbers such as 0.485,0.456,0.406.", RANGE,
        "Correct the value; 'edgesdk package --help' says what each option takes.",
    ),
    "prune too much": (
        (*PACKAGE, "--prune", "5"), 2, "bad_value",
        "--prune is 5.0, but must be less than 1.", RANGE,
        "Correct the value; 'edgesdk package --help' says what each option takes.",
    ),
    "int8 without calibration": (
        (*PACKAGE, "--quantize", "static-int8"), 2, "missing_calibration",
        "static-int8 needs sample inputs, and no --calibration is given.",
        "The ranges of the activations are measured on real inputs; invented ones give a useless model.",
        "Add --calibration PATH: an .npz (arrays by input name, samples first) or a folder of images, 100 to 500 samples.",
    ),
    "drop without data": (
        (*PACKAGE, "--max-drop", "1"), 2, "missing_eval",
        "--max-drop needs labelled data to measure on, and no --eval is given.",
        "Without labels there is no accuracy to compare.",
        "Add --eval PATH: an .npz with the inputs by name and 'label', or a folder of class folders.",
    ),
    "later: prune": (
        (*PACKAGE, "--prune", "0.5"), 8, "not_in_this_version", "--prune is not in this version of edgesdk (0.1.0).", *LATER,
    ),
    "unknown action of cache": (
        ("cache", "clen"), 2, "unknown_choice",
        "There is no 'edgesdk cache clen'.", "Did you mean 'clean'? Known: clean, show.",
        "Write 'edgesdk cache show' or 'edgesdk cache clean'.",
    ),
    "size of nothing": (
        ("cache", "clean", "--max-size", "big"), 2, "bad_value",
        "--max-size 'big' is no size.", "A size is a number with kB, MB or GB.", "Write e.g. --max-size 2GB.",
    ),
    "show with a size": (
        ("cache", "--max-size", "2GB"), 2, "bad_usage",
        "--max-size belongs to 'edgesdk cache clean'.", "Showing the cache removes nothing.",
        "Write 'edgesdk cache clean --max-size 2GB'.",
    ),
    "missing recipe": (
        ("package", "--recipe", "gone.toml"), 3, "recipe_unreadable",
        "The recipe gone.toml can't be read: No such file or directory.", "The path is wrong, or the file may not be read.",
        "Check the path after --recipe; 'edgesdk init MODEL' writes a new recipe.",
    ),
    "unknown target of doctor": (
        ("doctor", "--target", "androd"), 2, "unknown_target",
        "There is no target 'androd'.", "Did you mean 'android'? Known: android, ios, linux.", "Choose one of them with --target.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_wrong_command_line(name: str, call: Call) -> None:
    words, code, kind, message, why, fix = CASES[name]
    ran = call(*words, "--json")
    wanted = {"schema": "edgesdk.error/1", "code": kind, "exit": code, "message": message, "why": why, "fix": fix}
    assert {k: v for k, v in ran.document.items() if k != "details"} == wanted
    assert (ran.code, ran.err) == (code, "")
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("name", ["unknown verb", "unknown option", "unknown target"])
def test_without_json_the_three_parts_go_to_stderr(name: str, call: Call) -> None:
    words, code, _, message, why, fix = CASES[name]
    ran = call(*words)
    assert ran.err == f"error: {message}\n  why: {why}\n  fix: {fix}\n"
    assert (ran.code, ran.out) == (code, "")


def test_an_option_at_the_end_needs_its_value_too(call: Call) -> None:
    ran = call("keys", "new", "-o")
    assert ran.code == 2
    assert "-o needs a value, and none is given.\n  why: -o is the last word.\n  fix: Write -o KEY;" in ran.err


def test_what_follows_two_dashes_is_no_option(call: Call) -> None:
    """A file may have any name."""
    ran = call("verify", "--json", "--", "--arch")
    assert ran.code == 3 and "--arch" in ran.document["message"]


@pytest.mark.parametrize("verb", ["train", "compress", "bench", "compare"])
def test_a_verb_of_a_later_version_says_so_whatever_is_asked(verb: str, call: Call) -> None:
    for words in ((verb,), (verb, "a.pt2", "--ratio", "0.5", "-o", "x")):
        document = call(*words, "--json").document
        assert (document["code"], document["exit"]) == ("not_in_this_version", 8)
        assert document["message"] == f"'edgesdk {verb}' is not in this version of edgesdk (0.1.0)."
    assert "Not in this version" in call(verb, "--help").out


@pytest.mark.parametrize("option", ["--jobs", "--image", "--opset", "--bytecode", "--prune"])
def test_nought_is_a_value_and_not_nothing(option: str, call: Call) -> None:
    ran = call(*PACKAGE, option, "0", "--json")
    assert (ran.code, ran.document["code"]) == (2, "bad_value")
    assert option in ran.document["message"]


def test_nought_points_is_a_gate(call: Call) -> None:
    """``--max-drop 0`` asks for no loss at all; it must not be taken for no gate."""
    ran = call(*PACKAGE, "--max-drop", "0", "--json")
    assert (ran.code, ran.document["code"]) == (2, "missing_eval")


@pytest.mark.parametrize(
    "words", [("verify", "F"), (*PACKAGE, "--labels", "F"), (*PACKAGE, "--recipe", "F"), ("report", "F", "-o", "r.md")]
)
def test_a_file_that_may_not_be_read_is_no_wrong_command_line(
    words: tuple[str, ...], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser would say so with exit 2; root may read anything, so the system's answer is put in its mouth."""
    Path("F").write_text("x")
    Path("m.pt2").write_text("x")
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "F")
    ran = call(*words, "--json")
    assert ran.code == 3, ran.document


def test_json_with_a_value_is_answered_in_json(call: Call) -> None:
    ran = call(*PACKAGE, "--json=yes")
    assert (ran.code, ran.document["exit"], ran.err) == (2, 2, "")
