"""MODEL as a user types it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

from edgesdk.errors import InputError, UsageError
from edgesdk.importing import ImportOptions, import_model, importers, locate


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "weights.v2.pth")
    return tmp_path / "weights.v2.pth"


def test_a_file_gives_kind_name_checksum_and_what_is_read(weights: Path) -> None:
    located = locate(str(weights))
    assert (located.kind, located.source.name, located.path) == ("state_dict", "weights.v2", weights)
    assert located.source.sha256 == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert located.files == (weights,)


def test_what_is_read_is_unknown_when_user_code_runs(weights: Path, tmp_path: Path) -> None:
    assert locate(str(weights), ImportOptions(arch="torchvision:resnet18")).files == (weights,)
    assert locate(str(weights), ImportOptions(arch="net.py:Net")).files is None
    assert locate("torchvision:resnet18").files == ()
    assert locate("torchvision:resnet18@DEFAULT").files is None
    assert locate("timm:resnet18.a1_in1k").files is None
    (tmp_path / "net.py").write_text("def f(): ...\n")
    assert locate(f"{tmp_path}/net.py:f").files is None


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("torchvision:mobilenet_v2", "named", "mobilenet_v2"),
        ("torchvision:mobilenet_v2@DEFAULT", "named", "mobilenet_v2"),
        ("timm:vit_tiny_patch16_224", "named", "vit_tiny_patch16_224"),
        ("hf:prajjwal1/bert-tiny", "named", "bert-tiny"),
        ("my.package:Net", "python_file", "Net"),
    ],
)
def test_names_are_told_from_paths(text: str, kind: str, name: str) -> None:
    located = locate(text)
    assert (located.kind, located.source.name, located.source.sha256) == (kind, name, None)


def test_a_file_whose_name_looks_like_something_else_is_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("torchvision:resnet18", "a#b", "x.py:y"):
        torch.save(nn.Linear(3, 2).state_dict(), name)
        assert locate(name).kind == "state_dict"


def test_a_key_after_the_hash_chooses_inside_the_file(weights: Path) -> None:
    located = locate(f"{weights}#ema")
    assert (located.path, located.member, located.source.name) == (weights, "ema", "weights.v2")


def test_a_missing_file_is_named_with_its_nearest_neighbour(weights: Path) -> None:
    with pytest.raises(InputError, match=r"weights\.v3\.pth doesn't exist") as caught:
        locate(str(weights).replace("v2", "v3"))
    assert "weights.v2.pth" in caught.value.fix and caught.value.exit == 3


@pytest.mark.parametrize("text", ["", "  ", "torchvision:", "hf:", "hf:a/b/c", "my.package:"])
def test_incomplete_texts_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        locate(text)


def test_a_dangling_link_is_told_with_its_target(tmp_path: Path) -> None:
    (tmp_path / "m.pt").symlink_to("gone.pt")
    with pytest.raises(InputError, match=r"link to gone\.pt, which doesn't exist"):
        locate(str(tmp_path / "m.pt"))


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="device or pipe"):
        locate(str(tmp_path / "pipe"))


def test_a_file_that_may_not_be_read_is_told(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, who reads everything: the refusal is put where the system would raise it."""

    def refuse(self: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="permission denied") as caught:
        locate(str(weights))
    assert "chmod" in caught.value.fix


def test_an_unreadable_file_is_told_to_somebody_who_is_not_root(weights: Path) -> None:
    weights.chmod(0)
    if os.geteuid():
        with pytest.raises(InputError, match="permission denied"):
            locate(str(weights))
    else:
        assert locate(str(weights)).kind == "state_dict"


def test_a_factory_in_a_file_that_is_no_python_is_refused(weights: Path) -> None:
    with pytest.raises(InputError, match="no Python source"):
        locate(f"{weights}:Net")


def test_the_commit_of_the_work_tree_is_recorded(weights: Path) -> None:
    folder = weights.parent
    assert locate(str(weights)).source.git_commit is None
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert locate(str(weights)).source.git_commit == head
    subprocess.run([*git, "pack-refs", "--all"], check=True)
    assert locate(str(weights)).source.git_commit == head
    subprocess.run([*git, "worktree", "add", "-q", str(folder / "tree")], check=True)
    assert locate(str(folder / "tree" / weights.name)).source.git_commit == head


def test_a_finished_device_file_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(b"\x1c\0\0\0ET12" + bytes(64))
    located = locate(str(tmp_path / "m.pte"))
    assert located.source.format == "executorch"
    with pytest.raises(InputError, match="finished file") as caught:
        import_model(located)
    assert "edgesdk bundle" in caught.value.fix


def test_onnx_weights_beside_the_file_are_among_the_files_read(tmp_path: Path) -> None:
    import onnx

    torch.onnx.export(nn.Linear(64, 64), (torch.zeros(1, 64),), tmp_path / "m.onnx", dynamo=False)
    proto = onnx.load(tmp_path / "m.onnx")
    onnx.save_model(proto, tmp_path / "big.onnx", save_as_external_data=True, location="big.data", size_threshold=0)
    assert locate(str(tmp_path / "big.onnx")).files == (tmp_path / "big.onnx", tmp_path / "big.data")
    assert locate(str(tmp_path / "m.onnx")).files == (tmp_path / "m.onnx",)


def test_every_kind_has_an_importer_of_its_name() -> None:
    for kind in (
        "exported_program",
        "state_dict",
        "pickled_module",
        "lightning",
        "transformers",
        "named",
        "python_file",
    ):
        assert importers()[kind].name == kind
