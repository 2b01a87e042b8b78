"""Writes FOLDER/wide.edge for ``tools/bench_java``: 150,528 floats in, 12 out, and next to nothing to compute.

python make_wide.py FOLDER      does nothing when it is there
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[4]


class Wide(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, 0, :4] * 2


def wide() -> nn.Module:
    return Wide()


def main(out: Path) -> None:
    if (out / "wide.edge").is_file():
        return
    sys.path.insert(0, str(ROOT))
    import edgesdk

    out.mkdir(parents=True, exist_ok=True)
    made = edgesdk.package(
        f"{__file__}:wide", "android", inputs=("x=float32[1,3,224,224]",), runtime=("executorch", "onnx", "torchscript"),
        name="wide", output=out / "wide-android", force=True,
    )  # fmt: skip
    made.bundle.rename(out / "wide.edge")
    shutil.rmtree(made.output)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
