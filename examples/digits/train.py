"""Train a small CNN on scikit-learn's digits, in seconds, and save it as an exported program.

python train.py digits.pt2
"""

from __future__ import annotations

import sys

import torch
from data import HELD_OUT, digits
from torch import nn


def network() -> nn.Sequential:
    """Two convolutions and two linear layers: ``[n, 1, 8, 8]`` to ten scores."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(1024, 96), nn.ReLU(), nn.Linear(96, 10),
    )  # fmt: skip


def train(images: torch.Tensor, labels: torch.Tensor, epochs: int = 8) -> nn.Sequential:
    """The trained network, in eval mode; the same every time on one machine."""
    torch.manual_seed(0)
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimizer.step()
    return net.eval()


def main(path: str) -> None:
    images, labels = map(torch.from_numpy, digits())
    net = train(images[:-HELD_OUT], labels[:-HELD_OUT])
    with torch.no_grad():
        right = net(images[-HELD_OUT:]).argmax(1) == labels[-HELD_OUT:]
    torch.export.save(torch.export.export(net, (images[:1],)), path)
    print(f"{path}: {right.float().mean():.1%} of {HELD_OUT} unseen digits are read right")


if __name__ == "__main__":
    main(sys.argv[1])
