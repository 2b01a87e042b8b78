"""Train a net on Fashion-MNIST and save what ``edgesdk package`` needs: the model, calibration and evaluation data.

python train.py cnn OUT            OUT/cnn.pt2, OUT/cnn.pt (state dict), OUT/calibration.npz, OUT/eval.npz, …
python train.py depthwise OUT      the same with depthwise.pt2
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from data import DEBIAN, balanced, fashion
from nets import Depthwise, Plain
from torch import nn

NETS = {"cnn": Plain, "depthwise": Depthwise}
EPOCHS = {"cnn": 3, "depthwise": 3}
BATCH, RATE = 128, {"cnn": 2e-3, "depthwise": 1e-2}
CALIBRATION, QUICK = 300, 2000


def train(name: str, images: torch.Tensor, labels: torch.Tensor, steps: int) -> nn.Module:
    """The trained net in eval mode; the same every time on one machine."""
    torch.manual_seed(0)
    net = NETS[name]()
    if name == "depthwise":
        net = net.to(memory_format=torch.channels_last)  # its convolutions train twice as fast so
    optimizer = torch.optim.AdamW(net.parameters(), RATE[name], weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE[name], total_steps=steps)
    done = 0
    while done < steps:
        for batch in torch.randperm(len(images)).split(BATCH)[: steps - done]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
            done += 1
        print(f"{name}: {done} of {steps} steps", file=sys.stderr)
    return net.eval().to(memory_format=torch.contiguous_format)


def accuracy(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of the images that are classified right."""
    with torch.no_grad():
        right = [(net(x).argmax(1) == y).float() for x, y in zip(images.split(500), labels.split(500), strict=True)]
    return float(torch.cat(right).mean())


def save_data(out: Path, folder: Path) -> None:
    """``calibration.npz``, of each class equally many, ``eval.npz``, and ``eval-quick.npz``, a part of it."""
    for name, part, count in (
        ("calibration", "train", CALIBRATION), ("eval", "t10k", None), ("eval-quick", "t10k", QUICK)
    ):  # fmt: skip
        images, labels = fashion(part, folder)
        chosen = slice(None) if count is None else balanced(labels, count)
        np.savez(out / f"{name}.npz", input=images[chosen], label=labels[chosen])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=NETS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, help=f"of {BATCH} images; default: {EPOCHS['cnn']} epochs")
    parser.add_argument(
        "--data", type=Path, default=DEBIAN, metavar="DIR", help="the four IDX files; default: Debian's"
    )
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    images, labels = map(torch.from_numpy, fashion("train", args.data))
    begin = time.perf_counter()
    net = train(args.net, images, labels, args.steps or EPOCHS[args.net] * -(-len(images) // BATCH))
    seconds = time.perf_counter() - begin
    right = accuracy(net, *map(torch.from_numpy, fashion("t10k", args.data)))
    torch.save(net.state_dict(), args.out / f"{args.net}.pt")
    example = (torch.zeros(1, 1, 28, 28),)
    torch.export.save(torch.export.export(net, example), args.out / f"{args.net}.pt2")
    save_data(args.out, args.data)
    size = sum(p.numel() for p in net.parameters())
    print(f"{args.out / args.net}.pt2: {size:,} parameters, {right:.2%} of the test images right, {seconds:.0f} s")


if __name__ == "__main__":
    main()
