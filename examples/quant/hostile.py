"""A net that int8 can't take: the plain CNN with one channel a thousand times larger, and taken back by the next layer.

    python hostile.py cnn.pt OUT.pt2       cnn.pt: the state dict that examples/fashion/train.py saves

In float it computes the same function (ReLU and maximum pooling pass a positive factor on). In int8 the scale of the second
convolution's output is set by the one channel, and the other 47 are left with none of the 255 steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fashion"))
from nets import Plain

FACTOR, CHANNEL, PIXELS = 1000.0, 0, 49  # 7 x 7 values of each channel enter the linear layer


def hostile(net: Plain) -> Plain:
    """Change ``net`` in place; its answers stay the same up to rounding."""
    conv, linear = net[3], net[8]
    with torch.no_grad():
        conv.weight[CHANNEL] *= FACTOR
        conv.bias[CHANNEL] *= FACTOR
        linear.weight[:, CHANNEL * PIXELS : (CHANNEL + 1) * PIXELS] /= FACTOR
    return net


def main(weights: str, out: str) -> None:
    net = Plain().eval()
    net.load_state_dict(torch.load(weights, weights_only=True))
    images = torch.randn(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before, after = net(images), hostile(net)(images)
    torch.export.save(torch.export.export(net, (images[:1],)), out)
    print(f"{out}: float answers differ by {(before - after).abs().max():.1e} at most")


if __name__ == "__main__":
    main(*sys.argv[1:3])
