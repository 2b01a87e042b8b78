"""``torch.autocast`` in ``forward()``: without effect on the CPU it leaves no trace, with effect it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from edgesdk.artifacts import Model, Source, TensorSpec
from edgesdk.errors import UnsupportedError
from edgesdk.importing import ImportOptions, import_model, locate
from edgesdk.importing._autocast import full_precision, inline_modes
from edgesdk.importing._base import Located
from edgesdk.importing._export import adopt_program, export_module

HERE = Located("module", "net", Source("net", "module"))
OPTIONS = ImportOptions(inputs=(TensorSpec("x", "float32", (2, 8)),))


class Under(nn.Module):
    """Two layers under ``torch.autocast``, one inner block of it, and no cast at the end."""

    def __init__(self, device: str, dtype: torch.dtype, *, mixed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
        self.device, self.dtype, self.mixed = device, dtype, mixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device, self.dtype):
            y = torch.relu(self.a(x))
            if self.mixed:
                y = y.to(torch.bfloat16)
            with torch.no_grad(), torch.autocast(self.device, self.dtype, enabled=self.device == "cpu"):
                return self.b(y)


def plain(net: Under, x: torch.Tensor) -> torch.Tensor:
    return net.b(torch.relu(net.a(x)))


def exported(net: nn.Module) -> Model:
    return export_module(net, HERE, OPTIONS)


def operators(model: Model) -> list[str]:
    assert model.program is not None
    return [str(n.target) for n in model.program.graph.nodes if n.op == "call_function"]


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_autocast_for_cuda_has_no_effect_on_the_cpu_and_leaves_no_block_in_the_graph() -> None:
    net, x = Under("cuda", torch.float16), torch.randn(2, 8)
    model = exported(net)
    assert operators(model).count("aten.linear.default") == 2
    assert not [name for name in operators(model) if "wrap_with" in name]
    assert [w.code for w in model.warnings] == []
    assert model.program is not None
    torch.testing.assert_close(model.program.module()(x), plain(net, x))


def test_autocast_for_the_cpu_is_captured_in_float32_and_told_with_its_line() -> None:
    net, x = Under("cpu", torch.bfloat16), torch.randn(2, 8)
    assert net(x).dtype is torch.bfloat16
    model = exported(net)
    assert model.signature.outputs[0].dtype == "float32"
    (warning,) = model.warnings
    assert warning.code == "autocast_to_float32"
    assert "test_autocast.py:" in warning.message
    assert "bfloat16" in warning.message
    assert model.program is not None and model.module is not None
    for runs in (model.program.module(), model.module):  # what is lowered, and what it is compared with
        found = runs(x)
        torch.testing.assert_close(found[0] if isinstance(found, tuple) else found, plain(net, x))
    assert net(x).dtype is torch.bfloat16, "torch.autocast works again afterwards"


def test_a_model_that_counts_on_autocast_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError) as caught:
        exported(Under("cpu", torch.bfloat16, mixed=True))
    assert caught.value.code == "autocast_needed"
    assert "test_autocast.py:" in caught.value.message


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize(("device", "code"), [("cuda", None), ("cpu", "autocast")])
def test_a_saved_program_with_one_block(device: str, code: str | None, tmp_path: Path) -> None:
    class Once(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device, torch.bfloat16):
                y = x @ x.T
            return y.float()

    path, x = tmp_path / "net.pt2", torch.randn(2, 8)
    torch.export.save(torch.export.export(Once().eval(), (x,)), path)
    if code:
        with pytest.raises(UnsupportedError) as caught:
            import_model(locate(str(path), ImportOptions()), ImportOptions())
        assert (caught.value.code, "x @ x.T" in caught.value.message) == (code, True)
        return
    model = import_model(locate(str(path), ImportOptions()), ImportOptions())
    assert model.program is not None
    torch.testing.assert_close(model.program.module()(x), x @ x.T)


def adopted(net: nn.Module) -> Model:
    return adopt_program(torch.export.export(net.eval(), (torch.randn(2, 8),)), HERE, ImportOptions())


def test_a_program_with_autocast_at_work_is_refused_with_its_operator() -> None:
    with pytest.raises(UnsupportedError) as caught:
        adopted(Under("cpu", torch.bfloat16))
    assert caught.value.code == "autocast"
    assert "linear" in caught.value.message


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_a_program_with_autocast_for_cuda_is_taken() -> None:
    net, x = Under("cuda", torch.float16), torch.randn(2, 8)
    model = adopted(net)
    assert not [name for name in operators(model) if "wrap_with" in name]
    assert model.program is not None
    torch.testing.assert_close(model.program.module()(x), plain(net, x))


def test_a_saved_block_that_torch_cannot_read_back_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Under("cpu", torch.bfloat16).eval(), (torch.randn(2, 8),)), path)
    with pytest.raises(UnsupportedError) as caught:
        import_model(locate(str(path), ImportOptions()), ImportOptions())
    assert caught.value.code == "saved_block"
    assert "torch.autocast" in caught.value.message


def test_constants_inside_of_a_block_move_with_it() -> None:
    class Table(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return x * torch.tensor([1.0, 2.0])

    with full_precision():
        program = torch.export.export(Table().eval(), (torch.ones(3, 2),))
    inline_modes(program)
    torch.testing.assert_close(program.module()(torch.ones(1, 2).expand(3, 2)), torch.tensor([[1.0, 2.0]] * 3))
