"""The shortcuts of ``_et_fast`` and ``_et_import`` change the time and nothing else."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from edgesdk.runtimes import _et_fast, _et_import, _et_patch
from tests.runtimes.executorch_nets import nets

NETS = nets()


def upstream(net: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> bytes:
    """What ExecuTorch itself writes, called as its documentation says."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net, inputs)
        manager = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        return bytes(manager.to_executorch().buffer)


@pytest.mark.parametrize("name", sorted(NETS))
@pytest.mark.slow
def test_the_file_equals_upstreams_to_the_byte(name: str) -> None:
    net, inputs = NETS[name]
    plain = upstream(net, inputs)
    assert _et_fast.trusted(), "the installed executorch is not the one that the shortcuts were read against"
    with _et_fast.fast():
        quick = upstream(net, inputs)
    assert quick == plain


@pytest.mark.parametrize("name", sorted(NETS))
@pytest.mark.slow
def test_the_compiler_leaves_the_weights_that_it_shares_as_they_are(name: str) -> None:
    net, inputs = NETS[name]
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with _et_fast.fast():
        upstream(net, inputs)
    after = net.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())


@pytest.mark.slow
def test_lowering_twice_gives_equal_bytes() -> None:
    net, inputs = NETS["depthwise"]
    with _et_fast.fast():
        first, second = upstream(net, inputs), upstream(net, inputs)
    assert first == second


def test_everything_is_as_before_after_the_block() -> None:
    from executorch.exir import pass_base
    from torch.fx import GraphModule

    before = pass_base._ExportPassBase.call, GraphModule.print_readable
    with pytest.raises(ZeroDivisionError), _et_fast.fast():
        assert pass_base._ExportPassBase.call is not before[0]
        _ = 1 / 0
    assert (pass_base._ExportPassBase.call, GraphModule.print_readable) == before


def test_unknown_sources_take_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from executorch.exir import pass_base

    before = pass_base._ExportPassBase.call
    monkeypatch.setattr(_et_fast, "TESTED", "another version")
    _et_fast.trusted.cache_clear()
    try:
        with _et_fast.fast():
            assert pass_base._ExportPassBase.call is before
    finally:
        _et_fast.trusted.cache_clear()


def test_a_missing_source_has_no_fingerprint() -> None:
    assert _et_patch.fingerprint(["executorch:no/such/file.py"]) is None
    assert _et_patch.fingerprint(["no_such_package:file.py"]) is None


def test_edge_yaml_is_read_as_ruamel_reads_it() -> None:
    from ruamel.yaml import YAML

    folder = _et_patch.root("executorch")
    assert folder is not None
    text = (folder / "exir/dialects/edge/edge.yaml").read_text()
    assert _et_import.parse_edge_yaml(text) == YAML(typ="safe").load(text)


@pytest.mark.parametrize(
    "line", ["- func: [1]", "  key: yes", "    odd", "- func: 'quoted'", "\tfunc: x", "- func: 12"]
)
def test_yaml_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        _et_import.parse_edge_yaml(f"- func: aten::x\n{line}\n")


@pytest.mark.slow
def test_importing_the_compiler_is_lean_and_leaves_no_stub(tmp_path: Path) -> None:
    code = (
        "import sys; from edgesdk.runtimes._et_import import LAZY, import_compiler; import_compiler();"
        "from executorch.exir import to_edge_transform_and_lower;"
        "assert 'torch._inductor.fx_passes.post_grad' not in sys.modules;"
        "assert LAZY not in sys.modules;"
        "from torch.export._remove_auto_functionalized_pass import remove_self_clone"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.slow
def test_mobilenet_equals_upstreams_to_the_byte() -> None:
    import torchvision

    torch.manual_seed(0)
    net, inputs = torchvision.models.mobilenet_v2().eval(), (torch.randn(1, 3, 96, 96),)
    with _et_fast.fast():
        quick = upstream(net, inputs)
    assert quick == upstream(net, inputs)
