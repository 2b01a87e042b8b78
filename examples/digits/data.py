"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels; the last 400 of a fixed shuffle are held out."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

HELD_OUT = 400


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images ``[n, 1, 8, 8]`` float32 in 0...1, and labels ``[n]`` int64, shuffled by a fixed seed."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = (found.images[order, None] / 16).astype(np.float32)
    return images, found.target[order].astype(np.int64)
