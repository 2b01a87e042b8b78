from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgesdk.artifacts import Dim, Model, Signature, Source, TensorSpec
from edgesdk.errors import InputError
from edgesdk.runtimes import LowerConfig, find, runtimes

BATCH = Dim(1, 8, "b")
SIGNATURE = Signature(
    (TensorSpec("x", "float32", (BATCH, 3)),),
    (TensorSpec("scores", "float32", (BATCH, 10)), TensorSpec("label", "int64", (BATCH,))),
)
MODEL = Model(Source("net", "exported_program"), SIGNATURE)


def test_zeros_of_the_right_shapes_follow_the_input(tmp_path: Path) -> None:
    made = find("null").lower(MODEL, LowerConfig(), tmp_path / "net.null")
    runner = find("null").load(made.path, SIGNATURE)
    for batch in (1, 5):
        scores, label = runner.run([np.ones((batch, 3), np.float32)])
        assert (scores.shape, scores.dtype) == ((batch, 10), np.float32)
        assert (label.shape, label.dtype) == ((batch,), np.int64)
        assert not scores.any()


def test_the_file_is_the_signature_and_equal_each_time(tmp_path: Path) -> None:
    files = [find("null").lower(MODEL, LowerConfig(), tmp_path / f"{n}.null").path.read_bytes() for n in "ab"]
    assert files[0] == files[1] and b"scores" in files[0]


def test_it_is_found_by_name_but_never_offered_for_a_typo() -> None:
    assert "null" in runtimes()
    with pytest.raises(Exception, match="Known: executorch, onnx, torchscript"):
        find("nul1")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff\xfe", b'{"schema": "edgesdk.null/2"}'])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "net.null"
    path.write_bytes(content)
    with pytest.raises(InputError, match="net.null"):
        find("null").load(path, SIGNATURE)
