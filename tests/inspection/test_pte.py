"""ExecuTorch files: what the reader finds equals what lowering reported and what ExecuTorch's own tools say."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import nn

from edgesdk.artifacts import Lowered, parse_input
from edgesdk.errors import InputError
from edgesdk.importing import ImportOptions, import_module
from edgesdk.inspection import inspect
from edgesdk.inspection._kernels import XNNPACK, portable_kernels
from edgesdk.inspection._pte import read_pte
from edgesdk.inspection.macs import count

pytestmark = pytest.mark.slow


class Mixed(nn.Module):
    """Convolutions, a transposed one, a linear layer and a batched product; sorting stays outside of the delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8)
        self.up, self.head = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.up(self.deep(self.wide(x).relu()))
        y = self.head(y.mean((2, 3)))
        return torch.topk(y, 3)[0], torch.bmm(y[:, :, None], y[:, None, :])


@pytest.fixture(scope="module", params=["xnnpack", "portable"])
def lowered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lowered, int]:
    from edgesdk.runtimes import find
    from edgesdk.runtimes._base import LowerConfig

    torch.manual_seed(0)
    options = ImportOptions(inputs=(parse_input("x=float32[2,3,12,12]"),))
    model = import_module(Mixed().eval(), options)
    assert model.program is not None
    path = tmp_path_factory.mktemp("pte") / "model.bin"
    return find("executorch").lower(model, LowerConfig(backend=request.param), path), count(model.program)


def test_signature_work_and_delegation(lowered: tuple[Lowered, int]) -> None:
    made, macs = lowered
    doc = inspect(made.path).to_json()
    assert doc["format"] == "executorch"
    assert doc["inputs"] == [{"name": "input", "dtype": "float32", "shape": [2, 3, 12, 12]}]
    assert [o["shape"] for o in doc["outputs"]] == [[2, 3], [2, 6, 6]]
    assert doc["macs"] == macs
    assert doc["details"]["delegated_fraction"] == pytest.approx(made.delegated_fraction)
    assert doc["details"]["planned_bytes"] == made.planned_bytes
    assert sum(doc["details"]["delegates"].values()) == made.delegates
    assert doc["runtimes"]["executorch"]["status"] == "yes"


def test_operators_equal_those_of_executorchs_own_reader(lowered: tuple[Lowered, int]) -> None:
    from executorch.exir._serialize._program import deserialize_pte_binary

    data = lowered[0].path.read_bytes()
    (plan,) = deserialize_pte_binary(data).program.execution_plan
    found = read_pte(lowered[0].path)
    kinds = [i.instr_args for chain in plan.chains for i in chain.instructions]
    calls = [plan.operators[k.op_index].name for k in kinds if type(k).__name__ == "KernelCall"]
    assert found.kernels == {name: calls.count(name) for name in calls}
    assert sum(found.delegates.values()) == sum(type(k).__name__ == "DelegateCall" for k in kinds)


def test_damaged_files_are_input_errors(lowered: tuple[Lowered, int], tmp_path: Path) -> None:
    """Flipped bytes either change a number or are found; no other exception escapes, and nothing hangs."""
    data = bytearray(lowered[0].path.read_bytes())
    numbers = random.Random(0)
    for _ in range(300):
        hurt = bytearray(data)
        for _ in range(8):
            hurt[numbers.randrange(min(len(hurt), 4000))] = numbers.randrange(256)
        (tmp_path / "hurt.pte").write_bytes(hurt)
        try:
            read_pte(tmp_path / "hurt.pte")
        except InputError as error:
            assert error.code == "damaged_file"
    (tmp_path / "half.pte").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError):
        inspect(tmp_path / "half.pte")


def test_the_tables_of_operators_are_those_of_the_installed_library() -> None:
    from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
    from executorch.extension.pybindings.portable_lib import _get_operator_names

    targets = {config().target_name.partition(".")[0] for config in ALL_PARTITIONER_CONFIGS}
    ours = {
        name for name in targets if not name.startswith(("quantize", "dequantize", "choose_qparams", "_to", "_clone"))
    }
    assert ours - XNNPACK == set()
    kernels = portable_kernels()
    assert kernels is not None
    registered = {
        name.partition("::")[2].partition(".")[0] for name in _get_operator_names() if name.startswith("aten::")
    }
    assert kernels & registered > {"convolution", "addmm", "permute_copy", "topk"} and len(kernels - registered) < 20
