"""The native ExecuTorch library: found without the compiler half, quiet on stderr, its failures in words."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

# Lines that the library writes while it looks for ARM files on other machines; they mean nothing to anyone.
CHATTER = re.compile(r"^\[cpuinfo_utils\.cpp:\d+\] |^\[threadpool\.cpp:\d+\] .*[Rr]esetting", re.MULTILINE)

# runtime/core/error.h of executorch 1.5.1.
ERROR_WORDS = {
    0x01: "an internal failure",
    0x02: "the method is in a state that does not allow this",
    0x03: "no method is loaded",
    0x10: "the operation is not supported, mostly because an input has another size or rank than the program",
    0x11: "the operation is not implemented",
    0x12: "an argument is invalid, mostly an input of another number, dtype or size than the program wants",
    0x13: "a value has another type than the program says",
    0x14: "an operator of the program has no kernel in this library",
    0x15: "out of registers",
    0x20: "something that the program refers to does not exist",
    0x21: "out of memory",
    0x22: "the file can't be read",
    0x23: "the program is damaged or was written for another version",
    0x24: "external data is missing",
    0x25: "out of resources",
    0x30: "the delegate does not accept the program's data",
    0x31: "the delegate can't be initialised",
    0x32: "the delegate ran out of memory",
}
CODE = re.compile(r"error:? 0x:?([0-9a-fA-F]+)")


@functools.cache
def library() -> Any:
    """The binding module, imported directly: the public ``executorch.runtime`` pulls the compiler in (4 s).

    Raises:
        ImportError: neither the direct nor the public way works.
    """
    import torch  # noqa: F401 - loads libtorch, which the binding links against

    package = "executorch.extension.pybindings"
    for name in (f"{package}._C", f"{package}._portable_lib"):
        with contextlib.suppress(ModuleNotFoundError):
            found = importlib.import_module(name)
            if hasattr(found, "_load_for_executorch"):
                return found
    return importlib.import_module(f"{package}.portable_lib")


def is_quantized(program: Any) -> bool:
    """Whether an exported program computes with integers in place of floats."""
    return any(str(node.target).startswith("quantized_decomposed") for node in program.graph.nodes)


def with_quantized_kernels() -> None:
    """Register ``quantized_decomposed::*`` kernels, once: a second registration would abort the process."""
    if not any(name.startswith("quantized_decomposed::") for name in library()._get_operator_names()):
        importlib.import_module("executorch.kernels.quantized")


def register_quantized_kernels() -> bool:
    """Register them; False when they were there already or are still missing, so trying again is of no use."""
    before = len(library()._get_operator_names())
    with_quantized_kernels()
    return len(library()._get_operator_names()) > before


def code_of(error: BaseException) -> int | None:
    """The number in ``Failed to execute method forward, error: 0x10``."""
    found = CODE.search(str(error))
    return int(found[1], 16) if found else None


def in_words(error: BaseException) -> str:
    """What the library's error means; the text itself where the number is not known."""
    code = code_of(error)
    return ERROR_WORDS.get(code, str(error)) if code is not None else str(error)


class Log:
    """What the native library wrote to stderr; ``text`` is filled when the block of :func:`captured` ends."""

    text = ""

    @property
    def lines(self) -> list[str]:
        """The lines that say something, without ``[file.cpp:12]`` in front."""
        kept = [line for line in self.text.splitlines() if line.strip() and not CHATTER.match(line)]
        return [re.sub(r"^\[[\w.]+:\d+\] ", "", line) for line in kept]


@contextlib.contextmanager
def captured() -> Iterator[Log]:
    """Catch what native code writes, to file descriptor 2 and (through its Python binding) to ``sys.stderr``."""
    log, words = Log(), io.StringIO()
    sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # the process was started with stderr closed
        saved = -1
    with tempfile.TemporaryFile() as sink:
        if saved >= 0:
            os.dup2(sink.fileno(), 2)
        try:
            with contextlib.redirect_stderr(words):
                yield log
        finally:
            if saved >= 0:
                os.dup2(saved, 2)
                os.close(saved)
            sink.seek(0)
            log.text = sink.read().decode(errors="replace") + words.getvalue()


def version_of(distribution: str) -> str | None:
    """Installed version without importing the package; None when it is absent."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
