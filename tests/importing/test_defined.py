"""Names of user code are checked without running it: refused only when they certainly aren't there."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgesdk.data import locate_data
from edgesdk.errors import InputError
from edgesdk.importing._defined import may_define
from edgesdk.metrics import check_name


@pytest.mark.parametrize(
    "code",
    [
        "def m(): pass",
        "class m: pass",
        "m = 3",
        "a, (m, *b) = 1, (2, 3)",
        "import numpy as m",
        "from m import x\nimport m.sub",
        "from things import *",
        "if 1:\n  try:\n    m = 1\n  except Exception: pass",
        "for m in range(3): pass",
        "with open(__file__) as m: pass",
        "def f():\n  global m\n  m = 1\nf()",
        "globals()['m'] = 1",
        "def __getattr__(name): return len",
        "(m := 3)",
    ],
)
def test_whatever_may_bind_a_name_passes(code: str, tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(code)
    assert may_define(file, "m.inner", "code.py:m")


@pytest.mark.parametrize("code", ["", "x = m", "def f():\n  m = 1", "class A:\n  m = 1", "import a.m"])
def test_a_name_that_nothing_binds_is_refused_as_a_run_refuses_it(code: str, tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(f"raise SystemExit('this code must not run')\n{code}")
    with pytest.raises(InputError) as metric:
        check_name(f"{file}:m")
    with pytest.raises(InputError) as data:
        locate_data(f"{file}:m")
    assert (metric.value.code, data.value.code) == ("no_metric", "no_dataset")
    assert "has no 'm'" in metric.value.message and "has no 'm'" in data.value.message


def test_what_is_no_python_says_so_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("x = 1\ndef m(:\n")
    for refuse in (check_name, locate_data):
        with pytest.raises(InputError, match="SyntaxError.*line 2") as caught:
            refuse(f"{file}:m")
        assert caught.value.code == "user_code_failed"
