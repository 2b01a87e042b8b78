"""Run a packaged digit classifier on digits that it never saw.

python run.py dist/digits-android/digits.edge
"""

from __future__ import annotations

import sys

import numpy as np
from data import HELD_OUT, digits

import edgesdk


def accuracy(path: str) -> float:
    """Share of the held-out digits that the bundle reads right."""
    session = edgesdk.load(path)
    images, labels = digits()
    found = [next(iter(session.run({"input": image[None]}).values())).argmax() for image in images[-HELD_OUT:]]
    return float(np.mean(found == labels[-HELD_OUT:]))


if __name__ == "__main__":
    print(f"{sys.argv[1]}: {accuracy(sys.argv[1]):.1%} of {HELD_OUT} unseen digits are read right")
