"""Numbers in words: never rounder than the truth."""

from __future__ import annotations

import pytest

from edgesdk.report import _charts, _preparing, _words


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (13_998_080, "14 MB"), (3_710_000, "3.71 MB"), (999_999, "1 MB"), (2.5e9, "2.5 GB"),
     (None, "–")],
)  # fmt: skip
def test_sizes(value: float | None, text: str) -> None:
    assert _words.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "100 %"),
        (0.99996, "> 99.9 %"),
        (0.9987, "99.9 %"),
        (0.0, "0 %"),
        (0.0002, "< 0.1 %"),
        (0.5, "50 %"),
        (None, "–"),
    ],
)
def test_a_share_is_100_percent_only_when_it_is(value: float | None, text: str) -> None:
    assert _words.percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(20_050_000, "20.1 ms"), (310_000, "310 µs"), (12, "12 ns"), (2.5e9, "2.5 s"), (None, "–")]
)
def test_times(value: float | None, text: str) -> None:
    assert _words.nanoseconds(value) == text


@pytest.mark.parametrize(
    ("snr", "head"),
    [(120.0, "same answers"), (90.0, "same answers"), (60.0, "nearly the same answers"), (35.0, "close answers"),
     (22.0, "roughly the same answers"), (5.0, "different answers"), (-3.0, "different answers")],
)  # fmt: skip
def test_fidelity_follows_the_worst_output(snr: float, head: str) -> None:
    outputs = [{"name": "a", "max_abs_error": 1.0, "snr_db": 130.0}, {"name": "b", "max_abs_error": 1.0, "snr_db": snr}]
    assert _words.fidelity({"verified": True, "outputs": outputs})[0] == head


def test_counts_and_shapes() -> None:
    assert [_words.count(v) for v in (3_504_872, 300_774_272, 999, None)] == ["3.5 million", "301 million", "999", "–"]
    assert _words.shape(["1..8", 3]) == "1…8 × 3"
    assert _words.shape([]) == "a single number"
    assert _words.shape(None) == "any shape"


@pytest.mark.parametrize("share", [0.0, 0.004, 0.5, 0.9999, 1.0])
def test_a_ring_says_what_the_sentence_says(share: float) -> None:
    svg = str(_charts.donut(share, "label"))
    assert (">100<" in svg) == (share == 1.0)
    assert (">0<" in svg) == (share == 0.0)


def test_charts_take_any_numbers() -> None:
    for samples in ([5.0], [1.0, 1.0, 1.0], [1.0, 2.0, 1000.0], [0.0, 3.0]):
        for svg in (_charts.histogram(samples, [("p50", samples[0])], "x"), _charts.timeline([samples], "x")):
            assert "nan" not in svg
            assert "inf" not in svg
    for svg in (
        _charts.gauge(None, "x"),
        _charts.gauge(-4.0, "x"),
        _charts.gauge(500.0, "x"),
        _charts.stack([("a", 0.0)], "x"),
    ):
        assert "nan" not in svg
    assert "&lt;b&gt;" in _charts.bar(3.0, "<b>")


def test_every_preprocessing_that_the_package_writes_is_told() -> None:
    from edgesdk.preprocess import PreprocessSpec

    told = _preparing.steps(PreprocessSpec.from_options(224, resize="letterbox").to_json())
    assert any("fit inside 224 × 224" in step for step in told)
    audio = _preparing.steps(
        {"kind": "audio", "version": 1, "sample_rate": 16000, "samples": 16000, "frame": None, "normalize": "peak"}
    )
    assert "resample to 16000 Hz" in audio[0]
    assert _preparing.steps(None) == ()
