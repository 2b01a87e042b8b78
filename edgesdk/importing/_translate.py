"""torch's failures in words: where in the user's code, why, and what to write instead."""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from edgesdk.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from torch import nn

_OURS = str(Path(__file__).parents[1])
FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')

# (pattern in the exception's type and text, code, why, fix): the first that matches tells the story.
_STORIES: tuple[tuple[str, str, str, str], ...] = (
    (
        r"torchvision.*nms|ops/boxes\.py|_batched_nms|detection/",
        "detector_postprocessing",
        "Non-maximum suppression keeps as many boxes as the picture holds, and a fixed graph needs stated sizes.",
        "Wrap the model so that forward() returns the raw boxes and scores of its head, and run NMS in the app; "
        "or keep a fixed number of boxes with torch.topk.",
    ),
    (
        r"modules/rnn\.py forward\n(?:.*\n)*zeros\(\): argument 'size'.*FakeTensor|nn/utils/rnn\.py \w*pack",
        "packed_sequence",
        "A PackedSequence (pack_padded_sequence) takes its shape from the lengths' values, and a fixed graph needs stated sizes.",
        "Run the layer on the padded tensor and choose each sequence's last step afterwards (gather with lengths - 1, or "
        "torch.where with a mask); for one sequence at a time leave the packing out.",
    ),
    (
        r"Data-dependent branching|Eq\(u\d+, 1\)|bool\(\)|is_nonzero",
        "data_dependent_control_flow",
        "An 'if' or 'while' looks at values of a tensor, and a graph holds only one of the branches.",
        "Compute both sides and choose with torch.where, or use torch.cond(pred, true_fn, false_fn, operands).",
    ),
    (
        r"DataDependent|data-dependent|Dynamic output shape|unbacked|Dynamic slicing|\bu\d+\b",
        "data_dependent_size",
        "A size, a slice or a Python number (.item(), int(), float(), a boolean mask) comes from a tensor's values.",
        "Keep the value in a tensor (index_select, masking with torch.where), make the size a constant, "
        "or pass it in as an input's static size.",
    ),
    (
        r"fake impl|Meta'? backend|meta kernel|fake tensor.*not.*support|UnsupportedFakeTensor|UnsupportedOperatorException",
        "unsupported_op",
        "The operator doesn't say what shape it returns, so it can't be traced.",
        "Register a fake for it (torch.library.register_fake), or replace it by torch's own operators.",
    ),
    (
        r"quantized|Quantized",
        "quantized_module",
        "Modules converted by torch's eager or FX quantization can't be exported.",
        "Package the float model and let --quantize make it smaller.",
    ),
    (
        r"output type|register_dataclass|pytree|unsupported (input|output)",
        "unsupported_output_type",
        "forward() returns (or takes) an object that is no tensor, dictionary, tuple, list or data class.",
        "Return tensors in a dictionary or a tuple.",
    ),
)  # fmt: skip


def user_line(exc: BaseException) -> str | None:
    """``net.py:25: if x.sum() > 0:``, the innermost line that isn't torch's or ours; None when there is none."""
    for link in _chain(exc):
        if hasattr(link, "edgesdk_line"):
            return str(link.edgesdk_line)
    frames = [(f.filename, f.lineno or 0) for e in _chain(exc) for f in traceback.extract_tb(e.__traceback__)]
    frames += [(m[1], int(m[2])) for m in FRAME.finditer(str(exc)) if not m[1].startswith("code/__torch__")]
    return show_line(frames)


def show_line(frames: list[tuple[str, int]]) -> str | None:
    """The last of these frames that is the user's own, else the last of a library that isn't torch."""
    outside = [(f, n) for f, n in frames if _is_users(f)]
    own = [(f, n) for f, n in outside if "site-packages" not in f]
    found = (own or outside)[-1:]
    if not found:
        return None
    file, number = found[0]
    code = linecache.getline(file, number).strip()
    return f"{short(file)}:{number}" + (f": {code}" if code else "")


def short(file: str) -> str:
    """The path as somebody in the current folder would type it."""
    path = Path(file)
    if "site-packages" in path.parts:
        return "/".join(path.parts[path.parts.index("site-packages") + 1 :])
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _is_users(file: str) -> bool:
    return not (file.startswith((_OURS, "<")) or "/site-packages/torch/" in file or "/lib/python" in file.split("/site-packages/")[0])  # fmt: skip


def _chain(exc: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    link: BaseException | None = exc
    while link is not None and link not in found:
        found.append(link)
        link = link.__cause__ or link.__context__
    return found[::-1]


def failing_layer(exc: BaseException, root: nn.Module) -> str | None:
    """Name of the innermost submodule whose ``forward`` was running."""
    import torch

    names = {id(layer): name for name, layer in root.named_modules()}
    last = None
    for frame in _frames(exc.__traceback__):
        layer: Any = frame.f_locals.get("self")
        if isinstance(layer, torch.nn.Module) and names.get(id(layer)):
            last = names[id(layer)]
    return last


def _frames(tb: TracebackType | None) -> Any:
    while tb is not None:
        yield tb.tb_frame
        tb = tb.tb_next


_BY_TRAIL = frozenset({"detector_postprocessing", "packed_sequence"})
"""Stories told by the files that the exception passed through; its own text says nothing about them."""


def export_failed(exc: BaseException, root: nn.Module) -> UnsupportedError:
    """What torch.export's exception means."""
    text = f"{type(exc).__name__}: {exc}"
    where = user_line(exc)
    layer = failing_layer(exc, root)
    place = f" at {where}" if where else f" in layer '{layer}'" if layer else ""
    trail = "\n".join(f"{f.filename} {f.name}" for e in _chain(exc) for f in traceback.extract_tb(e.__traceback__))
    code, why, fix = "export_failed", f"torch.export says: {first_sentence(exc)}", "Rewrite it with torch operators."
    for story in _STORIES:
        if re.search(story[0], f"{trail}\n{exc}" if story[1] in _BY_TRAIL else text):
            code, why, fix = story[1:]
            break
    message = f"The model can't be captured as a graph{place}."
    return UnsupportedError(code, message, why=why, fix=fix, details=_details(exc, where, layer))


def forward_failed(exc: BaseException, root: nn.Module, fed: str) -> InputError:
    """The model itself refuses the example inputs."""
    where = user_line(exc)
    layer = failing_layer(exc, root)
    place = f" in layer '{layer}'" if layer else ""
    return InputError(
        "forward_failed",
        f"forward() fails{place} when it is given {fed}.",
        why=f"{type(exc).__name__}: {first_sentence(exc)}" + (f" (at {where})" if where else ""),
        fix="Correct the sizes or dtypes in --input, or the model.",
        details=_details(exc, where, layer),
    )


def first_sentence(exc: BaseException) -> str:
    """The first line with words in it, at most 200 characters."""
    lines = [line.strip() for line in str(exc).splitlines() if re.search(r"\w", line)]
    text = lines[0] if lines else type(exc).__name__
    text = text if len(text) <= 200 else text[:197] + "..."
    return text if text.endswith((".", "!", "?")) else text + "."


def _details(exc: BaseException, where: str | None, layer: str | None) -> dict[str, Any]:
    return {
        "exception": type(exc).__name__,
        **({"line": where} if where else {}),
        **({"layer": layer} if layer else {}),
    }
