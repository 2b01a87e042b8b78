"""What ExecuTorch's compiler raises, in words that help."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgesdk.errors import EdgeError, UnsupportedError
from edgesdk.runtimes._et_kernels import unsupported_by_name

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_NOT_CORE = re.compile(r"Operator torch\._ops\.(\w+)\.(\w+)\.(\w+) is not in Core ATen opset")
_NO_OUT = re.compile(r"[Mm]issing out variants?: \{([^}]*)\}")
_DTYPES = re.compile(r"taking Tensor inputs with mismatched dtypes", re.MULTILINE)
_SYMBOLIC = re.compile(r"[Cc]ould not guard|data-dependent|GuardOnDataDependent|unbacked")
_UNBOUNDED = re.compile(r"upper bound|int_oo|unbounded|concrete upper-bounded")


def texts(error: BaseException) -> str:
    """The messages of an exception and of those behind it."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        parts.append(str(seen))
        seen = seen.__cause__ or seen.__context__
    return "\n".join(parts)


def needs_lenient_check(error: BaseException) -> bool:
    """Whether only upstream's check for core operators refused; a kernel may exist all the same."""
    text = texts(error)
    return bool(_NOT_CORE.search(text) or _DTYPES.search(text)) or _trips_over_sizes(error)


def _trips_over_sizes(error: BaseException) -> bool:
    """Whether the check stumbled over arithmetic on sizes (``torch.sym_float``), which has kernels, but not in its list."""
    frame = error.__traceback__
    if not isinstance(error, AssertionError) or frame is None:
        return any(map(_trips_over_sizes, filter(None, (error.__cause__, error.__context__))))
    while frame.tb_next is not None:
        frame = frame.tb_next
    return frame.tb_frame.f_code.co_name == "check_valid_edge_op"


def lowering_failed(error: BaseException, program: ExportedProgram, backend: str) -> EdgeError:
    """The error to show for what the compiler raised."""
    text = texts(error)
    names = [f"{space}::{name}.{overload}" for space, name, overload in _NOT_CORE.findall(text)]
    for group in _NO_OUT.findall(text):
        names += re.findall(r"[\w]+::[\w.]+", group)
    if names:
        return unsupported_by_name([name.removesuffix(".default") for name in dict.fromkeys(names)], program)
    if _SYMBOLIC.search(text):
        return UnsupportedError(
            "data_dependent", "The model decides a size or a branch by values that are known only when it runs.",
            why=_first_line(error),
            fix="Rewrite that place with torch.where, torch.cond or a fixed size, or choose --runtime torchscript.",
        )  # fmt: skip
    if _UNBOUNDED.search(text):
        return unbounded(_first_line(error))
    return UnsupportedError(
        "lowering_failed", f"ExecuTorch can't lower this model for the back end '{backend}'.", why=_first_line(error),
        fix="Run with --verbose to see where, try --backend portable, or choose --runtime onnx.",
    )  # fmt: skip


def unbounded(why: str) -> UnsupportedError:
    """The error for a dynamic size without an upper bound."""
    return UnsupportedError(
        "unbounded_dim", "A dynamic size of the model has no upper bound.", why=why,
        fix="Give the range of each dynamic size: --input 'NAME=float32[1..8,3,224,224]'.",
    )  # fmt: skip


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in texts(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith("An error occurred when running")]
    line = (telling or lines or [type(error).__name__])[0]
    return line if line.endswith(".") else f"{line}."
