"""What the report says about quantization: complete, honest about where numbers come from, nothing empty."""

from __future__ import annotations

import copy
import csv
import html
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from edgesdk import report
from edgesdk.artifacts import Layer, LayerError, Lowered, OutputFidelity, VariantResult, Verification
from edgesdk.evaluation import Evaluation, Flip, Guarded, Probe, Race, Score
from edgesdk.report import _leftovers
from tests.report.conftest import Json, package, variant
from tests.report.quantized_document import STAGES, document, errors, evaluation, guard, layers, output, quantized, race
from tests.report.test_html import HOSTILE, Page, page


def told(found: Json | None = None, **changes: Any) -> str:
    return page(package(quantized(found=found, **changes), original_bytes=6_110_000)).text


def section(text: str, title: str, end: str) -> str:
    return text[text.index(title) : text.index(end, text.index(title))]


def test_the_page_compares_the_original_with_every_file() -> None:
    text = section(page(document()).text, "The original and each file", "Judged on data")
    assert "Original 6.11 MB 91.62" in text
    for expected in (
        "1.64 MB 0.27 × the original", "91.38 0.24 points lower", "98.7 % > 99.9 % in first five", "31.4 dB",
        "1.86 ms 0.58 × float32 95 %: 0.55 to 0.62", "4.53 ms 1.41 × float32", "Time on x86_64 host, 1 thread",
        "Compared on 10,000 samples of evaluation data.", "nothing about a phone", "static int8", "trained int8",
    ):  # fmt: skip
        assert expected in text, expected


def test_the_page_tells_everything_about_one_file() -> None:
    text = told()
    for expected in (
        "features.2.pointwise conv2d put back to float own output: 3.2 dB 3.2 dB alone at the output: 7.9 dB 7.9 dB", "18 more layers do less harm", "before any was put back",
        "0 layers in float fails 4.81 points lower 92.1 % 12.3 dB", "1 layer in float holds 0.24 points lower", "Put back: 1 layer.",
        "embedding embedding float32 205 kB No kernel of this runtime takes an int8 embedding.", "Probabilities need float.",
        "features.5.depthwise conv2d int8 42 kB One scale for the whole weight",
        "arm64 (emulated) 64 91.62 → 90.60 98.4 % 100 % 30.9 dB", "it ran fewer samples",
        "130 of 10,000 predictions changed their best class; the first 6 are shown.", "images/00000.png shirt T-shirt/top 0.021",
        "1.64 MB of 6.02 MB", "1.86 ms against 3.21 ms on x86_64 host, 1 thread: not a phone's time",
    ):  # fmt: skip
        assert expected in text, expected
    assert "reshape" not in text  # float, without weights and without a reason: never a candidate


def test_the_noisiest_layers_come_first_whatever_the_order_in_the_document() -> None:
    shuffled = guard(errors=errors()[::-1])
    assert told(shuffled) == told()
    text = section(told(), "Noise of each layer", "more layers")
    places = [text.index(name) for name in ("features.2.p", "features.0.p", "features.1.d", "features.11.d")]
    assert places == sorted(places)
    assert "features.12.pointwise" not in text
    quiet = [{"name": "a", "op": "linear", "snr_db": None}, {"name": "b", "op": "linear", "snr_db": 22.0}]
    text = section(told(guard(errors=quiet)), "Noise of each layer", "The search")
    assert text.index("b linear") < text.index("a linear")
    assert "a linear no error" in text
    assert "this layer alone" not in text  # nobody measured it


def test_bars_keep_inside_their_track_and_exact_layers_have_none() -> None:
    extreme = [
        {"name": n, "op": "x", "snr_db": v, "alone_db": v} for n, v in (("a", -40.0), ("b", 300.0), ("c", math.nan))
    ]
    made = report.render(package(quantized(found=guard(errors=extreme))), "html")
    widths = [
        float(w) for w in re.findall(r'<rect class="(?:bad|good|fill|warn|fair)" width="([\d.]+)" height="12"', made)
    ]
    assert widths
    assert all(0 < w <= 300 for w in widths)
    assert "no error" in Page(made).text
    assert "−40.0 dB" in Page(made).text


def test_pitfall_q_13_the_stages_of_training_say_where_accuracy_was_lost() -> None:
    text = section(told(guard(stages=STAGES)), "From training to the file: Top-1 accuracy", "Noise of each layer")
    for expected in (
        "float 91.62 –", "fake-quantized 91.55 −0.07", "converted most was lost here 91.31 −0.24", "lowered 91.30 −0.01",
    ):  # fmt: skip
        assert expected in text, expected
    assert "From training to the file" in told(details={"stages": STAGES})
    assert "most was lost" not in told(
        guard(stages=[{"name": "float", "value": 90.0}, {"name": "lowered", "value": 90.5}])
    )
    told(guard(stages=[{"name": "float"}, {}, "odd", {"name": "lowered", "value": math.nan}]))


def test_pitfall_q_16_the_page_says_how_much_of_the_weights_was_quantized() -> None:
    text = told()
    assert "86.1 % of the weights became int8" in text
    assert "int8 86.1 % (1.51 MB) in 29 layers" in text
    assert "float32 13.9 % (244 kB) in 2 layers" in text
    assert "Most of the weights stayed float" not in text
    mostly = [{**x, "precision": "float32"} if x["bytes"] > 50_000 else x for x in layers()]
    text = told(details={"layers": mostly})
    assert "Most of the weights stayed float" in text
    nothing = [{**x, "precision": "float32"} for x in layers()]
    assert "No weight was quantized" in told(details={"layers": nothing})


def test_pitfall_q_17_a_slower_file_comes_with_the_advice_to_keep_float() -> None:
    text = told(guard(race=race(1.41)))
    assert "Keep float32 unless size is the aim: this file takes 1.41 × the time of its float32 twin" in text
    assert "95 % interval 1.38 to 1.45" in text
    assert "Measure both on your device" in text
    assert "It is slower than float32 on the machine that built it: keep float32" in text
    head = section(page(document()).text, "Ready to ship", "Good to know")
    assert "onnx-static-int8 is slower than float32 on the machine that built it" in head
    for calm in (race(0.58), race(1.03, low=1.01), race(1.2, low=0.98), None):  # as evaluation.Race.slower decides
        assert "Keep float32" not in told(guard(race=calm))


@pytest.mark.parametrize(("ratio", "low"), [(1.41, 1.38), (1.03, 1.01), (1.2, 0.98), (0.5, 0.4), (1.06, 1.001)])
def test_pitfall_q_17_page_and_guard_agree_on_what_is_slower(ratio: float, low: float) -> None:
    found = Race(ratio, low, ratio + 0.1, 3.0, 3.0 * ratio, 4.0, "x86_64 host, 1 thread", 24)
    assert ("Keep float32" in told(guard(race=dict(found.__dict__)))) == found.slower


def test_pitfall_q_22_without_arm64_the_page_says_what_x86_hides() -> None:
    blind = guard(arm64=None, arm64_why="qemu-aarch64 is not installed.")
    text = told(blind)
    for expected in (
        "only on the x86_64 host",
        "qemu-aarch64 is not installed.",
        "CPU features avx2 fma",
    ):
        assert expected in text, expected
    assert "NEON" in text and "nothing saturates" in text
    assert "NEON" not in told()  # judged on arm64: nothing is hidden
    own = guard(arm64=None, evaluation=evaluation(where="aarch64 host"))
    assert "whose arithmetic is that of phones" in told(own)
    assert "NEON" not in page(package(variant())).text  # float32 has no such thing


VNNI, PLAIN = ["avx2", "avx512_vnni"], ["avx2", "fma"]


@pytest.mark.parametrize(
    ("id_", "flags", "says", "silent"),
    [
        ("executorch-xnnpack-static-int8", PLAIN, "All of them add in 32 bits", "16 bits"),
        ("onnx-static-int8", VNNI, "This processor has VNNI and adds int8 products in 32 bits", "NEON"),
        ("onnx-static-int8", PLAIN, "told to add exactly (session.x64quantprecision)", "NEON"),
        ("onnx-dynamic-int8", PLAIN, "a phone answers better than these figures say", "told to add exactly"),
        ("onnx-static-int8", [], "Which kernels were used isn't known", "has VNNI and"),
        ("torchscript-static-int8", PLAIN, "QNNPACK, the engine of phones, computed here as well", "XNNPACK picks"),
        ("onnx-weight-int8", PLAIN, "it computes in float", "16 bits"),
        ("onnx-weight-int4", PLAIN, "it computes in float", "16 bits"),
        ("executorch-xnnpack-weight-int4", PLAIN, "XNNPACK picks other int8 kernels", "computes in float"),
        ("executorch-xnnpack-weight-int8", PLAIN, "it computes in float", "NEON"),
    ],
)
def test_pitfall_q_22_each_engine_hides_something_else(id_: str, flags: list[str], says: str, silent: str) -> None:
    blind = guard(arm64=None, arm64_why="Not set up.", host={"machine": "x86_64", "flags": flags})
    runtime = id_.partition("-")[0]
    scheme = "-".join(id_.rsplit("-", 2)[1:])
    made = quantized(id_, blind, runtime=runtime, quantization=scheme, details={"cpu_flags": flags})
    text = section(page(package(made)).text, "Not judged on a phone's arithmetic", "How it was made")
    assert says in text and silent not in text


def test_what_runs_outside_the_back_end_is_one_statement_with_numbers() -> None:
    def words(share: float, leftovers: Json) -> str:
        made = variant(delegated_fraction=share)
        made["details"] = {**made["details"], "leftovers": leftovers}
        document = package(made)
        text = page(document).text
        assert "all of the arithmetic" not in text.lower()
        assert _leftovers.sentence(made) in html.unescape(report.render(document, "md")) or not leftovers
        return _leftovers.sentence(made)

    moved = {"aten::view_copy": 2, "dim_order_ops::_to_dim_order_copy": 1}
    assert words(1.0, {}) == "all of the matrix products and convolutions run in XNNPACK"
    assert (
        words(1.0, moved)
        == "all of the matrix products and convolutions run in XNNPACK; 3 other operators run outside, all of which compute nothing: they reshape, copy, fill or convert"
    )
    mixed = words(0.9, {**moved, "aten::sort.values": 4})
    assert (
        mixed
        == "90 % of the work runs in XNNPACK; 7 other operators run outside, 3 of which compute nothing: they reshape, copy, fill or convert"
    )
    assert (
        words(1.0, {"aten::gelu": 1})
        == "all of the matrix products and convolutions run in XNNPACK; one other operator runs outside"
    )


def test_the_bundle_s_bytes_are_split_into_what_they_are() -> None:
    parts = {"models": 3_600, "golden": 12_400, "rest": 4_000}
    document = package(bundle_bytes=20_000, bundle_parts=parts, golden=4)
    for suffix in ("html", "md"):
        text = page(document).text if suffix == "html" else report.render(document, "md")
        for expected in ("Golden vectors", "12.4 kB", "62 %", "3.6 kB", "4 recorded calls", "larger than the model"):
            assert expected in text, (suffix, expected)
    assert "What the bundle is made of" not in page(package()).text  # an older document doesn't say
    big = package(bundle_parts={"models": 9_000_000, "golden": 12_400, "rest": 4_000})
    assert "larger than the model" not in page(big).text


def test_a_bundle_s_manifest_tells_what_the_evaluation_showed() -> None:
    found = {k: v for k, v in evaluation().items() if k not in ("flips", "lost")}
    whole = quantized()
    part = {k: whole[k] for k in ("id", "runtime", "backend", "quantization", "file", "sha256", "verified", "rung")}
    document = {
        "schema": "edgesdk.bundle/1", "name": "net", "version": "1.0.0", "files": [], "golden": [],
        "variants": [{**part, "size": 1_640_000, "fidelity": {"outputs": [output(29.7)]}, "evaluation": found}],
    }  # fmt: skip
    text = page(document).text
    for expected in (
        "91.62 → 91.38",
        "98.7 %",
        "31.4 dB",
        "10,000 samples of evaluation data",
        "All of them add in 32 bits",
    ):
        assert expected in text, expected
    assert "It was not run on emulated arm64" not in text  # the manifest doesn't know


def test_times_are_never_shown_without_their_place() -> None:
    for suffix in ("html", "md"):
        text = html.unescape(report.render(document(), suffix)).replace("\\", "")
        assert "x86_64 host, 1 thread" in text
        assert re.search(r"not (of a device|a phone's)", text)
    nameless = guard(race=race(where=""))
    assert "the machine that built it" in told(nameless)
    bare = quantized(found=guard(race=None), latency_ms={"p50": 2.0, "p90": 2.1, "where": "x86_64 host, 2 threads"})
    assert "2 ms per run, 9 in 10 under 2.1 ms, measured on x86_64 host, 2 threads" in page(package(bare)).text
    mixed = page(package(quantized(), quantized("onnx-static-int8", guard(race=race(where="arm64 board")))))
    assert "arm64 board" in mixed.text


def test_the_verdict_follows_the_metric_not_the_noise() -> None:
    noisy = guard(evaluation=evaluation(91.5, outputs=[output(12.0)]))
    assert "Ready to ship" in told(noisy)
    assert "accuracy nearly kept" in told(noisy)
    assert "accuracy kept" in told(guard(evaluation=evaluation(91.6)))
    lower = told(guard(evaluation=evaluation(88.0)))
    assert "test its accuracy before you ship it" in lower
    assert "Top-1 accuracy 91.62 → 88.00" in lower
    plain = told(guard(evaluation=evaluation(None, data="calibration", top1=0.93)))
    assert "some answers change" in plain
    assert "same first answer for 93 % on 10,000 samples of calibration data" in plain
    assert "answers kept" in told(guard(evaluation=evaluation(None, top1=0.99)))
    made_up = told(guard(evaluation=evaluation(None, data="made up", where="x86_64 host")))
    assert "judged on made-up inputs" in made_up
    assert "visible differences" in told(guard(evaluation=evaluation(None, top1=None, outputs=[output(24.0)])))


def test_the_head_tells_of_the_worst_file() -> None:
    text = section(page(document()).text, "fashion-mobile", "What came out")
    assert "91.62 → 91.30" in text
    assert "Top-1 accuracy 91.30 the original has 91.62" in text


def test_each_figure_of_the_head_says_whose_it_is_when_there_are_several_files() -> None:
    found = document()
    text = page(found).text
    for place in ("the smallest: ", "the weakest: ", "the lowest: "):
        assert any(place + v["id"] in text for v in found["variants"]), place
    assert "the smallest: " not in page({**found, "variants": found["variants"][:1]}).text


def test_an_original_that_guesses_is_no_reason_to_ship() -> None:
    found = {**document(), "warnings": [{"code": "original_guesses", "message": "the original itself has top1 20.00"}]}
    text = page(found).text
    assert "Ready to ship" not in text and "say nothing about its accuracy" in text


def test_what_the_guard_mended_is_a_note_and_no_warning() -> None:
    said = package(quantized(), warnings=[{"code": c, "message": "m"} for c in ("layers_restored", "float_islands")])
    made = report.render(said, "html")
    assert re.findall(r'class="note (\w+)"><code>(\w+)', made) == [
        ("info", "layers_restored"),
        ("warn", "float_islands"),
    ]


def test_errors_are_told_as_errors() -> None:
    score = {"name": "mae", "original": 0.5, "value": 0.51, "drop": 2.0, "samples": 100}
    text = told(guard(evaluation=evaluation(None, top1=None, score=score)))
    assert "Mean absolute error 0.5 → 0.51" in text
    assert "2.0 % worse" in text
    assert "quality nearly kept" in text
    better = {"name": "user_metric", "original": 80.0, "value": 81.5, "drop": -1.5, "samples": 100}
    assert "1.50 points higher" in told(guard(evaluation=evaluation(None, score=better)))


def test_what_auto_tried_is_a_table_and_no_warning() -> None:
    text = page(document()).text
    tried = section(text, "What auto tried", "Every output")
    assert "executorch-xnnpack-dynamic-int8 Nothing in this model could be quantized." in tried
    assert "executorch-xnnpack-qat-int8 kept" in tried
    assert "a very long line" not in text
    alone = package(warnings=[{"code": "auto_choice", "message": "a very long line"}])
    assert "a very long line" in page(alone).text  # no table: nothing is swallowed


PARTS = ("noise", "floats", "probes", "flips", "arm64", "race", "tried", "layers", "score", "stages")


def without(parts: set[str]) -> Json:
    """A file whose document lacks some parts."""
    found = copy.deepcopy(guard(stages=STAGES, tried={"a": "kept"}))
    for part, empty in (("probes", []), ("arm64", None), ("race", None), ("tried", {}), ("stages", [])):
        if part in parts:
            found[part] = empty
    if "noise" in parts:
        found["errors"] = []
    if "flips" in parts:
        found["evaluation"].update(flipped=0, flips=[])
    if "score" in parts:
        found["evaluation"]["score"] = None
    left = [] if "layers" in parts else [{**x, "precision": "int8"} if "floats" in parts else x for x in layers()]
    return package(quantized(found=found, details={"layers": left}))


@pytest.mark.parametrize(
    "missing", [{p} for p in PARTS] + [set(PARTS), set(PARTS) - {"noise"}], ids=lambda s: "-".join(sorted(s))
)
def test_missing_parts_leave_no_empty_boxes(missing: set[str]) -> None:
    made = report.render(without(missing), "html")
    assert Page(made).open == []
    heads = {
        "noise": "Noise of each layer", "floats": "Layers left in float", "probes": "The search for", "flips": "Changed predictions",
        "race": "Time against float32", "tried": "What auto tried", "layers": "Weights by precision", "score": "Top-1 accuracy",
        "stages": "From training to the file",
    }  # fmt: skip
    for part, head in heads.items():
        gone = part in missing or (part == "floats" and "layers" in missing)
        assert (head in made) != gone, part
    assert not re.search(r"<h4>[^<]*</h4>\s*</div>", made)  # a heading and nothing below
    assert not re.search(r"<(ol|ul|dl|table|p)[^>]*>\s*</\1>", made)
    assert not re.search(r"<th[^>]*></th><th[^>]*></th>", made)
    report.render(without(missing), "md")


def test_a_guard_that_judged_nothing_says_nothing() -> None:
    """With ``auto`` and no data the guard holds the choice only."""
    empty = Guarded(Evaluation(samples=0, data="none", where=""), tried={"executorch-xnnpack-none": "kept"}).to_json()
    made = variant()
    made["details"] = {**made["details"], "layers": [], "guard": empty}
    text = page(package(made)).text
    assert "What auto tried" in text
    for absent in (
        "Judged on data",
        "A phone's arithmetic",
        "of unnamed data",
        "made-up inputs",
        "The original and each file",
    ):
        assert absent not in text, absent
    assert "Ready to ship" in text


def test_broken_numbers_do_not_break_the_page() -> None:
    bad = guard(
        evaluation=evaluation(None, score={"name": "top1", "original": math.nan, "value": None, "drop": math.inf}, top1=math.nan, flips=None),
        race={"ratio": math.nan}, probes=[{}, {"drop": math.nan}], errors=[{}, {"name": None}], arm64={"samples": 3}, restored=None,
    )  # fmt: skip
    for suffix in ("html", "md", "csv", "json"):
        report.render(package(quantized(found=bad, latency_ms=None, details={"layers": [{}]})), suffix)
    empty: list[Json] = [{}, {"layers": None, "guard": None}, {"guard": {}}]
    for nothing in empty:
        page(package(variant(details=nothing)))


@pytest.mark.parametrize("count", [0, 1, 25, 26, 400])
def test_long_tables_are_cut_and_say_so(count: int) -> None:
    many = [
        {"name": f"block.{i:03}", "op": "conv2d", "precision": "float32", "bytes": 4000, "why": "Too small."}
        for i in range(count)
    ]
    text = told(details={"layers": many})
    assert len(re.findall(r"block\.\d+", text)) == min(count, 25)
    assert ("more layers in float" in text) == (count > 25)
    if count == 400:
        assert "375 more layers in float (1.5 MB together)" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_quantization_stay_text(name: str) -> None:
    evil = guard(
        evaluation=evaluation(
            where=name, data=name, flips=[{"where": name, "was": name, "became": name}], outputs=[output(31.0, name=name)],
            score={"name": name, "original": 91.0, "value": 90.0, "drop": 1.0, "samples": 3}, lost={name: 0.5},
        ),
        arm64=evaluation(where=name, samples=5), arm64_why=name, errors=[{"name": name, "op": name, "snr_db": 3.0, "alone_db": 4.0}],
        restored=[name], race=race(1.5, where=name), tried={name: name}, stages=[{"name": name, "value": 1.0}],
    )  # fmt: skip
    odd = [{"name": name, "op": name, "precision": p, "bytes": 9, "why": name} for p in ("float32", "int8", name)]
    blind = {**evil, "arm64": None}
    files = (quantized(found=evil, details={"layers": odd}), quantized("onnx-static-int8", blind, quantization=name))
    made = report.render(package(*files), "html")
    found, plain = Page(made), page(document())
    assert found.open == []
    assert found.tags <= plain.tags
    assert not {n for n, _ in found.attributes} & {"onerror", "onclick", "src", "href"}
    assert "\u202e" not in made
    assert "\x00" not in made
    assert "49" not in re.findall(r"\{\{.*?\}\}|\b49\b", found.text)
    made.encode("utf-8", "backslashreplace")


@pytest.mark.parametrize("name", ["a|b", "`x`", "``", "<img src=x>", "[a](b)", "a\n# b", "*b*", "![x](y)"])
def test_no_layer_or_sample_name_is_markup_in_markdown(name: str) -> None:
    evil = guard(
        evaluation=evaluation(where=name, flips=[{"where": name, "was": name, "became": name}]), restored=[name], tried={name: name},
        errors=[{"name": name, "op": name, "snr_db": 3.0, "alone_db": 4.0}], race=race(1.5, where=name),
        stages=[{"name": name, "value": 1.0}],
    )  # fmt: skip
    odd = [{"name": name, "op": name, "precision": p, "bytes": 9, "why": name} for p in ("float32", "int8")]
    text = report.render(package(quantized(found=evil, details={"layers": odd}), version="1"), "md")
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    widths: dict[int, set[int]] = {}
    table = 0
    for line in text.splitlines():
        table += not line.startswith("|")
        if line.startswith("|"):
            widths.setdefault(table, set()).add(len(re.findall(r"(?<!\\)\|", line)))
    assert all(len(found) == 1 for found in widths.values())  # every row of a table has the columns of its head
    outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", text)
    assert not re.search(r"(?<!\\)<(?!br>)", outside)


def test_markdown_tells_the_same_as_the_page() -> None:
    text = report.render(document(), "md").replace("\\", "")
    for expected in (
        "| Original | 6.11 MB | 91.62 |", "91.38<br>0.24 points lower", "0.58 × float32 (95 % interval 0.55 to 0.62)",
        "`features.2.pointwise` (put back to float) | conv2d | 3.2 dB | 7.9 dB |", "18 more layers", "| 1 | 0.24 points lower |",
        "Keep float32 unless size is the aim", "int8 86.1 % (1.51 MB)", "| converted | 91.31 | −0.24 |", "x64quantprecision",
        "images/00000.png | shirt | T-shirt/top | 0.021", "`executorch-xnnpack-qat-int8` | kept", "arm64 (emulated) | 64 |",
        "No kernel of this runtime takes an int8 embedding.",
    ):  # fmt: skip
        assert expected in text, expected


def test_csv_has_the_numbers_unrounded_and_host_times_apart_from_device_times() -> None:
    rows = list(csv.DictReader(io.StringIO(report.render([document(), package()], "csv"))))
    made = rows[1]
    assert (made["metric"], made["metric_original"], made["metric_value"]) == ("top1", "91.62", "91.38")
    assert (made["judged_samples"], made["flipped"], made["judged_snr_db"], made["arm64_snr_db"]) == (
        "10000",
        "130",
        "31.4",
        "30.9",
    )
    assert (float(made["host_ratio"]), made["host_where"], made["p50_ns"]) == (0.58, "x86_64 host, 1 thread", "")
    assert (made["layers_float"], made["layers_restored"], made["float_bytes"]) == ("3", "1", "6020000")
    assert float(made["quantized_weight_fraction"]) == pytest.approx(0.8612, abs=1e-4)
    assert {
        rows[4][k] for k in ("metric", "host_ratio", "layers_float", "arm64_samples", "quantized_weight_fraction")
    } == {""}


def test_what_the_pipeline_writes_is_what_the_report_reads() -> None:
    """The data classes themselves, not a document that only looks like theirs."""
    out = OutputFidelity("logits", 0.4, 0.03, 14.0, 31.0, 0.999, 0.98)
    score = Score("top1", 91.6, 91.4, 0.2, 1000)
    found = Evaluation(
        1000, "evaluation", "x86_64 host", score, top1=0.98, top5=1.0, rows=1000, flipped=20,
        flips=(Flip("img/7.png", "cat", "dog", 0.02),), outputs=(out,), lost={"logits": 0.1},
    )  # fmt: skip
    guarded = Guarded(
        found, arm64=Evaluation(64, "evaluation", "arm64 (emulated)", score, 0.97, 1.0, 64, 2, outputs=(out,)),
        errors=(LayerError("stem", "conv2d", 9.5, 14.5), LayerError("head", "linear", 30.0, 41.0)), restored=("stem",),
        probes=(Probe(0, False, 3.5, 0.8, 11.0), Probe(1, True, 0.2, 0.98, 31.0)), float_bytes=4_000_000,
        race=Race(0.7, 0.66, 0.75, 10.0, 7.0, 7.4, "x86_64 host, 1 thread", 24), tried={"executorch-xnnpack-static-int8": "kept"},
    )  # fmt: skip
    kept = (Layer("stem", "conv2d", "float32", 3456, "The guard put it back."), Layer("head", "linear", "int8", 40_000))
    lowered = Lowered(
        "executorch", "xnnpack", "static-int8", Path("m.pte"), "full", delegated_fraction=1.0, layers=kept
    )
    result = VariantResult(
        lowered, Verification(True, (out,), samples=8), "m.pte", 1_100_000, "ab" * 32, "full", guarded=guarded
    )
    made = package(json.loads(json.dumps(result.to_json())), original_bytes=4_000_000)
    text = page(made).text
    for expected in (
        "0.20 points lower", "stem conv2d put back to float own output: 9.5 dB", "The guard put it back.", "img/7.png cat dog 0.02",
        "92 % of the weights became int8", "7 ms against 10 ms on x86_64 host, 1 thread", "arm64 (emulated) 64", "0.66 to 0.75",
        "Channels lost in noise 10 % of output logits", "3.50 points lower",
    ):  # fmt: skip
        assert expected in text, expected
