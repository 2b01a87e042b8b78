"""torch.export in both of its modes, quiet, with its failures translated."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk.errors import EdgeError
from edgesdk.importing._translate import export_failed, show_line

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

_SHAPES = "torch.fx.experimental.symbolic_shapes"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No log lines, warnings or half graphs of torch's on the terminal while a failure is turned into a sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        sink = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """``nn.Transformer`` and its layers take the path that any mask and any runtime can take.

    Otherwise they compare the values of a mask with a causal one, only to choose a faster kernel, and a graph can't hold
    that choice; in eval mode they call one fused operator for a whole layer, which no runtime but libtorch has; and
    ``nn.TransformerEncoder`` answers zeros at padded positions or not, as the mask's values happen to lie.
    """
    import torch
    from torch.nn.modules import transformer

    detect: Any = transformer._detect_is_causal_mask
    fast = torch.backends.mha.get_fastpath_enabled()

    def as_said(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return is_causal is True

    transformer._detect_is_causal_mask = as_said
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = detect
        torch.backends.mha.set_fastpath_enabled(fast)


def capture(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any) -> ExportedProgram:
    """Export without, then with dynamo's bytecode analysis; the first that succeeds.

    Gradients are off, so that ``with torch.no_grad()`` inside ``forward()`` leaves no sub-graph behind.

    Raises:
        InputError: the module holds observers, whose checks of values can't be captured anyway.
        UnsupportedError: neither mode can capture the model; names the user's line.
    """
    import torch

    from edgesdk.quantize._already import refuse_observers

    refuse_observers(name for name, _ in module.named_buffers())
    first: Exception | None = None
    for strict in (False, True) if getattr(module, "edgesdk_strict", True) else (False,):
        try:
            with quiet(), torch.no_grad(), plain_attention():
                return torch.export.export(
                    module, tuple(args), dict(kwargs) or None, dynamic_shapes=shapes, strict=strict
                )
        except EdgeError:
            raise
        except Exception as exc:  # torch.export has no common base for what it raises
            first = first or exc
    if first is None:  # unreachable: the loop returns or sets it
        raise RuntimeError("torch.export gave neither a program nor a reason")
    raise export_failed(first, module) from first


class _Watch(logging.Handler):
    """Hears each decision about a symbolic size, and looks up the stack for the line that caused it."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen: list[tuple[str, str | None, str | None]] = []

    def emit(self, record: logging.LogRecord) -> None:
        import torch

        text = record.getMessage()
        if not text.startswith(("eval ", "set_replacement ", "runtime_assert ")):
            return
        frames: list[tuple[str, int]] = []
        layer: Any = None
        said: str | None = None
        frame: Any = sys._getframe()
        while frame is not None:
            if frame.f_code is why_pinned.__code__:
                break
            frames.append((frame.f_code.co_filename, frame.f_lineno))
            said = said or frame.f_locals.get("script_line")
            holder = frame.f_locals.get("self")
            if layer is None and frame.f_code.co_name == "_call_impl" and isinstance(holder, torch.nn.Module):
                layer = holder
            frame = frame.f_back
        self.seen.append((text, said or show_line(frames[::-1]), layer and getattr(layer, "_edgesdk_name", None)))


def why_pinned(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any
) -> list[tuple[str, str | None, str | None]]:
    """Export once more and listen: (decision about a symbolic size, user's line, layer), in order."""
    import torch

    log, watch = logging.getLogger(_SHAPES), _Watch()
    level, propagate, handlers, disabled = log.level, log.propagate, log.handlers, logging.root.manager.disable
    names = {id(layer): name for name, layer in module.named_modules()}
    for layer in module.modules():
        vars(layer)["_edgesdk_name"] = f"{type(layer).__name__} '{names[id(layer)]}'"
    logging.disable(logging.NOTSET)
    log.handlers, log.propagate = [watch], False
    log.setLevel(logging.INFO)
    try:
        sink = io.StringIO()
        with (
            warnings.catch_warnings(), torch.no_grad(), plain_attention(), contextlib.suppress(Exception),
            contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            torch.export.export(module, tuple(args), dict(kwargs) or None, dynamic_shapes=shapes, strict=False)
    finally:
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)
        logging.disable(disabled)
        for layer in module.modules():
            vars(layer).pop("_edgesdk_name", None)
    return watch.seen
