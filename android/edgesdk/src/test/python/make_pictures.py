"""Pictures and specifications at random, and what Python makes of them: see ``make_bundles.py``, which calls this.

FOLDER/images.json, images.bin in the form of ``tests/golden/preprocess``, whose cases are fewer and chosen.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import make_executorch

TOOL = make_executorch.ROOT / "tools/gen_golden"
COUNT = 400


def vectors(out: Path) -> None:
    from edgesdk.errors import EdgeError

    tool = make_executorch.loaded(TOOL)
    book, rng = tool.Book(), random.Random(7)
    while len(book.cases) < COUNT:
        try:
            _add(book, tool, rng)
        except EdgeError:
            continue  # not every specification is possible
    (out / "images.bin").write_bytes(bytes(book.data))
    (out / "images.json").write_text(json.dumps({"data": "images.bin", "cases": book.cases}))


def _add(book: Any, tool: Any, rng: random.Random) -> None:
    mode = rng.choice([*tool.BANDS, "RGB", "RGBA"])
    height, width = _side(rng), _side(rng)
    if height * width > 20_000:
        return
    spec = _spec(tool, rng)
    if max(height, width) > 200 and spec.crop is None and spec.resize and spec.resize.mode == "shorter":
        return  # megabytes of a stripe
    samples = tool.noise(height, width, tool.BANDS[mode], rng.randrange(1000))
    if mode == "I;16":
        samples = (samples[:, :, 0].astype("<u2") * 257) ^ 0x55
    book.add(
        f"random {len(book.cases)}: {mode} {height}x{width}", mode, samples, spec,
        orientation=rng.choice((1, 1, *range(2, 9))), tensor=True,
    )  # fmt: skip


def _side(rng: random.Random) -> int:
    return rng.choice((1, rng.randint(2, 9), rng.randint(10, 90), rng.randint(10, 90), rng.choice((999, 5000))))


def _spec(tool: Any, rng: random.Random) -> Any:
    def colour() -> tuple[int, int, int]:
        return (rng.randrange(256), rng.randrange(256), rng.randrange(256))

    def size() -> tuple[int, int]:
        return (rng.randint(1, 40), rng.randint(1, 40))

    fitted = rng.choice(("shorter", "stretch", "letterbox", None))
    resize = fitted and tool.Resize(
        fitted, size(), rng.choice(tool.FILTERS), rounding=rng.choice(("floor", "half_even"))
    )
    color = rng.choice(("rgb", "rgb", "bgr", "gray"))
    dtype = rng.choice(("float32", "float32", "float16", "uint8"))
    numbers: dict[str, Any] = {"scale": 1.0} if dtype == "uint8" else {}
    if dtype != "uint8":
        bands = 1 if color == "gray" else 3
        numbers["mean"] = tuple(round(rng.uniform(-0.5, 1), 4) for _ in range(bands))
        numbers["std"] = tuple(round(rng.uniform(0.1, 2), 4) for _ in range(bands))
        numbers["scale"] = rng.choice((1 / 255, 1 / 255, 1.0, 1 / 127.5))
    elif color == "gray":
        numbers |= {"mean": (0.0,), "std": (1.0,)}
    crop = rng.random() < 0.5 and tool.Crop(size(), rng.choice(("half_even", "floor")))
    return tool.ImageSpec(
        color=color, resize=resize or None, crop=crop or None, align=rng.choice(("center", "top_left")), fill=colour(),
        background=colour(), layout=rng.choice(("nchw", "nhwc")), dtype=dtype, **numbers,
    )  # fmt: skip
