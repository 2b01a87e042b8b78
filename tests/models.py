"""Small trained networks that many tests share; made once per test run."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


def digits_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(512, 48), nn.ReLU(), nn.Linear(48, 10),
    )  # fmt: skip


@functools.cache
def digits_data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(float32 [1797, 1, 8, 8] in 0…1, int64 labels), shuffled."""
    from sklearn.datasets import load_digits

    found, order = load_digits(), np.random.default_rng(0).permutation(1797)
    return (found.images[order, None] / 16).astype(np.float32), found.target[order].astype(np.int64)


@functools.cache
def trained_digits() -> nn.Module:
    """About 97 % on the last 400 digits after three seconds of training."""
    torch.manual_seed(0)
    pixels, labels = digits_data()
    net = digits_net()
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(6):
        for batch in torch.randperm(len(pixels) - 400).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(torch.from_numpy(pixels)[batch]), torch.from_numpy(labels)[batch])
            loss.backward()
            optimizer.step()
    return net.eval()


@functools.cache
def digits_pt2() -> Path:
    """The trained digits net as an exported program."""
    path = Path(tempfile.mkdtemp(prefix="edgesdk-tests-")) / "digits.pt2"
    torch.export.save(torch.export.export(trained_digits(), (torch.zeros(1, 1, 8, 8),)), path)
    return path
