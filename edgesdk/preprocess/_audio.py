"""Preprocessing of sounds: one channel, cut into frames, normalised.

The steps, always in this order:

1.  **decode** PCM ``.wav`` (8, 16, 24 or 32 bits) to float32 in [-1, 1): sample / 2^(bits-1); 8 bits are unsigned.
    Channels are averaged.
2.  **length**: with ``samples`` the sound is cut, or padded with zeros at its end, to that many samples.
3.  **frames**: with ``frame`` and ``hop``, frame i holds the samples from i·hop; zeros are put at the end so that the
    last sample lies in a frame: ``1 + ceil(max(0, n - frame) / hop)`` frames.
4.  **normalise** each frame (the whole sound when there are none): ``peak`` divides by the largest magnitude,
    ``standard`` gives mean 0 and variance 1, ``(x - mean) / sqrt(variance + 1e-7)`` with the population variance.
    Silence stays silence.

The result is float32 [1, n] without frames, [frames, frame] with them. Sums run in double precision; other languages
agree within 1e-6, as sums have no agreed order. Resampling and mel spectrograms are not built: a sound at another
rate is refused, and a JSON document that asks for a step of that name is too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.errors import InputError, UnsupportedError, UsageError, nearest
from edgesdk.preprocess._image import one_of
from edgesdk.preprocess._spec import PreprocessSpec

if TYPE_CHECKING:
    import numpy as np

Normalize = Literal["none", "peak", "standard"]
_EPSILON = 1e-7  # transformers' Wav2Vec2FeatureExtractor.zero_mean_unit_var_norm


@dataclass(frozen=True)
class AudioSpec(PreprocessSpec):
    """From a sound to ``[1, n]`` or ``[frames, frame]``; the module's text defines every step.

    Attributes:
        sample_rate: samples per second that the model was trained with.
        samples: fixed length in samples, or None.
        frame: samples of a frame, or None for the whole sound.
        hop: samples from one frame's start to the next; None: ``frame``.
    """

    kind: ClassVar[str] = "audio"

    sample_rate: int = 16000
    samples: int | None = None
    frame: int | None = None
    hop: int | None = None
    normalize: Normalize = "none"

    def __post_init__(self) -> None:
        one_of("normalize", self.normalize, Normalize)
        for name in ("sample_rate", "samples", "frame", "hop"):
            value = getattr(self, name)
            if (value is not None or name == "sample_rate") and (not isinstance(value, int) or value < 1):
                raise UsageError(
                    "bad_preprocess", f"{name}: {value!r} is no number of samples.",
                    why="It is a whole number, at least 1.", fix=f"Correct {name}, or leave it out.",
                )  # fmt: skip
        if self.hop and not self.frame:
            raise UsageError(
                "bad_preprocess", "A hop without a frame says nothing.", why="The hop is the way from frame to frame.",
                fix="Give frame too, or leave hop out.",
            )  # fmt: skip

    def apply(self, data: Any) -> np.ndarray:
        """The tensor of one sound.

        Args:
            data: path of a PCM ``.wav``, or an array [n] or [n, channels] at ``sample_rate``: float in [-1, 1], int16.

        Raises:
            InputError: not a PCM ``.wav``, another sample rate, or no samples.
        """
        import numpy as np

        wave = _read(Path(data), self.sample_rate) if isinstance(data, (str, Path)) else _floats(np.asarray(data))
        if wave.size == 0:
            raise _bad("holds no samples", "The sound is empty.")
        if self.samples:
            wave = np.pad(wave[: self.samples], (0, max(0, self.samples - len(wave))))
        frames = wave[None] if not self.frame else _frames(wave, self.frame, self.hop or self.frame)
        return np.ascontiguousarray(_normalise(frames.astype(np.float64), self.normalize), np.float32)

    def fits(self, tensor: TensorSpec) -> str | None:
        if tensor.dtype != "float32":
            return f"The sound becomes float32, but '{tensor.name}' takes {tensor.dtype}."
        if tensor.shape is None:
            return None
        if len(tensor.shape) != 2:
            return f"The sound becomes 2 dimensions, but '{tensor.name}' has {len(tensor.shape)}."
        count, length = (None, self.frame) if self.frame else (1, self.samples)
        if self.frame and self.samples:
            count = 1 + math.ceil(max(0, self.samples - self.frame) / (self.hop or self.frame))
        for dim, size in zip(tensor.shape, (count, length), strict=True):
            free = isinstance(dim, Dim) and (size is None or dim.min <= size <= dim.max)
            if not free and dim != size:
                return f"The sound becomes [{count or 'any'}, {length or 'any'}], but '{tensor.name}' is {tensor}."
        return None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "version": 1, **asdict(self)}

    @staticmethod
    def read(document: Mapping[str, Any]) -> AudioSpec:
        """See :meth:`PreprocessSpec.from_json`, which translates the errors."""
        rest = {key: value for key, value in document.items() if key not in ("kind", "version")}
        for step in ("resample", "mel"):
            if rest.get(step) is not None:
                raise UnsupportedError(
                    "preprocess_unsupported", f"The audio step '{step}' isn't built.",
                    why="This version of edgesdk frames and normalises sounds, no more.",
                    fix="Compute it inside the model (torchaudio's transforms export), or feed the tensor yourself.",
                )  # fmt: skip
        known = {field.name for field in fields(AudioSpec)}
        for key in rest:
            if key not in known:
                raise ValueError(f"The field '{key}' is unknown. {nearest(key, known)}")
        if document["version"] != 1:
            raise ValueError(f"Version {document['version']} is unknown; 1 is known.")
        return AudioSpec(**rest)


def _bad(message: str, why: str) -> InputError:
    return InputError(
        "sound_unreadable", f"The sound {message}.", why=why,
        fix="Convert it: ffmpeg -i SOUND -ac 1 -ar RATE -c:a pcm_s16le sound.wav",
    )  # fmt: skip


def _read(path: Path, rate: int) -> np.ndarray:
    import wave

    import numpy as np

    try:
        with wave.open(str(path), "rb") as file:
            width, channels, found = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (OSError, EOFError, RuntimeError, wave.Error) as exc:  # RuntimeError: a chunk that ends behind the file
        raise _bad(f"'{path}' can't be read", f"It isn't a PCM .wav file: {exc}.") from exc
    if width > 4:
        raise _bad(f"'{path}' can't be read", "It isn't a PCM .wav file of 8, 16, 24 or 32 bits.")
    data = data[: len(data) // (width * channels) * width * channels]  # cut short: its last frame isn't whole
    if found != rate:
        raise _bad(f"'{path}' has {found} samples per second, not {rate}", "Resampling isn't built.")
    if width == 1:
        samples = np.frombuffer(data, np.uint8).astype(np.float32) / 128 - 1
    else:
        # Little-endian integers of 2…4 bytes, put into the high bytes of 32 bits.
        raw = np.frombuffer(data, np.uint8).reshape(-1, width)
        wide = np.zeros((len(raw), 4), np.uint8)
        wide[:, 4 - width :] = raw
        samples = (wide.view("<i4")[:, 0].astype(np.float64) / 2**31).astype(np.float32)
    return _floats(samples.reshape(-1, channels))


def _floats(samples: np.ndarray) -> np.ndarray:
    import numpy as np

    if samples.ndim not in (1, 2) or not (samples.dtype == np.int16 or samples.dtype.kind == "f"):
        raise _bad(
            f"is an array {samples.dtype}{list(samples.shape)}",
            "Sounds are float or int16 arrays [n] or [n, channels].",
        )
    values = samples.astype(np.float64) / (2**15 if samples.dtype == np.int16 else 1)
    return values if values.ndim == 1 else values.mean(axis=1)


def _frames(wave: np.ndarray, frame: int, hop: int) -> np.ndarray:
    import numpy as np

    count = 1 + math.ceil(max(0, len(wave) - frame) / hop)
    padded = np.pad(wave, (0, max(0, (count - 1) * hop + frame - len(wave))))
    return np.stack([padded[i * hop : i * hop + frame] for i in range(count)])


def _normalise(frames: np.ndarray, how: Normalize) -> np.ndarray:
    import numpy as np

    if how == "peak":
        peak = np.abs(frames).max(axis=1, keepdims=True)
        return np.asarray(frames / np.where(peak == 0, 1, peak))
    if how == "standard":
        centred = frames - frames.mean(axis=1, keepdims=True)
        return np.asarray(centred / np.sqrt(centred.var(axis=1, keepdims=True) + _EPSILON))
    return frames
