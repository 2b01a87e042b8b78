"""Nets that int8 can't take as they are: the same functions as the trained ones, written with uneven channels.

    python hostile.py cnn cnn.pt OUT.pt2               one channel a thousand times larger, taken back by the next layer
    python hostile.py depthwise depthwise.pt OUT.pt2   channels between the blocks 1/11 to 11 times as large, and taken back

The state dicts are those that examples/fashion/train.py saves. In float such a net computes what it did. In int8 the scale of
a tensor is set by its largest channel, and the others are left with few of the 255 steps. Nets come out of training like
that, too: see figure 2 of Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fashion"))
from nets import Depthwise, Plain

FACTOR, CHANNEL, PIXELS = 1000.0, 0, 49  # 7 x 7 values of each channel enter the linear layer
OCTAVES = 3.5
"""Channels between the blocks are multiplied by up to two to this power, and divided by it."""


def one_channel(net: Plain) -> Plain:
    """Change ``net`` in place: ReLU and maximum pooling pass a positive factor on."""
    conv, linear = net[3], net[8]
    with torch.no_grad():
        conv.weight[CHANNEL] *= FACTOR
        conv.bias[CHANNEL] *= FACTOR
        linear.weight[:, CHANNEL * PIXELS : (CHANNEL + 1) * PIXELS] /= FACTOR
    return net


def uneven(net: Depthwise) -> Depthwise:
    """Change ``net`` in place: nothing but additions lies between the end of a block and the start of the next."""
    blocks = [block.body for block in net.blocks]
    streams = (
        ((blocks[0], blocks[1]), (blocks[1], blocks[2])),  # those that write to the sum, those that read it
        ((blocks[2], blocks[3]), (blocks[3], net.head)),
    )
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for writers, readers in streams:
            width = writers[0][-1].num_features
            factors = 2 ** (OCTAVES * (2 * torch.rand(width, generator=random) - 1))
            for body in writers:
                body[-1].weight.mul_(factors)
                body[-1].bias.mul_(factors)
            for body in readers:
                body[0].weight.div_(factors[:, None, None])
    return net


def main(name: str, weights: str, out: str) -> None:
    net, change = {"cnn": (Plain(), one_channel), "depthwise": (Depthwise(), uneven)}[name]
    net.load_state_dict(torch.load(weights, weights_only=True))
    net.eval()
    images = torch.randn(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before, after = net(images), change(net)(images)
    torch.export.save(torch.export.export(net, (images[:1],)), out)
    print(f"{out}: float answers differ by {(before - after).abs().max():.1e} at most")


if __name__ == "__main__":
    main(*sys.argv[1:4])
