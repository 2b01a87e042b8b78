"""Runs the benchmarks of ``android/jmh`` for ``tools/bench_java``, and says what they mean.

    python bench.py FOLDER CLASSPATH [JMH's own options]      FOLDER holds wide.edge; pictures are made there

Overheads are differences of medians of two processes each: a call through Session, a call of the bare engine. Java's whole
way from pixels to tensor is held against the resize of Pillow alone, with one thread, in this process, before and after
Java's turn; "+ numpy" is what the whole way costs there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT))
FILTERS = ("bilinear", "bicubic")
WIDTH, HEIGHT = 4000, 3000
OVERHEAD_GOAL_US, PILLOW_GOAL = 10.0, 1.5


def main(folder: Path, classpath: str, more: list[str]) -> None:
    picture = make_picture(folder)
    before = {name: pillow(picture, name) for name in FILTERS}
    found = jmh(folder, classpath, more)
    after = {name: pillow(picture, name) for name in FILTERS}
    print_overheads(found)
    print_pictures(found, {n: (min(before[n][0], after[n][0]), min(before[n][1], after[n][1])) for n in FILTERS})


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def make_picture(folder: Path) -> Any:
    """12 megapixels of smooth colours with noise, what must come out of them, and the specs."""
    import numpy as np
    from PIL import Image

    from edgesdk.preprocess import PreprocessSpec

    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    noise = np.random.default_rng(3).integers(0, 64, (HEIGHT, WIDTH, 3), np.uint8)
    waves = [127 + 63 * np.sin(rows / 300 + i) * np.cos(columns / (200 + 50 * i)) for i in range(3)]
    samples = np.stack(waves, axis=-1).astype(np.uint8) + noise
    (folder / "picture.rgb").write_bytes(samples.tobytes())
    picture = Image.fromarray(samples)
    for name in FILTERS:
        spec = PreprocessSpec.from_options(
            image=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), interpolation=name
        )
        (folder / f"{name}.json").write_text(json.dumps(spec.to_json()))
        (folder / f"{name}.tensor").write_bytes(spec.apply(picture).tobytes())
    return picture


def pillow(picture: Any, name: str) -> tuple[float, float]:
    """Least milliseconds: the resize alone, and all that makes the tensor with numpy."""
    import numpy as np
    from PIL import Image

    kind = Image.Resampling[name.upper()]
    size = (round(WIDTH * 256 / HEIGHT), 256)
    left, top = (size[0] - 224) // 2, (size[1] - 224) // 2
    mean, std = (np.array(v, np.float32) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

    def whole() -> object:
        cut = picture.resize(size, kind).crop((left, top, left + 224, top + 224))
        return np.ascontiguousarray(((np.asarray(cut, np.float32) / 255 - mean) / std).transpose(2, 0, 1)[None])

    return least_ms(lambda: picture.resize(size, kind)), least_ms(whole)


def least_ms(call: Callable[[], object]) -> float:
    """The computation is always the same: what a call took beyond the quickest one, other programs took."""
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return min(times)


def jmh(folder: Path, classpath: str, more: list[str]) -> dict[str, dict[str, float]]:
    """Medians and bytes per call, by benchmark and parameter."""
    result = folder / "jmh.json"
    command = [
        "java", f"-Djava.library.path={ROOT / 'android/jni/target/lib'}", f"-Dedgesdk.wide={folder / 'wide.edge'}",
        f"-Dedgesdk.pictures={folder}", "-cp", classpath, "org.openjdk.jmh.Main", "-f", "2", "-wi", "4", "-w", "500ms",
        "-i", "6", "-r", "700ms", "-t", "1", "-prof", "gc", "-rf", "json", "-rff", str(result), *more,
    ]  # fmt: skip
    with (folder / "jmh.log").open("w") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode or not result.is_file():
        sys.exit(f"tools/bench_java: JMH failed; see {folder / 'jmh.log'}")
    found = {}
    for one in json.loads(result.read_text()):
        name = one["benchmark"].rsplit(".", 2)
        parameter = next(iter(one["params"].values()))
        found[f"{name[1]}.{name[2]} {parameter}"] = {
            "us": one["primaryMetric"]["scorePercentiles"]["50.0"],
            "least": one["primaryMetric"]["scorePercentiles"]["0.0"],
            "bytes": one["secondaryMetrics"]["gc.alloc.rate.norm"]["score"],
        }
    return found


def print_overheads(found: dict[str, dict[str, float]]) -> None:
    say(f"150,528 floats in, 12 out; medians in µs (goal: at most {OVERHEAD_GOAL_US:.0f} more)")
    say(f"{'engine':<12} {'bare':>8} {'session':>8} {'more':>8} {'bare B/call':>12} {'session B/call':>15}")
    for engine in ("executorch", "onnx", "torchscript"):
        bare, ours = found.get(f"Overhead.bare {engine}"), found.get(f"Overhead.session {engine}")
        if bare and ours:
            more = ours["us"] - bare["us"]
            say(f"{engine:<12} {bare['us']:>8.2f} {ours['us']:>8.2f} {more:>8.2f} {bare['bytes']:>12.0f}"
                  f" {ours['bytes']:>15.0f}{'' if more <= OVERHEAD_GOAL_US else '   above the goal'}")  # fmt: skip


def print_pictures(found: dict[str, dict[str, float]], pillow: dict[str, tuple[float, float]]) -> None:
    say(f"\n{WIDTH} × {HEIGHT} to [1, 3, 224, 224]; least ms (goal: at most {PILLOW_GOAL} × Pillow with one thread)")
    say(f"{'filter':<12} {'Java':>8} {'Pillow':>8} {'+ numpy':>8} {'ratio':>8}")
    for name in FILTERS:
        java = found.get(f"Preparation.java {name}")
        if java:
            alone, whole = pillow[name]
            ratio = java["least"] / 1e3 / alone
            good = "" if ratio <= PILLOW_GOAL else "   above the goal"
            say(f"{name:<12} {java['least'] / 1e3:>8.1f} {alone:>8.1f} {whole:>8.1f} {ratio:>8.2f}{good}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2], sys.argv[3:])
