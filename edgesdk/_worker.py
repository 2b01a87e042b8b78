"""A worker process: reads one JSON job a line from stdin, answers with JSON lines on the pipe it was given.

Heavy and fragile work (torch, compilers, native engines) happens here, so that the command line stays responsive, a
native crash is an answer instead of the end, and memory is given back to the system.

    → {"call": "edgesdk._jobs:lower", "args": {…}}
    ← {"progress": ["lowering", 0.4]}
    ← {"result": {…}}   or   {"error": {edgesdk.error/1}}   or   {"bug": "traceback"}
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import os
import queue
import re
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

from edgesdk._memory import trim
from edgesdk.errors import EdgeError, InputError


def main() -> None:
    """Serve jobs until stdin closes. ``sys.argv[1]`` is the number of the file descriptor to answer on."""
    descriptor = int(sys.argv[1])
    answers = os.fdopen(descriptor, "w", encoding="utf-8")
    _keep_to_this_process(descriptor)
    os.dup2(2, 1)  # whatever a library prints must never look like an answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    _die_with_parent()
    own = os.getpid()
    for line in _jobs():
        answer = _run(json.loads(line), answers)
        trim()
        if os.getpid() != own:
            os._exit(0)  # the job forked, and this is the copy that came back from it as well
        _answer(answers, answer)


def _keep_to_this_process(descriptor: int) -> None:
    """Children of this process (a job's own, or a library's) neither answer in its name nor hold the pipe open."""
    os.set_inheritable(descriptor, False)
    if hasattr(os, "register_at_fork"):

        def leave() -> None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor, inheritable=False)
            os.close(nowhere)

        os.register_at_fork(after_in_child=leave)


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends; elsewhere the closed stdin does it, between two jobs."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _jobs() -> Any:
    """Lines of stdin, read by a thread of its own: a closed pipe ends the process even in the middle of a job."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


def _run(job: dict[str, Any], answers: Any) -> dict[str, Any]:
    def report(text: str, fraction: float | None = None) -> None:
        _answer(answers, {"progress": [text, fraction]})

    try:
        module, _, name = job["call"].partition(":")
        function = getattr(importlib.import_module(module), name)
        return {"result": function(job["args"], report)}
    except EdgeError as error:
        return {"error": error.to_json(), "traceback": traceback.format_exc()}
    except BaseException as error:  # whatever it is: a worker that ends without an answer looks like a native crash
        known = _out_of_memory() if lacks_memory(error) else _unwritten(error)
        return {"error": known.to_json()} if known else {"bug": traceback.format_exc()}


def _answer(answers: Any, document: dict[str, Any]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


def _unwritten(error: BaseException) -> EdgeError | None:
    """What the disk refused; a worker writes into the work folder only."""
    from edgesdk import _disk

    folder = tempfile.gettempdir()
    place = f"the work folder {folder}", _disk.elsewhere(Path(folder))
    if isinstance(error, OSError):
        return _disk.disk_error(error, *place)
    return _disk.writer_error(error, *place)


def _out_of_memory() -> EdgeError:
    return InputError(
        "out_of_memory", "There is not enough memory for this model.",
        why="A process needs one to four gigabytes of address space for its libraries, and about three times the weights.",
        fix="Close other programs, raise the limit (ulimit -v), use --jobs 1, or make the model smaller.",
    )  # fmt: skip


# What C and C++ libraries say instead of raising MemoryError: the dynamic loader, libc, torch's and ONNX Runtime's allocators.
_NO_MEMORY = re.compile(
    r"failed to map segment|cannot allocate memory|can't allocate memory|not enough memory|std::bad_alloc"
    r"|cannot apply additional memory protection|failed to allocate memory|resource temporarily unavailable",
    re.IGNORECASE,
)


def lacks_memory(error: BaseException) -> bool:
    """Whether the system refused memory (or a thread's stack), however the library that met it puts it."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno in (errno.ENOMEM, errno.EAGAIN)
    return isinstance(error, (ImportError, RuntimeError)) and bool(_NO_MEMORY.search(str(error)))


if __name__ == "__main__":
    main()
