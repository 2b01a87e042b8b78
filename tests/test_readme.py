"""The README's own lines: each block is run, in order, beside files like those it names, or says why it is not."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgesdk.cli._app import root

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(?:<!-- not run[^:]*: (?P<why>[^>]+?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```\n", re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    why: str | None


def blocks() -> list[Block]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [Block(m["language"], m["text"], m["why"]) for m in _BLOCK.finditer(text)]


def test_every_block_is_run_or_says_why_not() -> None:
    found = blocks()
    assert len(found) == (ROOT / "README.md").read_text(encoding="utf-8").count("\n```") / 2
    assert {block.language for block in found} == {"bash", "python", "text"}  # text: what a command prints
    assert all(len(block.why) > 10 for block in found if block.why is not None)
    assert sum(block.language != "text" and block.why is None for block in found) >= 3


def test_commands_and_options_in_the_readme_exist() -> None:
    """The parser takes every line; whether the files are there is for the slow test."""
    words = [shlex.split(line, comments=True) for b in blocks() if b.language == "bash" for line in b.text.splitlines()]
    ours = [line[1:] for line in words if line and line[0] == "edgesdk"]
    assert len(ours) > 5
    command = root()
    for line in ours:
        with command.make_context("edgesdk", line) as ctx:
            verb = command.get_command(ctx, line[0])
            verb.make_context(line[0], line[1:])


def test_python_in_the_readme_uses_public_names() -> None:
    import edgesdk

    for block in (b for b in blocks() if b.language == "python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "edgesdk":
                assert node.attr in edgesdk.__all__


@pytest.mark.slow
def test_the_readme_s_lines_run(tmp_path: Path) -> None:
    write_files(tmp_path)
    env = environment(tmp_path)
    for block in blocks():
        if block.why is not None or block.language == "text":
            continue
        if block.language == "bash":
            command = ["bash", "-euo", "pipefail", "-c", block.text]
        else:
            prepare_for_python(tmp_path, env)
            command = [sys.executable, "-c", ARRAY + block.text + PRINTED]
        ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=500, check=False)
        assert ran.returncode == 0, (block.text, ran.stdout[-2000:], ran.stderr[-2000:])
    shown = next(block.text for block in blocks() if block.language == "text")
    for column in ("variant", "size", "fidelity", "delegated", "verified"):
        assert column in shown.splitlines()[2]
    for path in re.findall(r"dist/digits-android\S*?(?=[;\s]|$)", shown):
        assert (tmp_path / path.rstrip(".")).exists(), path


ARRAY = "import numpy; array = numpy.zeros((1, 1, 8, 8), 'float32')\n"
PRINTED = "\nassert scores.shape == (1, 10)\nassert len(labels) == 5\n"


def write_files(folder: Path) -> None:
    """Small files of the kinds and names that the README uses."""
    sys.path.insert(0, str(ROOT / "examples/digits"))
    try:
        from train import network  # the demo's own network, untrained: training is the demo's test
    finally:
        sys.path.pop(0)
    program = torch.export.export(trained(network(), folder).eval(), (torch.zeros(1, 1, 8, 8),))
    torch.export.save(program, folder / "digits.pt2")
    (folder / "labels.txt").write_text((ROOT / "examples/digits/labels.txt").read_text())
    (folder / "net.py").write_text(NET)
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3, 4)).state_dict(), folder / "weights.pth")
    small = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    torch.jit.save(torch.jit.trace(small, torch.zeros(1, 6)), folder / "model.pt")
    torch.onnx.export(
        small, (torch.zeros(1, 6),), folder / "model.onnx", dynamo=True, external_data=False, verbose=False
    )


def trained(net: nn.Module, folder: Path) -> nn.Module:
    """Good enough that a point of accuracy means something; its data are left as the .npz files that the README names."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = (digits.images / 16).astype(np.float32)[:, None], digits.target
    np.savez(folder / "calibration.npz", input=images[:200])
    np.savez(folder / "test.npz", input=images[1200:], label=labels[1200:])
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    x, y = torch.from_numpy(images[:1200]), torch.from_numpy(labels[:1200])
    for _ in range(6):
        for batch in torch.randperm(1200).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    return net


NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3, 4))

    def forward(self, x):
        return super().forward(x).mean((2, 3))
"""


def prepare_for_python(folder: Path, env: dict[str, str]) -> None:
    """What the Python block opens: the bundle of the block before, another one with pictures, and a photo."""
    from PIL import Image

    (folder / "digits.edge").write_bytes((folder / "dist/digits-android/digits.edge").read_bytes())
    pixels: Any = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "photo.jpg")
    (folder / "flowers.txt").write_text("\n".join(f"flower {n}" for n in range(6)))
    (folder / "flowers.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    )
    words = ["package", "flowers.py:make", "--name", "flowers", "--input", "input=float32[1,3,32,32]", "--target", "linux",
             "--image", "32", "--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5", "--labels", "flowers.txt"]  # fmt: skip
    subprocess.run(["edgesdk", *words], cwd=folder, env=env, check=True, capture_output=True, timeout=300)
    (folder / "flowers.edge").write_bytes((folder / "dist/flowers-linux/flowers.edge").read_bytes())


def environment(folder: Path) -> dict[str, str]:
    """The command ``edgesdk`` of this tree, and a home of its own."""
    tool = folder / "bin/edgesdk"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m edgesdk "$@"\n')
    tool.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "EDGESDK_"))}
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "HOME": str(folder / "home"), "PATH": path, "PYTHONPATH": str(ROOT)}
