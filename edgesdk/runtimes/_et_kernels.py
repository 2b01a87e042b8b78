"""Refuse a program whose operators have no kernel in the library, before it is written (pitfall E-05)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgesdk.errors import UnsupportedError
from edgesdk.runtimes import _et_native as native
from edgesdk.runtimes._et_coverage import name_of, operators

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# What to write instead, by operator; each is made of operators that have kernels in executorch 1.5.1.
_SORTED = "torch.topk(x, x.shape[dim], dim=dim), which sorts from the largest down"
_COUNTED = "(boundaries < x.unsqueeze(-1)).sum(-1), or <= for right=True"
REPLACEMENTS = {
    "sort": _SORTED,
    "argsort": _SORTED,
    "msort": _SORTED,
    "bucketize": _COUNTED,
    "searchsorted": _COUNTED,
    "cumprod": "torch.exp(torch.cumsum(torch.log(x), dim)) for positive x",
    "logcumsumexp": "torch.log(torch.cumsum(torch.exp(x), dim)) for small x",
    "cummax": "torch.max over slices, or compute it in the app",
    "median": "the middle of torch.topk(x, x.shape[dim] // 2 + 1, dim=dim, largest=False)",
    "linalg_vector_norm": "torch.sqrt((x * x).sum(dim))",
    "linalg_inv_ex": "the inverse computed once outside of the model, as a buffer",
    "take_along_dim": "torch.gather",
    "sinc": "torch.sin(math.pi * x) / (math.pi * x)",
}


def missing_kernels(program: Any) -> list[str]:
    """``aten::sort.values`` for each operator of an ExecuTorch program that the library can't run."""
    needed = {
        f"{o.name}.{o.overload}" if o.overload else o.name for plan in program.execution_plan for o in plan.operators
    }
    library = native.library()
    if any(name.startswith("quantized_decomposed::") for name in needed):
        native.with_quantized_kernels()
    return sorted(needed - set(library._get_operator_names()))


def refuse_missing_kernels(program: Any, edge: ExportedProgram) -> None:
    """Raise for operators without a kernel.

    Raises:
        UnsupportedError: names them with dtype and the user's source line.
    """
    missing = missing_kernels(program)
    if missing:
        raise unsupported([Place.of(name, edge) for name in missing])


@dataclass(frozen=True)
class Place:
    """An operator, its operands' dtypes and the user's line that calls it; both empty when not known."""

    name: str
    dtype: str
    line: str

    @staticmethod
    def of(name: str, program: ExportedProgram) -> Place:
        """Find the operator's first call, by its name without the overload."""
        base = name.partition(".")[0]
        node = next((node for node in operators(program) if name_of(node).partition(".")[0] == base), None)
        return Place(name, _dtype(node), source_line(node))

    def __str__(self) -> str:
        words = [self.name, f"on {self.dtype}" if self.dtype else "", f"({self.line})" if self.line else ""]
        return " ".join(word for word in words if word)


def unsupported(places: Sequence[Place]) -> UnsupportedError:
    """The error for operators that ExecuTorch can't run."""
    listed = "; ".join(map(str, places))
    base = [re.sub(r"^\w+::|\..*$", "", place.name) for place in places]
    advice = [f"Instead of {name}: {REPLACEMENTS[name]}." for name in dict.fromkeys(base) if name in REPLACEMENTS]
    otherwise = "Rewrite that line, or choose" if not advice else "Or choose"
    return UnsupportedError(
        "unsupported_op", f"ExecuTorch has no kernel for {listed}.",
        why="The operator can be exported, but neither the delegate nor the phone's library can run it.",
        fix=" ".join([*advice, f"{otherwise} --runtime onnx or --runtime torchscript, which take more operators."]),
        details={"operators": [place.name for place in places], "lines": [place.line for place in places]},
    )  # fmt: skip


def unsupported_by_name(names: Sequence[str], program: ExportedProgram) -> UnsupportedError:
    """The same for names that a compiler's message gave, found again in the exported program."""
    return unsupported([Place.of(name, program) for name in names])


def _dtype(node: Any | None) -> str:
    if node is None:
        return ""
    values = [getattr(n, "meta", {}).get("val") for n in node.all_input_nodes]
    dtypes = [getattr(value, "dtype", None) for value in values]
    kinds = dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in dtypes if dtype is not None)
    return ", ".join(kinds)


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<where>\w+))?\n\s*(?P<code>.+)')


def source_line(node: Any | None) -> str:
    """``model.py:12: y = torch.sort(x)``: the user's innermost line behind a node; empty when not known."""
    trace = (node.meta.get("stack_trace") if node is not None else None) or ""
    frames = [f for f in _FRAME.finditer(trace) if "site-packages" not in f["file"]] or list(_FRAME.finditer(trace))
    if not frames:
        return ""
    last = frames[-1]
    name = last["file"].replace("\\", "/").rpartition("/")[2]
    return f"{name}:{last['line']}: {last['code'].strip()}"
