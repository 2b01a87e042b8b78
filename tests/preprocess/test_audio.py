"""Sounds: files of every width, frames, and normalisation held against transformers' own."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.errors import InputError, UsageError
from edgesdk.preprocess import AudioSpec


def tone(samples: int = 1000) -> np.ndarray:
    return (0.5 * np.sin(np.arange(samples) * 0.3) + 0.1).astype(np.float32)


def written(path: Path, width: int, rate: int = 16000, channels: int = 1) -> Path:
    whole = np.rint(tone().astype(np.float64) * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    if width == 1:
        data = (whole + 128).astype(np.uint8).tobytes()
    else:
        data = b"".join(int(v).to_bytes(width, "little", signed=True) * channels for v in whole)
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(data)
    return path


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_wav_files_of_every_width(tmp_path: Path, width: int) -> None:
    given = AudioSpec().apply(written(tmp_path / "a.wav", width))
    assert given.shape == (1, 1000) and given.dtype == np.float32
    assert np.abs(given[0] - tone()).max() < 1.5 / 2 ** (8 * width - 1) + 1e-6


def test_channels_are_averaged(tmp_path: Path) -> None:
    stereo = AudioSpec().apply(written(tmp_path / "s.wav", 2, channels=2))
    assert np.array_equal(stereo, AudioSpec().apply(written(tmp_path / "m.wav", 2)))
    both = np.stack([tone(), -tone()], axis=1)
    assert np.abs(AudioSpec().apply(both)).max() < 1e-7


def test_frames_cover_every_sample() -> None:
    frames = AudioSpec(frame=256, hop=100).apply(tone())
    assert frames.shape == (9, 256)
    for i in range(9):
        have = tone()[i * 100 : i * 100 + 256]
        assert np.array_equal(frames[i, : len(have)], have) and not frames[i, len(have) :].any()
    assert AudioSpec(frame=256).apply(tone(256)).shape == (1, 256)
    assert AudioSpec(frame=256).apply(tone(257)).shape == (2, 256)


def test_standard_normalisation_equals_wav2vec2() -> None:
    from transformers import Wav2Vec2FeatureExtractor

    wanted = Wav2Vec2FeatureExtractor(do_normalize=True)(tone(), sampling_rate=16000).input_values[0]
    assert AudioSpec(normalize="standard").apply(tone())[0] == pytest.approx(wanted, abs=1e-5)


def test_peak_length_and_silence() -> None:
    assert np.abs(AudioSpec(normalize="peak").apply(tone())).max() == 1
    assert AudioSpec(samples=1200).apply(tone()).shape == (1, 1200)
    assert AudioSpec(samples=300).apply(tone()).shape == (1, 300)
    for normalize in ("peak", "standard"):
        assert not AudioSpec(frame=10, normalize=normalize).apply(np.zeros(25, np.float32)).any()  # type: ignore[arg-type]
    assert AudioSpec().apply(np.array([16384], np.int16))[0, 0] == 0.5


def test_a_file_that_is_cut_short_is_read_up_to_its_last_whole_frame_or_refused(tmp_path: Path) -> None:
    whole = written(tmp_path / "s.wav", 3, channels=2)
    data, wanted = whole.read_bytes(), AudioSpec().apply(whole)
    cut = tmp_path / "cut.wav"
    for end in range(120):
        cut.write_bytes(data[:end])
        if end < 44 + 6:
            with pytest.raises(InputError):
                AudioSpec().apply(cut)
        else:
            assert np.array_equal(AudioSpec().apply(cut), wanted[:, : (end - 44) // 6])


def test_other_rates_and_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.wav").write_bytes(b"RIFFnothing")
    for data, word in (
        (written(tmp_path / "r.wav", 2, rate=8000), "8000"),
        (tmp_path / "t.wav", "can't be read"),
        (tmp_path / "gone.wav", "gone.wav"),
        (np.zeros(4, np.int32), "int32"),
        (np.zeros(0, np.float32), "no samples"),
    ):
        with pytest.raises(InputError, match=word):
            AudioSpec().apply(data)
    with pytest.raises(UsageError):
        AudioSpec(hop=5)


def test_fits() -> None:
    framed = AudioSpec(frame=1024, hop=160)
    assert framed.fits(TensorSpec("x", "float32", (Dim(1, 100), 1024))) is None
    assert "1024" in str(framed.fits(TensorSpec("x", "float32", (Dim(1, 100), 512))))
    assert AudioSpec(samples=512).fits(TensorSpec("x", "float32", (1, 512))) is None
    assert "2 dimensions" in str(framed.fits(TensorSpec("x", "float32", (1, 3, 8, 8))))
    assert "int64" in str(framed.fits(TensorSpec("x", "int64", (1, 8))))
    assert AudioSpec(samples=1000, frame=256, hop=100).fits(TensorSpec("x", "float32", (9, 256))) is None
