"""Fashion-MNIST as Debian packages it: 60,000 and 10,000 grey pictures of 28 x 28 pixels in ten classes of clothing.

The files are the original's: gzipped IDX (two zero bytes, the dtype's code, the number of dimensions, the sizes as
big-endian int32, then the values).
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
MEAN, STD = 0.2860, 0.3530  # of the training pixels in 0...1
_UNSIGNED_BYTE = 8


def read_idx(path: Path) -> np.ndarray:
    """The array of a gzipped IDX file of unsigned bytes."""
    with gzip.open(path) as file:
        zero, code, rank = file.read(2), file.read(1)[0], file.read(1)[0]
        if zero != b"\0\0" or code != _UNSIGNED_BYTE:
            sys.exit(f"{path} is no IDX file of unsigned bytes.")
        shape = np.frombuffer(file.read(4 * rank), ">i4")
        return np.frombuffer(file.read(), np.uint8).reshape(shape)


def fashion(part: str, folder: Path = DEBIAN) -> tuple[np.ndarray, np.ndarray]:
    """Normalised images ``[n, 1, 28, 28]`` float32 and labels ``[n]`` int64.

    Args:
        part: ``train`` (60,000) or ``t10k`` (10,000).
    """
    if not folder.is_dir():
        sys.exit(f"{folder} is not there. On Debian or Ubuntu: apt-get install dataset-fashion-mnist")
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz").astype(np.int64)
    return ((images[:, None].astype(np.float32) / 255 - MEAN) / STD).astype(np.float32), labels


def balanced(labels: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Numbers of ``count`` samples, equally many of each class as far as there are, in a fixed random order."""
    rng = np.random.default_rng(seed)
    turn = np.zeros(len(labels), np.int64)
    for value in np.unique(labels):
        members = np.flatnonzero(labels == value)
        turn[rng.permutation(members)] = np.arange(len(members))
    return np.lexsort((rng.random(len(labels)), turn))[:count]
