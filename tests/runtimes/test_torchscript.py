from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.jit.mobile import _get_model_bytecode_version

from edgesdk.artifacts import Model, Signature, Source, TensorSpec
from edgesdk.errors import EdgeError, InputError, UnsupportedError, UsageError
from edgesdk.runtimes import LowerConfig, _ts_ops, _ts_save, find
from edgesdk.runtimes._ts_lower import without_newer
from tests.runtimes import graphs

ROUNDING = 1e-5  # float32, a few layers; relative to the output's largest value


@pytest.fixture(scope="module")
def picture() -> Model:
    return graphs.picture_model()


def script_model(script: torch.jit.ScriptModule) -> Model:
    specs = (TensorSpec("x", "float32", (1, 3)),), (TensorSpec("output", "float32", None),)
    return Model(Source("net", "torchscript"), Signature(*specs), script=script)


# -- what it computes -------------------------------------------------------------------------------------------------


def test_pitfall_t_05_other_data_and_other_batches_run_one_after_the_other(picture: Model, tmp_path: Path) -> None:
    made, runner = graphs.lowered("torchscript", picture, tmp_path)
    for batch in (1, 3, 8, 1):
        assert graphs.difference(runner, picture.module, (torch.randn(batch, 1, 8, 8),)) < ROUNDING
    assert made.rung == "full" and made.delegated_fraction is None


def test_pitfall_t_04_batch_norm_is_folded_and_a_lower_rung_leaves_it(picture: Model, tmp_path: Path) -> None:
    """The mobile optimizer is never used; the one pass of ours that changes numbers can be left out."""
    folded, _ = graphs.lowered("torchscript", picture, tmp_path)
    plain, runner = graphs.lowered("torchscript", picture, tmp_path, LowerConfig(rung="portable"), "plain")
    assert "aten::batch_norm" not in _ts_save.read_bytecode(folded.path).operators
    assert "aten::batch_norm" in _ts_save.read_bytecode(plain.path).operators
    assert plain.rung == "portable"
    assert graphs.difference(runner, picture.module, (torch.randn(3, 1, 8, 8),)) < ROUNDING


def test_sizes_of_two_dynamic_dimensions_aren_t_baked(tmp_path: Path) -> None:
    model = graphs.sentence_model()
    _, runner = graphs.lowered("torchscript", model, tmp_path)
    for batch, length in ((1, 2), (3, 7), (8, 12)):
        assert graphs.difference(runner, model.module, graphs.sentence(batch, length)) < ROUNDING


class Choice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


def test_a_branch_on_data_becomes_a_branch(tmp_path: Path) -> None:
    model = graphs.model_of(Choice(), (torch.ones(3),))
    _, runner = graphs.lowered("torchscript", model, tmp_path)
    assert graphs.difference(runner, model.module, (torch.ones(3),)) == 0
    assert graphs.difference(runner, model.module, (-torch.ones(3),)) == 0


class Scalars(torch.nn.Module):
    """Booleans as numbers, sizes as numbers, lists of tensors, an in-place operator on a view."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = x.split(2, dim=1)
        y = torch.cat((parts[1], parts[0]), 1)
        y[:, 0].mul_(3)
        flags = torch.full((x.size(0),), True) & (x[:, 0] > 0)
        return y / x.size(0), flags, torch.arange(x.size(0)), x.to(torch.float64), x.std(), y.topk(2).indices


def test_numbers_flags_and_views_keep_their_meaning(tmp_path: Path) -> None:
    model = graphs.model_of(Scalars(), (torch.randn(3, 4),), [{0: graphs.BATCH}])
    _, runner = graphs.lowered("torchscript", model, tmp_path)
    for batch in (1, 2, 8):
        if batch > 1:
            assert graphs.difference(runner, model.module, (torch.randn(batch, 4),)) < ROUNDING
        assert runner.run([np.ones((batch, 4), np.float32)])[1].all()


def test_a_running_sum_survives_calls_and_reset_forgets_it(tmp_path: Path) -> None:
    model = graphs.model_of(graphs.Counter(), (torch.zeros(1, 3),), stateful=True)
    _, runner = graphs.lowered("torchscript", model, tmp_path)
    one = np.ones((1, 3), np.float32)
    first = runner.run([one])
    assert [float(runner.run([one])[1][0, 0]) for _ in range(2)] == [2.0, 3.0]
    assert float(first[1][0, 0]) == 1.0, "what a call returned changed with a later call"
    runner.reset()
    assert float(runner.run([one])[0][0, 0]) == 2.0


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x.add_(1)


def test_the_caller_s_array_is_neither_changed_nor_handed_back(tmp_path: Path) -> None:
    model = graphs.model_of(Same(), (torch.zeros(3),))
    _, runner = graphs.lowered("torchscript", model, tmp_path)
    given = np.zeros(3, np.float32)
    given.flags.writeable = False
    found = runner.run([given])
    assert not given.any() and found[1].tolist() == [1, 1, 1]
    assert not np.may_share_memory(found[0], given)


# -- the file ---------------------------------------------------------------------------------------------------------


def test_equal_bytes_in_two_folders_and_no_paths(picture: Model, tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files.append(graphs.lowered("torchscript", picture, tmp_path / name, name=name)[0].path.read_bytes())
    assert files[0] == files[1]
    assert b"site-packages" not in files[0] and str(Path(__file__).parent).encode() not in files[0]


def test_entries_are_aligned_and_without_debug_information(picture: Model, tmp_path: Path) -> None:
    made, _ = graphs.lowered("torchscript", picture, tmp_path)
    with zipfile.ZipFile(made.path) as archive:
        assert not [n for n in archive.namelist() if "debug" in n]
        for entry in archive.infolist():
            begin = entry.header_offset + 30 + len(entry.filename) + len(entry.extra)
            assert begin % 64 == 0


@pytest.mark.parametrize(("bytecode", "release"), [(4, "1.9"), (5, "1.9"), (6, "1.10"), (7, "1.10"), (8, "1.12")])
def test_pitfall_t_02_an_older_bytecode_on_request(picture: Model, tmp_path: Path, bytecode: int, release: str) -> None:
    made, runner = graphs.lowered("torchscript", picture, tmp_path, LowerConfig(bytecode=bytecode))
    assert _get_model_bytecode_version(str(made.path)) == bytecode
    assert made.min_runtime == release
    assert graphs.difference(runner, picture.module, (torch.randn(3, 1, 8, 8),)) < ROUNDING


def test_pitfall_t_02_the_archive_version_goes_back_with_the_bytecode(picture: Model, tmp_path: Path) -> None:
    """Releases up to 1.11 refuse archives above 6, and torch's own backport writes 10."""
    made, _ = graphs.lowered("torchscript", picture, tmp_path, LowerConfig(bytecode=7))
    with zipfile.ZipFile(made.path) as archive:
        records = [archive.read(n) for n in archive.namelist() if n.endswith("/version")]
    assert records and set(records) == {b"6\n"}


@pytest.mark.parametrize("bytecode", [3, 9])
def test_pitfall_t_02_an_unknown_bytecode_is_a_usage_error(picture: Model, tmp_path: Path, bytecode: int) -> None:
    with pytest.raises(UsageError) as caught:
        graphs.lowered("torchscript", picture, tmp_path, LowerConfig(bytecode=bytecode))
    assert caught.value.code == "bad_bytecode" and "from 1.12" in caught.value.why
    assert not list(tmp_path.iterdir())


def test_it_warns_once_and_names_the_successor(picture: Model, tmp_path: Path) -> None:
    made, _ = graphs.lowered("torchscript", picture, tmp_path)
    assert [w.code for w in made.warnings] == ["torchscript_deprecated"]
    assert "ExecuTorch" in made.warnings[0].message


# -- half precision ---------------------------------------------------------------------------------------------------


def test_float16_halves_the_file_and_computes_in_float32(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    model = graphs.model_of(net, (torch.randn(2, 64),), [{0: graphs.BATCH}])
    whole, _ = graphs.lowered("torchscript", model, tmp_path)
    half, runner = graphs.lowered("torchscript", model, tmp_path, LowerConfig(quantization="fp16"), "half")
    assert half.path.stat().st_size < 0.6 * whole.path.stat().st_size
    assert "fp16_storage" in [w.code for w in half.warnings]
    assert graphs.difference(runner, net, (torch.randn(3, 64),)) < 2e-3  # weights rounded to 11 bits


def test_a_half_precision_model_runs_although_mobile_has_no_half_kernels(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).half()
    model = graphs.model_of(net, (torch.randn(1, 3, 8, 8).half(),))
    _, runner = graphs.lowered("torchscript", model, tmp_path)
    assert graphs.difference(runner, net, (torch.randn(1, 3, 8, 8).half(),)) < 2e-3


def test_pitfall_n_02_weights_beyond_half_stay_float32(tmp_path: Path) -> None:
    net = torch.nn.Linear(300, 4, bias=False)
    net.weight.data[0, 0] = 1e6
    model = graphs.model_of(net, (torch.ones(1, 300),))
    made, runner = graphs.lowered("torchscript", model, tmp_path, LowerConfig(quantization="fp16"))
    assert "1 constants" in made.warnings[-1].message
    assert graphs.difference(runner, net, (torch.ones(1, 300),)) < ROUNDING


# -- what mobile lacks ------------------------------------------------------------------------------------------------


class NewOperators(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.norm(x), torch.all(x > 0, dim=(0, 1))


def test_operators_newer_than_the_mobile_library_are_written_out(tmp_path: Path) -> None:
    model = graphs.model_of(NewOperators(), (torch.randn(2, 3, 4),))
    assert "aten.rms_norm.default" in str(model.program.graph)
    made, runner = graphs.lowered("torchscript", model, tmp_path)
    assert not [name for name in _ts_save.read_bytecode(made.path).operators if _ts_ops.is_newer(name)]
    assert graphs.difference(runner, model.module, (torch.randn(2, 3, 4),)) < ROUNDING


def test_a_program_without_new_operators_is_left_alone(picture: Model) -> None:
    assert without_newer(picture.program) is picture.program


class Boxes(torch.nn.Module):
    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torchvision

        return torchvision.ops.nms(boxes, scores, 0.5)


def test_pitfall_t_07_torchvision_operators_are_refused_with_the_library_that_has_them(tmp_path: Path) -> None:
    corners = torch.rand(5, 2)
    model = graphs.model_of(Boxes(), (torch.cat((corners, corners + 1), 1), torch.rand(5)))
    with pytest.raises(UnsupportedError) as caught:
        graphs.lowered("torchscript", model, tmp_path)
    assert caught.value.code == "unsupported_op" and "torchvision::nms" in caught.value.message
    assert "torchvision_ops" in caught.value.fix and "raw" in caught.value.fix
    assert not list(tmp_path.iterdir()), "a refused file was left behind"


def test_pitfall_t_07_every_kind_of_foreign_operator_is_refused() -> None:
    for name in ("torchaudio::lfilter", "mylib::op", "aten::rms_norm"):
        with pytest.raises(UnsupportedError, match=name.partition(".")[0]):
            _ts_ops.check({name: 2})
    with pytest.raises(UnsupportedError, match="scaled_dot_product_attention"):
        _ts_ops.check({"aten::scaled_dot_product_attention": 8})  # enable_gqa came after 2.1
    _ts_ops.check({"aten::scaled_dot_product_attention": 3, "quantized::linear": 4, "prim::NumToTensor.Scalar": 1})


def test_the_line_of_an_impossible_operator_is_named(tmp_path: Path) -> None:
    class Looped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            from torch._higher_order_ops import while_loop

            return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.zeros((), dtype=torch.int64), x))[
                1
            ]

    model = graphs.model_of(Looped(), (torch.ones(2),))
    with pytest.raises(UnsupportedError, match="while_loop"):
        graphs.lowered("torchscript", model, tmp_path)


# -- the user's TorchScript -------------------------------------------------------------------------------------------


class Guarded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            if x.sum() > 0:
                return self.linear(x)
        return x


def test_a_script_with_branches_and_no_grad_is_lowered(tmp_path: Path) -> None:
    net = Guarded().eval()
    model = script_model(torch.jit.script(net))
    _, runner = graphs.lowered("torchscript", model, tmp_path)
    for sign in (1, -1):
        assert graphs.difference(runner, net, (sign * torch.ones(1, 3),)) < ROUNDING


def test_a_script_in_train_mode_is_lowered_for_inference(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.9))
    script = torch.jit.script(net.train())
    _, runner = graphs.lowered("torchscript", script_model(script), tmp_path)
    assert graphs.difference(runner, net.eval(), (torch.ones(1, 3),)) < ROUNDING


def test_an_onnx_source_is_refused_with_a_remedy(tmp_path: Path) -> None:
    model = Model(Source("net", "onnx"), Signature((), ()), onnx=tmp_path / "net.onnx")
    with pytest.raises(UnsupportedError) as caught:
        graphs.lowered("torchscript", model, tmp_path)
    assert "--runtime onnx" in caught.value.fix


# -- loading ----------------------------------------------------------------------------------------------------------


def test_pitfall_t_03_a_full_archive_says_so(tmp_path: Path) -> None:
    path = tmp_path / "full.ptl"
    torch.jit.script(torch.nn.Linear(3, 3)).save(str(path))
    with pytest.raises(InputError) as caught:
        find("torchscript").load(path, Signature((), ()))
    assert caught.value.code == "full_torchscript" and "torch.jit.save" in caught.value.why


@pytest.mark.parametrize("kind", ["missing", "empty", "html", "zip", "cut", "scrambled"])
def test_other_files_are_input_errors(picture: Model, tmp_path: Path, kind: str) -> None:
    made, _ = graphs.lowered("torchscript", picture, tmp_path)
    data, path = made.path.read_bytes(), tmp_path / "bad.ptl"
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("archive/bytecode.pkl", b"\x80\x02K")
    content = {"empty": b"", "html": b"<html>", "zip": memory.getvalue(), "cut": data[: len(data) // 2]}
    if kind == "scrambled":
        at = data.index(b"instructions")
        content[kind] = data[:at] + b"\xff" * 40 + data[at + 40 :]
    if kind != "missing":
        path.write_bytes(content[kind])
    with pytest.raises(EdgeError) as caught:
        find("torchscript").load(path, picture.signature)
    assert caught.value.code == "not_torchscript_lite" and caught.value.exit == 3


def test_nothing_in_a_file_is_executed_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "evil.ptl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "archive/bytecode.pkl", b"cos\nsystem\n(S'touch " + str(tmp_path / "pwned").encode() + b"'\ntR."
        )
    with pytest.raises(InputError):
        _ts_save.read_bytecode(path)
    assert not (tmp_path / "pwned").exists()


def test_a_wrong_input_is_an_error_in_words(picture: Model, tmp_path: Path) -> None:
    _, runner = graphs.lowered("torchscript", picture, tmp_path)
    with pytest.raises(InputError) as caught:
        runner.run([np.ones((1, 3, 8, 8), np.float32)])
    assert caught.value.code == "run_failed" and "Traceback" not in caught.value.message


def test_version_and_missing_need_no_torch() -> None:
    code = (
        "import sys, edgesdk.runtimes as r\n"
        "t = r.find('torchscript'); assert t.missing() is None and t.version()\n"
        "o = r.find('onnx'); assert o.missing() is None and o.version()\n"
        "assert not {'torch', 'onnx', 'onnxruntime'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
